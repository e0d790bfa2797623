"""
Sends the audit trail elsewhere: every entry at least once, in the order of ids.

A row for each target keeps how far it got, so that a restart loses nothing. One process at a time holds the row.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, timedelta
from uuid import UUID, uuid4

from django.db import connection
from django.db.models import Q, QuerySet
from django.utils import timezone

from queueops.core.clock import Now
from queueops.core.values.masking import masked

from .models import AuditEntry, AuditStream
from .sinks import SentEntry, sink_of

logger = logging.getLogger(__name__)

MAX_ENTRIES = 500  # entries in one batch
TERM = timedelta(seconds=60)  # how long a process holds a target; longer than a batch takes
UNSETTLED_SECONDS = 0.05
LAST_ID = "SELECT CASE WHEN is_called THEN last_value ELSE 0 END FROM jobs_auditentry_number"
TAKE_XID = "SELECT pg_current_xact_id()::text::bigint"
OLDEST_UNFINISHED = "SELECT pg_snapshot_xmin(pg_current_snapshot())::text::bigint"


@dataclass(frozen=True, slots=True)
class Sent:
    """
    Attributes:
        entries: How many have arrived.
        fault: The error that stopped the sending; empty: there was none.
        is_held: Another process sends to this target.
    """

    entries: int = 0
    fault: str = ""
    is_held: bool = False


@dataclass(frozen=True, slots=True)
class Lag:
    entries: int
    seconds: float
    fault: str


@dataclass(frozen=True, slots=True)
class Standstill:
    """
    Attributes:
        seconds: How long the target has taken nothing although entries wait; 0: no entry waits.
        fault: The error of the last try; empty: there was none.
    """

    seconds: float
    fault: str


def send_new(
    target: str, *, seconds: float, holder: UUID | None = None, go_on: Callable[[], bool] | None = None
) -> Sent:
    """
    Send the entries that have not arrived yet, up to the id below which no new entry can appear (`settled_id`).

    Call this outside of a transaction: one that stays open keeps the trail from settling for other readers.

    Args:
        seconds: The time after which no further batch is begun.
        holder: The caller's id, if it calls this repeatedly.
        go_on: Called after each batch; False ends the sending. By default the seconds alone count.
    """
    holder, until, sent = holder or uuid4(), time.monotonic() + seconds, 0
    AuditStream.objects.get_or_create(target=target)
    row = AuditStream.objects.filter(target=target)
    free = Q(holder=None) | Q(holder=holder) | Q(held_until__lt=Now())
    if not row.filter(free).update(holder=holder, held_until=Now() + TERM):
        return Sent(is_held=True)
    held = row.filter(holder=holder)
    fault = ""
    try:
        sink, settled = sink_of(target), settled_id(until)
        cursor = row.values_list("cursor", flat=True).get()
        while entries := list(AuditEntry.objects.filter(pk__gt=cursor, pk__lte=settled).order_by("pk")[:MAX_ENTRIES]):
            sink.send([line_of(entry) for entry in entries])
            if not held.update(cursor=entries[-1].pk, accepted_at=Now(), held_until=Now() + TERM):
                return Sent(sent, is_held=True)  # the batch took longer than TERM, and another process sends it again
            cursor, sent = entries[-1].pk, sent + len(entries)
            if time.monotonic() >= until or (go_on is not None and not go_on()):
                break
    except OSError as error:
        fault = f"{type(error).__name__}: {error}"[:300]
        logger.warning("the audit trail waits: %s does not take it: %s", target, fault)
    finally:
        held.update(holder=None, tried_at=Now(), fault=fault)
    return Sent(sent, fault)


def lag_of(target: str) -> Lag:
    """Return how many entries have not arrived, and for how long the oldest has waited."""
    row = AuditStream.objects.filter(target=target).first()
    return Lag(_waiting(row).count(), _oldest_seconds(row), row.fault if row else "")


def lag_seconds(target: str) -> float:
    """Return how long the oldest entry that has not arrived has waited; one row is read, however many wait."""
    return _oldest_seconds(AuditStream.objects.filter(target=target).first())


def standstill(target: str) -> Standstill:
    """Return for how long a target has taken nothing although entries wait; reads two rows, however many wait."""
    row = AuditStream.objects.filter(target=target).first()
    if row is None:
        return Standstill(0.0, "")
    silent = max(0.0, (timezone.now() - row.accepted_at).total_seconds())
    return Standstill(min(silent, _oldest_seconds(row)), row.fault)


def _waiting(row: AuditStream | None) -> QuerySet[AuditEntry]:
    return AuditEntry.objects.filter(pk__gt=row.cursor if row else 0)


def _oldest_seconds(row: AuditStream | None) -> float:
    oldest = _waiting(row).order_by("pk").values_list("created_at", flat=True).first()
    return max(0.0, (timezone.now() - oldest).total_seconds()) if oldest else 0.0


def line_of(entry: AuditEntry) -> SentEntry:
    """Return an entry as it is sent, with its secrets masked as on the screen."""
    at = entry.created_at.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    said = {
        "id": entry.pk,
        "created_at": at,
        "project_id": entry.project_id,
        "actor": entry.actor,
        "action": entry.action,
        "target": entry.target,
        "moved": entry.moved,
        "reason": masked(entry.reason),
        "address": entry.address,
    }
    whole = {**said, "before": masked(entry.before), "after": masked(entry.after)}
    return SentEntry(
        json.dumps(whole), json.dumps({**said, "reason": said["reason"][:1000], "cut": True}), at, entry.action
    )


def settled_id(until: float) -> int:
    """
    Return the id up to which every entry that can ever exist is visible; 0: time ran out before that was certain.

    Ids come from a sequence, and commit out of order. The column's default gives a transaction its own id before it
    takes an id for an entry. This function takes a transaction id after it has read the sequence: every younger
    transaction gets greater entry ids.

    Call this outside of a transaction: a transaction that waits here with an id blocks the others that wait here.
    """
    last, xid = _number(LAST_ID), _number(TAKE_XID)
    while _number(OLDEST_UNFINISHED) < xid:  # not <=: in a transaction, the oldest one left is its own
        if time.monotonic() >= until:
            return 0
        time.sleep(UNSETTLED_SECONDS)
    return last


def _number(statement: str) -> int:
    with connection.cursor() as cursor:
        cursor.execute(statement)
        return int(cursor.fetchone()[0])
