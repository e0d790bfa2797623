"""Opens alerts about batches that have stopped themselves, until somebody resumes them or cancels the rest."""

from __future__ import annotations

from jobs.features.batch_guards.guards import told
from jobs.models import Batch
from jobs.services.explain.snapshots import batch_counts
from jobs.states import WAITING, GuardState
from queueops.core.values.numbers import numbered
from ratelimits.alerts.alerts import Opening, reconcile
from ratelimits.models import QuotaAlert

MAX_STOPPED = 100  # batches with an open alert


def watch_guards() -> None:
    """Open an alert for each batch that has stopped itself, and end the alerts of other batches."""
    stopped = Batch.objects.filter(finished_at=None, paused=True, guard_state=GuardState.STOPPED)
    stopped = stopped.order_by("pk")[:MAX_STOPPED]
    counts = batch_counts(batch.pk for batch in stopped)
    found = []
    for batch in stopped:
        guard = batch.guard or {}
        name = batch.name or f"…{str(batch.pk)[-8:]}"
        left = sum(counts[batch.pk][state] for state in WAITING)
        found.append(
            Opening(
                QuotaAlert.Kind.GUARD,
                f"batch/{batch.pk}",
                QuotaAlert.Severity.WARNING,
                f"Batch {name} of {batch.project_id} has stopped itself: {told(guard)}. "
                f"{numbered(left, 'job waits', 'jobs wait')}: resume it, or cancel the rest.",
                {**guard, "batch": str(batch.pk), "projects": [batch.project_id]},
            )
        )
    reconcile(QuotaAlert.Kind.GUARD, found)
