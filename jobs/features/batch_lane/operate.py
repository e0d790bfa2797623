"""Actions of people on providers' batches."""

from __future__ import annotations

from collections.abc import Collection
from uuid import UUID

from django.db import transaction
from django.db.models import Exists, OuterRef

from jobs.features.batch_lane.steps.settle import settle_unanswered
from jobs.models import ProviderBatch, ProviderBatchLine
from queueops.audit import trail
from queueops.core.clock import Now
from ratelimits.models import Spend, Via
from ratelimits.money.reports import SpendSum, total

MAX_REASON_TOLD = 200


@transaction.atomic
def cancel_provider_batches(ids: Collection[UUID], *, actor: str, reason: str = "") -> set[UUID]:
    """
    Cancel batches at their providers, within seconds.

    Answers that came are kept. The other jobs go live, or by another batch where there is time.

    Returns:
        The batches that had not ended and were not cancelled before.
    """
    rows = ProviderBatch.objects.filter(
        pk__in=ids, state__in=ProviderBatch.UNFINISHED, cancel_requested_at__isnull=True
    ).select_for_update()
    found = list(rows.order_by("pk"))
    words = (reason or "an operator cancelled it")[:MAX_REASON_TOLD]
    ProviderBatch.objects.filter(pk__in=[one.pk for one in found]).update(
        cancel_requested_at=Now(), cancel_reason=words, look_at=Now()
    )
    for one in found:
        trail.record(
            actor=actor,
            action="cancel_provider_batch",
            target=f"provider batch {one.pk}",
            before={"state": one.state, "done": one.done, "lines": one.lines},
            reason=reason,
            project_id=one.project_id,
        )
    return {one.pk for one in found}


def settle_batches(ids: Collection[UUID], *, billed: bool, actor: str, reason: str = "") -> set[UUID]:
    """
    Settle by hand the unknown costs of lines without an answer: at the booked cost if billed, otherwise at nothing.

    Returns:
        The batches that had ended and had such lines.
    """
    rows = list(ProviderBatch.objects.filter(pk__in=ids, closed_at__isnull=False, unanswered__gt=0).order_by("pk"))
    for batch in rows:
        before = spent_on(batch)
        lines = settle_unanswered(batch, billed=billed)
        trail.record(
            actor=actor,
            action="settle_provider_batch",
            target=f"provider batch {batch.pk}",
            before={"unanswered": lines, "unknown_money": before.unknown_money if before else 0},
            after={"billed": billed},
            moved=lines,
            reason=reason,
            project_id=batch.project_id,
        )
    settled = {batch.pk for batch in rows}
    # Nobody needs the results at the provider any more: the next step deletes them. Results of lines that are not here
    # stay: another installation may need them.
    ProviderBatch.objects.filter(pk__in=settled, unknown_lines=0).update(is_kept=True, look_at=Now())
    return settled


def look_now(ids: Collection[UUID]) -> int:
    """Have batches looked at within seconds. Returns how many had not ended."""
    return ProviderBatch.objects.filter(pk__in=ids, state__in=ProviderBatch.UNFINISHED).update(look_at=Now())


def spent_on(batch: ProviderBatch) -> SpendSum | None:
    """The cost of a batch's answers, dropped ones included; None: no answer was paid for."""
    lines = ProviderBatchLine.objects.filter(provider_batch=batch, job_id=OuterRef("job_id"), token=OuterRef("token"))
    jobs = ProviderBatchLine.objects.filter(provider_batch=batch).values("job_id")
    found = total(Spend.objects.filter(Exists(lines), job_id__in=jobs, via=Via.BATCH))
    return found if found.calls else None
