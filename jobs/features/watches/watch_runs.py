"""Watches jobs that have been running for long: one alert for each kind and project, which names the oldest job."""

from __future__ import annotations

from datetime import timedelta

from django.conf import settings
from django.db.models import QuerySet
from django.utils import timezone

from jobs.models import Job, ProviderBatch
from jobs.states import JobState
from queueops.core.clock import Now
from queueops.core.values.numbers import numbered
from ratelimits.alerts.alerts import Opening, reconcile
from ratelimits.models import QuotaAlert

MAX_RUNS_NAMED = 200  # the oldest; no more run at once than there are slots


def running_here() -> QuerySet[Job]:
    """Jobs that executors carry out. Jobs in a provider's batch are left out: they may be in progress for days."""
    in_batches = ProviderBatch.objects.filter(closed_at=None)
    return Job.objects.filter(status=JobState.IN_PROGRESS).exclude(executor__in=in_batches.values("pk"))


def watch_runs() -> None:
    """Alert, by kind and project, about jobs that have been running for longer than QUEUEOPS_ALERT_RUNNING_MINUTES."""
    late = Now() - timedelta(minutes=settings.QUEUEOPS.alert_running_minutes)
    running = running_here().filter(started_at__lt=late)
    by_kind: dict[tuple[str, str], list[Job]] = {}
    for job in running.only("kind", "project_id", "started_at").order_by("started_at", "pk")[:MAX_RUNS_NAMED]:
        by_kind.setdefault((job.kind, job.project_id), []).append(job)
    reconcile(
        QuotaAlert.Kind.LONG_RUNNING, [_opening(kind, project, jobs) for (kind, project), jobs in by_kind.items()]
    )


def _opening(kind: str, project: str, jobs: list[Job]) -> Opening:
    oldest = jobs[0]
    assert oldest.started_at is not None  # noqa: S101 - by the filter
    minutes = (timezone.now() - oldest.started_at).total_seconds() / 60
    others = f"; so have {numbered(len(jobs) - 1, 'other job', 'other jobs')}" if len(jobs) > 1 else ""
    return Opening(
        QuotaAlert.Kind.LONG_RUNNING,
        f"{kind}/{project}",
        QuotaAlert.Severity.WARNING,
        f"{kind}: job {oldest.pk} of {project} has been running for {minutes:,.0f} min{others}",
        {
            "jobs": len(jobs),
            "oldest": str(oldest.pk),
            "since": oldest.started_at.isoformat(),
            "projects": [project],
            "cause": kind,
        },
    )
