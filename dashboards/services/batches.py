"""Batches as cards with progress: open ones, and batches that ended just now."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from django.utils import timezone

from dashboards.services.shared.wire import iso, link
from jobs.models import Batch
from jobs.querysets import BatchQuerySet
from jobs.services.explain.snapshots import batch_snapshots
from jobs.states import SHOWN_VERDICTS

MAX_BATCHES_OPEN = 12
LOOKED_BACK = 30  # recently ended batches are looked for among so many of the newest
ENDED_LATELY = timedelta(minutes=10)
MAX_BATCHES_SHOWN = 16


def batch_rows(rows: BatchQuerySet | None = None, *, links: bool = True) -> list[dict[str, Any]]:
    """
    Return cards of open and of recently ended batches, the newest first. Two reads by an index find the batches.

    Args:
        rows: The batches to choose from.
        links: Whether the cards link to the admin; producers cannot use it.
    """
    everything = Batch.objects.all() if rows is None else rows
    unfinished = list(everything.filter(finished_at=None).order_by("-pk")[:MAX_BATCHES_OPEN])
    since = timezone.now() - ENDED_LATELY
    newest = everything.order_by("-pk")[:LOOKED_BACK]
    ended = [batch for batch in newest if batch.finished_at is not None and batch.finished_at > since]
    shown = sorted([*unfinished, *ended], key=lambda batch: batch.pk, reverse=True)[:MAX_BATCHES_SHOWN]
    return _cards(shown, links=links)


def _cards(shown: Sequence[Batch], *, links: bool) -> list[dict[str, Any]]:
    snapshots = batch_snapshots(shown)
    cards = []
    for batch in shown:
        snapshot = snapshots[batch.pk]
        shown_as = SHOWN_VERDICTS[snapshot.verdict]
        cards.append(
            {
                "id": str(batch.pk),
                "name": batch.name,
                "project": batch.project_id,
                "counts": snapshot.counts,
                "held_by_outage": snapshot.held_by_outage,
                "scheduled": snapshot.scheduled.jobs,
                "scheduled_until": iso(snapshot.scheduled.last),
                "total": sum(snapshot.counts.values()),
                "finished": snapshot.finished,
                "percent": snapshot.progress,
                "rate": None if (rate := batch.rate_now) is None else round(rate, 2),
                "eta": iso(snapshot.eta),
                "eta_earliest": iso(snapshot.eta_earliest),
                "verdict": snapshot.verdict.value,
                "words": shown_as.words,
                "tone": shown_as.tone,
                "sign": shown_as.sign,
                "held_by": snapshot.held_by,
                "paused": batch.paused,
                "created_at": iso(batch.created_at),
                "finished_at": iso(batch.finished_at),
                "href": link("jobs_batch", batch.pk) if links else None,
            }
        )
    return cards
