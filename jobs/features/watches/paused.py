"""Describes pauses for people, and opens alerts about pauses that were forgotten."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta

from django.conf import settings
from django.db.models import Q

from jobs.features.batch_guards import guards
from jobs.lanes import service_of
from jobs.models import Batch, Job, MaintenanceWindow, PauseSwitch
from jobs.services.explain.snapshots import Counts, batch_counts, counts_by_project
from jobs.services.operate.epochs import PUT_BACK_REASON
from jobs.services.operate.job_filter import Counted
from jobs.services.operate.pauses import OURS, count_covered
from jobs.states import WAITING
from queueops.core.clock import Now
from queueops.core.values.numbers import numbered
from queueops.tenancy.models import Project, ProjectMove
from queueops.tenancy.people import names_of
from ratelimits.alerts.alerts import Opening, reconcile
from ratelimits.models import QuotaAlert

from .by_project import count_by_project, jobs_wait

WINDOW_LATE = timedelta(minutes=1)  # windows open and close within seconds
MAX_WATCHED = 50  # the oldest pauses
MAX_PROJECTS_OF_A_PAUSE = 100  # alerts for one pause: for the projects with the most waiting jobs

Scope = PauseSwitch.Scope
QUIET = frozenset(  # kinds that tell of work that stands still, or of a provider
    {
        QuotaAlert.Kind.OLDEST_READY,
        QuotaAlert.Kind.LONG_RUNNING,
        QuotaAlert.Kind.OUTAGE,
        QuotaAlert.Kind.FAILING,
        QuotaAlert.Kind.OBJECTIVE,
        QuotaAlert.Kind.SATURATED,
    }
)


@dataclass(frozen=True, slots=True)
class ShownPause:
    """
    A pause switch as people know it.

    Attributes:
        name: `project acme`, `batch Nightly sync`.
        project: The project whose work it holds; empty: work of all projects.
        waiting: Jobs that wait because of it; None: jobs of its scope are not counted.
        by: The name of who paused.
    """

    switch: PauseSwitch
    name: str
    project: str
    waiting: int | None
    by: str


def shown_pauses(
    switches: Sequence[PauseSwitch], by_project: Mapping[str, Counts], people: Mapping[str, str]
) -> list[ShownPause]:
    """
    Say what each switch holds. Only projects and batches have counts of their jobs, so only they tell how many wait.
    """
    ids = [switch.key for switch in switches if switch.scope == Scope.BATCH]
    batches = {str(batch.pk): batch for batch in Batch.objects.filter(pk__in=ids)}
    counts = {str(pk): found for pk, found in batch_counts(batch.pk for batch in batches.values()).items()}
    known: dict[str, Mapping[str, Counts]] = {Scope.PROJECT: by_project, Scope.BATCH: counts}
    found = []
    for switch in switches:
        batch = batches.get(switch.key)
        name = f"batch {batch.name or f'…{switch.key[-8:]}'}" if batch else str(switch)
        project = batch.project_id if batch else switch.key if switch.scope == Scope.PROJECT else ""
        of = known.get(switch.scope, {}).get(switch.key)
        waiting = None if of is None else sum(of[state] for state in WAITING)
        found.append(ShownPause(switch, name, project, waiting, by=people.get(switch.paused_by, switch.paused_by)))
    return found


def by_whom(paused: ShownPause) -> str:
    """Say who paused, and why."""
    if paused.switch.until:
        reason = f" {paused.switch.reason}" if paused.switch.reason else ""
        return f"A maintenance window.{reason}"
    reason = f": {paused.switch.reason}" if paused.switch.reason else ", without a reason given."
    return f"By {paused.by}{reason}"


def is_quiet(alert: QuotaAlert, open_windows: Sequence[PauseSwitch]) -> bool:
    """
    Whether a maintenance window now holds the work that an alert is about. If the alert is still open after the window,
    people are told then.
    """
    return alert.kind in QUIET and any(_holds(switch, alert) for switch in open_windows)


def _holds(switch: PauseSwitch, alert: QuotaAlert) -> bool:
    if switch.scope == Scope.GLOBAL:
        return True
    if switch.scope == Scope.PROJECT:
        return alert.projects == {switch.key}
    if switch.scope == Scope.KIND:
        return alert.kind == QuotaAlert.Kind.LONG_RUNNING and alert.figures.get("cause") == switch.key
    of_limit = alert.limit.service if alert.limit else ""
    of_outage = service_of(alert.subject) if alert.kind == QuotaAlert.Kind.OUTAGE else ""
    return switch.key in (of_limit, alert.subject, of_outage)


def watch_paused() -> None:
    """
    Alert about pauses under which jobs wait for long, or that a restore made. The alert ends with the pause or its last
    job. Also alert about windows that neither open nor close, as nobody knows their time zone.
    """
    minutes = settings.QUEUEOPS.alert_paused_minutes
    is_old = Q(created_at__lt=Now() - timedelta(minutes=minutes))
    old = PauseSwitch.objects.filter(is_old | Q(reason=PUT_BACK_REASON)).filter(window=None).exclude(scope__in=OURS)
    # Another alert tells of a batch that has stopped itself.
    old = old.exclude(scope=Scope.BATCH, paused_by=guards.SYSTEM)
    switches = list(old.order_by("created_at")[:MAX_WATCHED])
    shown = shown_pauses(switches, counts_by_project(), names_of(one.paused_by for one in switches)) if switches else []
    gone = set(Project.objects.filter(move=ProjectMove.MOVED).values_list("pk", flat=True))  # paused here for good
    openings = [opening for one in shown if one.project not in gone for opening in _forgotten(one)]
    late = MaintenanceWindow.objects.filter(next_change_at__lt=Now() - WINDOW_LATE).order_by("next_change_at")
    reconcile(QuotaAlert.Kind.FORGOTTEN, openings + [_stuck(one) for one in late[:MAX_WATCHED] if one.zone_fault])


def _stuck(window: MaintenanceWindow) -> Opening:
    return Opening(
        QuotaAlert.Kind.FORGOTTEN,
        f"window {window.pk}",
        QuotaAlert.Severity.WARNING,
        f"The maintenance window of {window} should have {'closed' if window.switches.exists() else 'opened'} at"
        f" {window.next_change_at:%Y-%m-%d %H:%M} UTC. {window.zone_fault}",
        {"projects": [window.key] if window.scope == MaintenanceWindow.Scope.PROJECT else [], "cause": str(window)},
    )


def _forgotten(paused: ShownPause) -> list[Opening]:
    """One alert for each project whose jobs wait: people who look after one project may not know of the others."""
    switch = paused.switch
    held = Job.objects.filter(status__in=WAITING).exclude(project=PauseSwitch.EXEMPT)
    if switch.scope in (Scope.PROJECT, Scope.BATCH):
        counted = count_covered(switch.scope, switch.key)
        counts = {paused.project: counted} if counted.count else {}
    elif switch.scope == Scope.GLOBAL:
        counts = {project: Counted(count, is_least=False) for project, count in _waiting_by_project().items()}
    else:
        counts = count_by_project(held.filter(**{switch.scope: switch.key}))
    since = f"{switch.created_at:%Y-%m-%d %H:%M} UTC"
    name = "everything" if switch.scope == Scope.GLOBAL else paused.name
    covered = f"{switch.scope} {switch.key}".strip()
    found = []
    for project, counted in list(counts.items())[:MAX_PROJECTS_OF_A_PAUSE]:
        waits = numbered(counted.count, "job waits", "jobs wait", before="at least " * counted.is_least)
        if not paused.project:
            waits = jobs_wait(counted, project)
        found.append(
            Opening(
                QuotaAlert.Kind.FORGOTTEN,
                covered if paused.project else f"{covered}/{project}",
                QuotaAlert.Severity.WARNING,
                f"{name[:1].upper()}{name[1:]} has been paused since {since}; {waits}. {by_whom(paused)}",
                {"jobs": counted.count, "projects": [project] if project else [], "cause": covered},
            )
        )
    return found


def _waiting_by_project() -> dict[str, int]:
    counts = counts_by_project()
    waiting = {
        project: sum(of[state] for state in WAITING) for project, of in counts.items() if project != PauseSwitch.EXEMPT
    }
    return {project: count for project, count in sorted(waiting.items(), key=lambda one: -one[1]) if count}
