"""Hands back lines that are not done in time. This is work of the database alone and waits for no provider."""

from __future__ import annotations

import logging
from datetime import timedelta

from django.conf import settings
from django.db import InterfaceError, OperationalError

from jobs.models import ProviderBatch
from queueops.core.clock import Now, database_now

from .calls import call_seconds
from .collect import LINE_BYTES
from .settle import close_batch, hand_back_rest

logger = logging.getLogger(__name__)

# The share of the margin that is left before the deadline when lines go live that the provider has not given up.
LAST_CALL_SHARE = 0.25
GIVEN_UP_SECONDS = 86_400.0  # since late lines went live: a batch that nobody could ask about is then closed
State = ProviderBatch.State


def hand_back_late(*, since: float) -> None:
    """
    Hand back lines, of every job kind, that a provider has not given up in time: deadlines count more than the price.

    Args:
        since: When this process began to look at due batches, by the database's clock.
    """
    until_last_call = (1 - LAST_CALL_SHARE) * settings.QUEUEOPS.batch_margin_seconds
    late = ProviderBatch.objects.filter(
        state__in=ProviderBatch.UNFINISHED, live_at__lt=Now() - timedelta(seconds=until_last_call)
    )
    for batch in list(late.order_by("live_at")):
        try:
            _hand_back(batch, since)
        except (OperationalError, InterfaceError):
            raise
        except Exception:  # otherwise one faulty batch would block all others
            logger.exception("provider batch %s: its late lines were not handed back", batch.pk)


def _hand_back(batch: ProviderBatch, since: float) -> None:
    now = database_now()
    # A batch that has ended at the provider is paid for and only has to be downloaded: wait the whole margin for it.
    # Do not wait so long for results that the provider does not show: they may never come.
    share = 0.0 if batch.state == State.COLLECTING and not batch.missing else LAST_CALL_SHARE
    late = now - batch.live_at.timestamp() - (1 - share) * settings.QUEUEOPS.batch_margin_seconds
    if late <= 0 or not _had_its_chance(batch, now=now, late=late, since=since):
        return
    asked = batch.creations > 0  # the provider may be carrying the batch out
    reason = "its batch was not given up before the deadline"
    count = hand_back_rest(batch, reason=reason, live=None, unanswered=asked, billed=asked)
    if count:
        logger.warning("provider batch %s: %s lines go live and may be paid for twice", batch.pk, count)
    if late > GIVEN_UP_SECONDS:
        reason = "nobody could ask for its end until long after its deadline"
        told = f"{reason}: {batch.error}" if batch.error else reason
        ProviderBatch.objects.filter(pk=batch.pk).update(error=told, ended_at=Now())
        close_batch(batch, State.FAILED)


def _had_its_chance(batch: ProviderBatch, *, now: float, late: float, since: float) -> bool:
    """
    Whether the provider was asked about the batch after it became late, or could not be asked.

    A batch that ended while nobody looked is read before its lines go live: it has been paid for. If a due step makes
    no progress for longer than a call may take, do not wait for it.
    """
    if batch.faults or (batch.looked_at is not None and batch.looked_at.timestamp() > now - late):
        return True
    stirred = max(batch.look_at.timestamp(), batch.progressed_at.timestamp(), since)
    return now - stirred > longest_call(batch)


def longest_call(batch: ProviderBatch) -> float:
    """The seconds that the longest call about a batch may take: some APIs get all lines as a batch is made."""
    is_sent = batch.state == State.CREATING
    return call_seconds(batch.size_bytes + LINE_BYTES * batch.lines if is_sent else 0)
