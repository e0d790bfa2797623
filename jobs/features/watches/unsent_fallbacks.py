"""Finds jobs that should have gone another way and that no housekeeper has sent."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from uuid import UUID

from django.db.models import Q, QuerySet

from jobs.features.watches.by_project import count_by_project, jobs_wait
from jobs.models import Job, ServiceBreaker
from jobs.states import WAITING, JobState
from queueops.core.clock import Now
from ratelimits.alerts.alerts import Opening
from ratelimits.models import QuotaAlert
from ratelimits.subjects import MAX_ID_LENGTH

FALLBACK_LATE = timedelta(minutes=1)  # each second, every housekeeper sends what it can
MAX_BREAKERS_READ = 100


def unsent_fallbacks() -> list[Opening]:
    """Return an alert for each project with jobs whose other way no housekeeper could read."""
    found: dict[str, Opening] = {}
    for rows in _late():
        for project, counted in count_by_project(rows).items():
            message = (
                f"{jobs_wait(counted, project)} though a fallback is due: no host that does the housekeeping can read"
                " the payload, for its kind, its schema or its key"
            )
            figures = {"jobs": counted.count, "projects": [project], "cause": "fallback"}
            subject = f"fallback/{project}"[:MAX_ID_LENGTH]
            found.setdefault(
                subject, Opening(QuotaAlert.Kind.UNSERVED, subject, QuotaAlert.Severity.WARNING, message, figures)
            )
    return list(found.values())


def _late() -> Iterator[QuerySet[Job]]:
    """The late jobs, from the two indexes that choose_reroutes.sql reads."""
    late = Now() - FALLBACK_LATE
    parked = Q(status=JobState.RATE_LIMITED, held=False)
    yield Job.objects.filter(parked, fallback_at__lt=late, scheduled_at__isnull=False)
    for out in ServiceBreaker.objects.filter(opened_at__lt=late).order_by("pk")[:MAX_BREAKERS_READ]:
        cut_off = Job.objects.filter(
            parked | Q(status__in=sorted(WAITING), held=False, scheduled_at=None),
            fallback_on_outage=True,
            service=out.service,
            project_id=out.project_id,
            target=out.target,
            updated_at__lt=late,
        )
        yield cut_off.exclude(pk=out.probe_job_id or UUID(int=0)).exclude(via="batch")
