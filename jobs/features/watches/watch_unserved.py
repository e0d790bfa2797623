"""Opens alerts about work that no worker carries out, one for each missing thing and project that waits for it."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from uuid import UUID

from django.conf import settings
from django.db.models import Q, QuerySet

from jobs.features.pools.pools import alive
from jobs.features.served_kinds.served_kinds import UNSERVED
from jobs.features.served_kinds.unserved import waiting_for
from jobs.features.watches.by_project import count_by_project, jobs_wait
from jobs.features.watches.unserved_pools import unserved_pools
from jobs.models import Executor, Job, PauseSwitch, ServiceBreaker
from jobs.services.operate.job_filter import Counted
from jobs.states import RUNNING, WAITING, JobState
from queueops.core.clock import Now
from ratelimits.alerts.alerts import Opening, reconcile
from ratelimits.models import QuotaAlert
from ratelimits.subjects import MAX_ID_LENGTH

MAX_MISSING = 200  # pause switches read, one for each missing kind or key
FALLBACK_LATE = timedelta(minutes=1)  # each second, every housekeeper sends what it can
MAX_BREAKERS_READ = 100
LAPSED_LATE = timedelta(minutes=2)  # every few seconds, a housekeeper takes back the lapsed jobs that it can judge
NOBODY_READS = "no host that does the housekeeping can read the payload, for its kind, its schema or its key"


def watch_unserved() -> None:
    """
    Alert about kinds that no worker knows, payloads that no worker takes, jobs whose pool no cluster serves, and
    fallbacks and lapsed jobs that no housekeeper can read.

    The alert ends when a worker takes such jobs, or when no such job is left.
    """
    switches = PauseSwitch.objects.filter(scope__in=UNSERVED).order_by("pk")[:MAX_MISSING]
    missing = [opening for one in switches for opening in _openings(one)]
    reconcile(QuotaAlert.Kind.UNSERVED, unserved_pools() + _unsent_fallbacks() + _left_lapsed() + missing)


def _openings(switch: PauseSwitch) -> Iterator[Opening]:
    late = f"a dead letter each after {settings.QUEUEOPS.unserved_hours:g} h"
    if switch.scope == PauseSwitch.Scope.SEALED:
        late = "none becomes a dead letter"
    cause = " ".join(filter(None, (switch.scope, switch.pool, switch.key)))
    for project, counted in count_by_project(Job.objects.filter(waiting_for(switch))).items():
        message = f"{switch}: {jobs_wait(counted, project)} for one; {late}"
        yield _opening(cause, project, counted, f"{message[:1].upper()}{message[1:]}")


def _unsent_fallbacks() -> list[Opening]:
    """Return an alert for each project with jobs whose other way no housekeeper could read."""
    found: dict[str, Opening] = {}
    for rows in _late_fallbacks():
        for project, counted in count_by_project(rows).items():
            message = f"{jobs_wait(counted, project)} though a fallback is due: {NOBODY_READS}"
            found.setdefault(project, _opening("fallback", project, counted, message))
    return list(found.values())


def _left_lapsed() -> list[Opening]:
    """Return an alert for each project with running jobs whose executor is gone and that no housekeeper takes back."""
    late = Now() - LAPSED_LATE
    if not Executor.objects.filter(alive(), started_at__lt=late).exists():  # they take back what they can first
        return []
    lapsed = Job.objects.filter(status__in=RUNNING, lease_expires_at__lt=late)
    why = f"though the executor is gone: {NOBODY_READS}, and tell whether the job may run again"
    return [
        _opening("lapsed", project, counted, f"{jobs_wait(counted, project)} {why}")
        for project, counted in count_by_project(lapsed).items()
    ]


def _opening(cause: str, project: str, counted: Counted, message: str) -> Opening:
    figures = {"jobs": counted.count, "projects": [project], "cause": cause}
    subject = f"{cause}/{project}"[:MAX_ID_LENGTH]
    return Opening(QuotaAlert.Kind.UNSERVED, subject, QuotaAlert.Severity.WARNING, message, figures)


def _late_fallbacks() -> Iterator[QuerySet[Job]]:
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
