"""The data of the front pages for one project alone, without anything of other projects."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from django.db.models import QuerySet

from jobs.features.outages.outages import count_held
from jobs.features.watches.failing import troubled_services
from jobs.features.watches.paused import ShownPause, shown_pauses
from jobs.models import Executor, PauseSwitch, ServiceBreaker
from jobs.services.explain.snapshots import project_counts
from jobs.services.upkeep.has_work import calls_service, is_held_by
from jobs.services.upkeep.health import Finding, Situation, findings, health_of, open_letters
from queueops.tenancy.people import names_of
from ratelimits.alerts.silences import silence_of
from ratelimits.limits.ramps import ramp_now
from ratelimits.models import AlertSilence, QuotaAlert

from .limits import limits_now
from .overview import MAX_EXECUTORS, MAX_PAUSES, MAX_SILENT, Counts

MAX_ALERTS_READ = 500  # a project's alerts are searched among so many of the newest open ones
EVERYONE = "*"  # the key of a limit that counts everyone together
# The messages of these alerts name nothing but services and numbers.
NAMES_NOBODY = frozenset({QuotaAlert.Kind.OUTAGE, QuotaAlert.Kind.FAILING})


@dataclass(frozen=True, slots=True)
class ProjectOverview:
    """
    Attributes:
        counts: The project's jobs by state.
        findings: Findings about the project's jobs, the gravest first; never empty.
        paused: The pauses that cover jobs of the project.
        silent: The open breakers of the project.
    """

    counts: Counts
    findings: Sequence[Finding]
    paused: Sequence[ShownPause]
    silent: Sequence[ServiceBreaker]


def read_project(project_id: str) -> ProjectOverview:
    """Read a project's overview, without locks and in bounded statements. It shows nothing of another project."""
    counts = project_counts(project_id)
    paused = _pauses_of(project_id, counts)
    silent = list(_breakers_of(project_id)[:MAX_SILENT])
    _, held_back = limits_now()
    silences = list(AlertSilence.objects.standing())
    found = findings(
        Situation(
            counts=counts,
            executors=[health_of(one) for one in Executor.objects.order_by("host", "pid")[:MAX_EXECUTORS]],
            pauses=paused,
            silent=silent,
            held_by_outages=count_held(project_id),
            failing=[one for one in troubled_services() if calls_service(project_id, one.service)],
            alerts=[
                one
                for one in alerts_of(project_id)
                if one.acknowledged_at is None and not silence_of(one, silences) and may_read(one, project_id)
            ],
            held_back=[one for one in held_back if counts_project(one.key, project_id)],
            letters=open_letters(project_id),
            ramp=ramp_now(),
        )
    )
    return ProjectOverview(counts, found, paused, silent)


def alerts_of(project_id: str) -> list[QuotaAlert]:
    """
    Return open alerts about the project or the whole installation, newest first, among the MAX_ALERTS_READ newest.
    """
    rows = QuotaAlert.objects.filter(resolved_at=None).order_by("-opened_at", "-pk")[:MAX_ALERTS_READ]
    return [alert for alert in rows if not alert.projects or project_id in alert.projects]


def may_read(alert: QuotaAlert, project_id: str) -> bool:
    """Whether an alert's message is about this project alone, or names no project's work."""
    if alert.projects:
        return alert.projects == {project_id} or alert.kind in NAMES_NOBODY
    counts = alert.subject.partition(":")[2]
    return alert.kind in NAMES_NOBODY or (alert.limit_id is not None and counts_project(counts, project_id))


def counts_project(key: str, project_id: str) -> bool:
    """Whether a counter's key counts everyone together, or the project."""
    return f"{key}/".startswith((f"{EVERYONE}/", f"project:{project_id}/"))


def _breakers_of(project_id: str) -> QuerySet[ServiceBreaker]:
    return ServiceBreaker.objects.filter(project_id=project_id, opened_at__isnull=False).order_by("opened_at", "pk")


def _pauses_of(project_id: str, counts: dict[str, int]) -> list[ShownPause]:
    """Return the pauses of the project, and the others that cover waiting jobs of it."""
    switches = list(PauseSwitch.objects.order_by("created_at")[:MAX_PAUSES])
    shown = shown_pauses(switches, {project_id: counts}, names_of(one.paused_by for one in switches))
    return [
        one for one in shown if one.project == project_id or (not one.project and is_held_by(one.switch, project_id))
    ]
