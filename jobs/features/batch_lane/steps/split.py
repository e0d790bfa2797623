"""Splits a batch that its provider refused as too large, before any of its lines was carried out."""

from __future__ import annotations

import re

from django.db import transaction

from jobs.models import Job, ProviderBatch, ProviderBatchLine, new_id
from jobs.states import RUNNING
from queueops.core.clock import Now
from ratelimits.costs import ENQUEUED_TOKENS
from ratelimits.limiter.decide import Settlement, decide

from .adopt import LINES_AT_ONCE
from .collect import enqueued_call, holder_of_batch

# The words of a refusal that is of the size, whatever its status.
TOO_LARGE = re.compile(
    r"(?:payload|body|content|file|batch|request)s?\b[^.]{0,60}"
    r"(?:too (?:large|big)|larger than|(?:size|bytes)\b[^.]{0,40}\bexceed|exceed[^.]{0,40}\b(?:size|bytes|[mk]b\b))",
    re.IGNORECASE,
)

State = ProviderBatch.State
_SHARED = (
    "project_id",
    "kind",
    "service",
    "provider",
    "model",
    "credential",
    "complete_by",
    "live_at",
    "cancel_requested_at",
    "cancel_reason",
    "created_at",
)


@transaction.atomic
def split(batch: ProviderBatch, error: str, *, creations: int) -> bool:
    """
    Move the second half of the waiting lines into a batch of their own; both are handed over anew, within seconds.

    The jobs stay claimed. Their lines keep their tokens, and so their money of budgets.

    Args:
        batch: As it was when the provider was asked. If somebody else has gone on with it since, nothing is changed.
        error: The provider's words, shown until a half is handed over.
        creations: How often the provider had been asked to make it by then.

    Returns:
        False: there are no two lines to split. Nothing was changed.
    """
    row = ProviderBatch.objects.select_for_update().get(pk=batch.pk)
    # Otherwise a late refusal would take lines out of a batch that another process has handed over.
    if (row.state, row.provider_id, row.creations) != (batch.state, batch.provider_id, creations):
        return True
    waiting = row.all_lines.filter(state=ProviderBatchLine.State.WAITING).select_for_update().order_by("number")
    lines = list(waiting)
    half = lines[(len(lines) + 1) // 2 :]
    if not half:
        return False
    tokens = row.enqueued_tokens * len(half) // len(lines)
    other = ProviderBatch.objects.create(
        id=new_id(),
        **{name: getattr(row, name) for name in _SHARED},
        lines=len(half),
        size_bytes=row.size_bytes * len(half) // len(lines),
        enqueued_tokens=tokens,
        create_before=Now(),
        error=error,
    )
    ProviderBatchLine.objects.filter(pk__in=[line.pk for line in half]).delete()
    ProviderBatchLine.objects.bulk_create(
        [
            ProviderBatchLine(provider_batch=other, number=number, job_id=line.job_id, token=line.token)
            for number, line in enumerate(half)
        ],
        batch_size=LINES_AT_ONCE,
    )
    owned = Job.objects.filter(pk__in=[line.job_id for line in half], executor=row.pk, status__in=RUNNING)
    # Lock them in the order in which transitions do: otherwise the two could wait for each other.
    ids = list(owned.select_for_update(of=("self",)).order_by("pk").values_list("pk", flat=True))
    Job.objects.filter(pk__in=ids).update(executor=other.pk)
    kept = row.enqueued_tokens - tokens
    ProviderBatch.objects.filter(pk=row.pk).update(
        state=State.CREATING,
        creations=0,
        provider_id="",
        provider_state="",
        done=0,
        submitted_at=None,
        lines=row.lines - len(half),
        size_bytes=row.size_bytes - other.size_bytes,
        enqueued_tokens=kept,
        look_at=Now(),
        progressed_at=Now(),
        faults=0,
        error=error,
    )
    calls = [enqueued_call(one, one.pk, held) for one, held in ((row, kept), (other, tokens))]
    decide(calls, settlements=[Settlement(holder_of_batch(row.pk))], units=frozenset({ENQUEUED_TOKENS}))
    return True
