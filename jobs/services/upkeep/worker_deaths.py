"""
Alerts about workers that died with jobs under way. The cluster's other workers notice a death within seconds.

Their jobs come back when their leases lapse, and a job that has brought down its process three times is buried. Until
then, each crash also ends the attempts of the jobs beside it, so an alert opens at the first crash.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, NamedTuple
from uuid import UUID

from django.conf import settings
from django.db import connection, transaction
from django.db.models import QuerySet
from django.utils import timezone

from jobs.models import Executor, Job
from jobs.states import RUNNING
from queueops.core.processes.pulses import Pulse, Pulses
from queueops.core.sql import run_sql
from queueops.core.values.numbers import numbered
from ratelimits.alerts.alerts import Opening, open_all, reconcile
from ratelimits.models import QuotaAlert
from ratelimits.subjects import MAX_ID_LENGTH

logger = logging.getLogger(__name__)

Kind, Severity = QuotaAlert.Kind, QuotaAlert.Severity

COUNTED = timedelta(hours=1)  # deaths within this time count against a kind
TOLD_FOR = timedelta(minutes=10)  # an alert stays open so long after the last death
KILLED_TWICE = 2
MAX_PROJECTS_NAMED = 20


class _Carried(NamedTuple):
    id: UUID
    project_id: str
    kind: str
    crash_count: int


@dataclass(frozen=True, slots=True)
class _Death:
    """
    Attributes:
        suspect: The job that most likely brought the process down; None: nobody can tell which.
        kind: The kind of the suspect, or of all jobs that the worker carried; empty: their kinds differ.
    """

    carried: Sequence[_Carried]
    suspect: _Carried | None
    kind: str
    why: str

    @property
    def words(self) -> str:
        if self.suspect:
            return f"suspect: job {self.suspect.id} ({self.kind}, project {self.suspect.project_id}), {self.why}"
        kinds = Counter(job.kind for job in self.carried)
        return "no job is suspected more than another: " + ", ".join(
            f"{count:,} of {kind}" for kind, count in kinds.most_common(5)
        )

    @property
    def projects(self) -> list[str]:
        if self.suspect:
            return [self.suspect.project_id]
        return sorted({job.project_id for job in self.carried})[:MAX_PROJECTS_NAMED]


def tell_worker_deaths(pulses: Pulses) -> int:
    """
    Report workers of this cluster that died: in the events of their jobs, in the log and by an alert.

    Signs of life show a death before a lease lapses. When several workers notice, one reports it. While no worker is
    dead, only shared memory is read.

    Returns:
        How many deaths this call reported.
    """
    gone = [pulse for pulse in pulses.read() if not pulse.is_alive]
    told = sum(tell_death(pulse) for pulse in gone)
    for pulse in gone:
        pulses.forget(pulse)
    return told


@transaction.atomic
def tell_death(pulse: Pulse) -> bool:
    """Report a dead worker and delete its row, unless another process has; return whether it was reported."""
    # The process that deletes the row reports the death. Without a row the jobs are charged a crash, as after any death
    # in a living cluster.
    executor = Executor.objects.filter(pk=pulse.owner).first()
    if executor is None or not Executor.objects.filter(pk=pulse.owner).delete()[0]:
        return False
    rows = Job.objects.filter(executor=pulse.owner, status__in=RUNNING).order_by("-fencing_token", "id")
    carried = [_Carried(*row) for row in rows.values_list(*_Carried._fields)]
    if not carried:
        logger.warning("worker %s is gone; it carried no job", executor)
        return False
    death = _suspected(carried, pulse.at_work)
    count = numbered(len(carried), "job")
    logger.error("worker %s died carrying %s; %s", executor, count, death.words)
    # A job's log may say of another project's job only that it exists.
    parameters = {
        "executor": pulse.owner,
        "carried": len(carried),
        "suspect": death.suspect.id if death.suspect else None,
        "of_suspect": f"its worker died carrying {count}, and it is the suspect: {death.why}",
        "of_others": f"its worker died carrying {count}{'; another of them is the suspect' if death.suspect else ''}",
    }
    run_sql("jobs", "log_worker_death", parameters)
    _open(executor, death)
    return True


def _suspected(carried: Sequence[_Carried], at_work: UUID | None) -> _Death:
    running = next((job for job in carried if job.id == at_work), None)
    crashed = [job for job in carried if job.crash_count]
    kinds = {job.kind for job in carried}
    kind = next(iter(kinds)) if len(kinds) == 1 else ""
    if running:
        return _Death(carried, running, running.kind, "whose handler was at work")
    if len(carried) == 1:
        return _Death(carried, carried[0], kind, "the only one")
    if len(crashed) == 1:
        return _Death(carried, crashed[0], crashed[0].kind, "which has crashed before")
    return _Death(carried, None, kind, "")


def _open(executor: Executor, death: _Death) -> None:
    subject = (death.kind or str(executor.pk))[:MAX_ID_LENGTH]
    with connection.cursor() as cursor:  # otherwise, of two deaths at once, each would be counted without the other
        cursor.execute("SELECT pg_advisory_xact_lock(hashtextextended('queueops worker deaths', 0))")
    now = timezone.now()
    deaths = [*_deaths_of(subject, since=now - COUNTED), {"at": now.isoformat(), "carried": len(death.carried)}]
    lease = settings.QUEUEOPS.lease_seconds
    back = f"Its jobs come back when their leases lapse, within {lease:.0f} s"
    count = numbered(len(death.carried), "job")
    if death.kind and len(deaths) >= KILLED_TWICE:
        severity = Severity.CRITICAL
        message = (
            f"{len(deaths)} workers died within the hour while they carried {death.kind}, the last with {count}; "
            f"{death.words}. Pause the kind: each death takes along what runs beside it"
        )
    else:
        severity = Severity.NOTICE
        message = f"Worker {executor} died carrying {count}; {death.words}. {back}"
    figures = {"deaths": deaths, "carried": len(death.carried), "kind": death.kind, "projects": death.projects}
    killed = _told_killed(subject=str(executor.pk)).first()
    if killed is None or severity == Severity.CRITICAL:
        open_all([Opening(Kind.WORKER_DIED, subject, severity, message, figures)])
    else:  # an alert reports it as stuck already; its death still counts
        QuotaAlert.objects.filter(pk=killed.pk).update(figures={**killed.figures, **figures})


def _told_killed(**fields: Any) -> QuerySet[QuotaAlert]:
    return QuotaAlert.objects.filter(kind=Kind.STUCK_EXECUTOR, figures__killed=True, **fields)


def _deaths_of(subject: str, *, since: datetime) -> list[dict[str, Any]]:
    """Return the deaths in a subject's last alerts; an alert that is resolved and opens again goes on counting."""
    told = QuotaAlert.objects.filter(kind=Kind.WORKER_DIED, subject=subject).order_by("-opened_at")[:1]
    killed = _told_killed(figures__kind=subject, opened_at__gt=since).order_by("-opened_at")[:1]
    known = {death["at"]: death for alert in (*killed, *told) for death in alert.figures.get("deaths", [])}
    return [known[at] for at in sorted(known) if datetime.fromisoformat(at) > since]


def watch_worker_deaths() -> None:
    """Resolve the alerts about workers that died, once no further worker has died for a while."""
    calm = timezone.now() - TOLD_FOR
    standing = QuotaAlert.objects.filter(kind=Kind.WORKER_DIED, resolved_at=None).values_list("subject", flat=True)
    reconcile(Kind.WORKER_DIED, [], keep={subject for subject in standing if _deaths_of(subject, since=calm)})
