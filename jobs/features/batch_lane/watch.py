"""Alerts for batches at providers that make no progress or were refused as a whole, and for searches."""

from __future__ import annotations

from datetime import UTC, timedelta

from django.conf import settings
from django.db.models import Q

from jobs.features.batch_lane.operate import spent_on
from jobs.models import BatchPace, BatchSearch, ProviderBatch
from queueops.core.clock import Now
from queueops.core.values.masking import masked_text
from ratelimits.alerts.alerts import Opening, reconcile
from ratelimits.models import QuotaAlert
from ratelimits.money.amounts import shown

MAX_BATCHES_WATCHED = 200
REFUSED_FOR = timedelta(hours=1)  # how long the alert of a refused batch stays
CREATING_FOR = timedelta(minutes=15)
SEARCHED_FOR = timedelta(minutes=15)
LEFT_FOR = timedelta(days=1)  # how long alerts stay about batches that a search left alone, and lines without an answer


def watch_provider_batches() -> None:
    """
    Open alerts for batches that nobody could make, that were refused, or that have lines without an answer.

    A batch also gets an alert if it makes no progress for longer than 95 of 100 batches take, plus the margin. A search
    after a restore gets an alert if it waits or has left batches alone.
    """
    settled = Q(state=ProviderBatch.State.FAILED, closed_at__gt=Now() - REFUSED_FOR)
    stuck = Q(state=ProviderBatch.State.CREATING, created_at__lt=Now() - CREATING_FOR)
    unanswered = Q(closed_at__gt=Now() - LEFT_FOR, unanswered__gt=0)
    rows = list(ProviderBatch.objects.filter(settled | stuck | unanswered).order_by("-id")[:MAX_BATCHES_WATCHED])
    rows += _without_progress()
    waits = Q(closed_at=None, created_at__lt=Now() - SEARCHED_FOR)
    told = Q(left_alone__gt=0, created_at__gt=Now() - LEFT_FOR)
    searches = BatchSearch.objects.filter(waits | told)[:MAX_BATCHES_WATCHED]
    openings = [_opening(batch) for batch in {row.pk: row for row in rows}.values()]
    reconcile(QuotaAlert.Kind.PROVIDER_BATCH, openings + [_of_search(row) for row in searches])


def _without_progress() -> list[ProviderBatch]:
    open_ones = ProviderBatch.objects.filter(state__in=["open", "collecting"])
    if not open_ones.exists():
        return []
    own = settings.QUEUEOPS
    paces = dict(BatchPace.objects.exclude(p95_seconds=None).values_list("service", "p95_seconds"))
    now = Now()
    found: list[ProviderBatch] = []
    for service in open_ones.order_by().values_list("service", flat=True).distinct():
        allowed = timedelta(seconds=(paces.get(service) or own.batch_window_seconds) + own.batch_margin_seconds)
        found += open_ones.filter(service=service, progressed_at__lt=now - allowed).order_by("id")[:MAX_BATCHES_WATCHED]
    return found


def _opening(batch: ProviderBatch) -> Opening:
    if batch.closed_at and batch.unanswered:
        spent = spent_on(batch)
        most = shown(spent.unknown_money, settings.QUEUEOPS.currency) if spent and spent.unknown else ""
        booked = f"; {most} at most is booked as unknown for them" if most else ""
        what = f"ended without an answer to {batch.unanswered:,} of its {batch.lines:,} lines: they go again{booked}"
    elif batch.state == ProviderBatch.State.FAILED:
        why = masked_text(batch.error)[:300].rstrip(".")
        what = f"was refused: {why}. Its {batch.lines:,} jobs go on live or by another"
    elif batch.state == ProviderBatch.State.CREATING:
        what = f"could not be handed over: {masked_text(batch.error)[:300] or 'nobody has tried'}"
    else:
        live = f"{batch.live_at.astimezone(UTC):%Y-%m-%d %H:%M} UTC"
        what = f"stands still at {batch.done:,} of {batch.lines:,} lines; what is not done by {live} goes live"
    return Opening(
        QuotaAlert.Kind.PROVIDER_BATCH,
        str(batch.pk),
        QuotaAlert.Severity.WARNING,
        f"A batch of {batch.service} ({batch.model}) of {batch.project_id} {what}",
        {
            "provider_batch": str(batch.pk),
            "provider_id": batch.provider_id,
            "projects": [batch.project_id],
            "lines": batch.lines,
            "done": batch.done,
            "unanswered": batch.unanswered,
        },
    )


def _of_search(row: BatchSearch) -> Opening:
    if row.closed_at is None:
        what = f"goes on, and nothing is collected meanwhile: {masked_text(row.error)[:300] or 'nobody has begun it'}"
    else:
        count = f"{row.left_alone} batch{'es' if row.left_alone > 1 else ''}"
        what = f"has left {count} alone: of jobs that are not here, or of another installation that has the key"
    return Opening(
        QuotaAlert.Kind.PROVIDER_BATCH,
        f"search:{row.pk}",
        QuotaAlert.Severity.WARNING,
        f"The search for batches of {row.kind} by {row.credential}, made after the restored moment, {what}",
        {"credential": row.credential, "adopted": row.adopted, "left_alone": row.left_alone},
    )
