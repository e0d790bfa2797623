"""Halves a batch that its provider refused because of its size, before any of its lines was carried out."""

from __future__ import annotations

import re

from django.db import transaction
from django.db.models import Q

from jobs.models import Job, ProviderBatch, ProviderBatchLine, new_id
from jobs.states import RUNNING
from queueops.core.clock import Now
from ratelimits.costs import ENQUEUED_TOKENS
from ratelimits.limiter.decide import Settlement, decide

from .adopt import LINES_AT_ONCE
from .collect import enqueued_call, holder_of_batch
from .settle import hand_back_lines

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
    row = _as_asked(batch, creations)
    if row is None:
        return True
    count, half = _second_half(row)
    if not half:
        return False
    tokens = row.enqueued_tokens * len(half) // count
    other = ProviderBatch.objects.create(
        id=new_id(),
        **{name: getattr(row, name) for name in _SHARED},
        lines=len(half),
        size_bytes=row.size_bytes * len(half) // count,
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
    _begin_anew(row, error, kept, lines=row.lines - len(half), size_bytes=row.size_bytes - other.size_bytes)
    _hold(row, (row, kept), (other, tokens))
    return True


@transaction.atomic
def keep_half(batch: ProviderBatch, error: str, *, creations: int) -> bool:
    """
    Hand back the second half of a batch that alone is more than may be enqueued; the first half is handed over anew.

    The jobs that are handed back wait for a batch after it: each batch of them would be refused until then.

    Args:
        batch, error, creations: As of `split`.

    Returns:
        False: it has to wait for another batch's end, or there are no two lines. Nothing was changed.
    """
    row = _as_asked(batch, creations)
    if row is None:
        return True
    alike = ProviderBatch.objects.filter(service=row.service, credential=row.credential, model=row.model)
    # Only the oldest of the batches that wait is halved: otherwise all would become batches of one line each.
    goes_first = Q(id__lt=row.pk) | Q(creations__gt=0) | ~Q(provider_id="")
    if alike.filter(goes_first, state__in=ProviderBatch.UNFINISHED).exclude(pk=row.pk).exists():
        return False
    count, half = _second_half(row)
    if not half:
        return False
    hand_back_lines(row, [line.number for line in half], reason=f"its batch was refused: {error}", live=frozenset())
    kept = row.enqueued_tokens * (count - len(half)) // count
    _begin_anew(row, error, kept)
    _hold(row, (row, kept))
    return True


def _as_asked(batch: ProviderBatch, creations: int) -> ProviderBatch | None:
    """Lock the row; None: a late refusal would take lines out of a batch that another process has handed over."""
    row = ProviderBatch.objects.select_for_update().get(pk=batch.pk)
    is_same = (row.state, row.provider_id, row.creations) == (batch.state, batch.provider_id, creations)
    return row if is_same else None


def _second_half(row: ProviderBatch) -> tuple[int, list[ProviderBatchLine]]:
    """Lock the waiting lines; return how many there are, and the second half of them."""
    waiting = row.all_lines.filter(state=ProviderBatchLine.State.WAITING).select_for_update().order_by("number")
    lines = list(waiting)
    return len(lines), lines[(len(lines) + 1) // 2 :]


def _begin_anew(row: ProviderBatch, error: str, tokens: int, **changes: int) -> None:
    ProviderBatch.objects.filter(pk=row.pk).update(
        state=State.CREATING,
        creations=0,
        provider_id="",
        provider_state="",
        done=0,
        submitted_at=None,
        enqueued_tokens=tokens,
        look_at=Now(),
        progressed_at=Now(),
        faults=0,
        error=error,
        **changes,
    )


def _hold(row: ProviderBatch, *held: tuple[ProviderBatch, int]) -> None:
    """Have these batches hold enqueued tokens in place of all that the first one held."""
    calls = [enqueued_call(one, one.pk, tokens) for one, tokens in held]
    decide(calls, settlements=[Settlement(holder_of_batch(row.pk))], units=frozenset({ENQUEUED_TOKENS}))
