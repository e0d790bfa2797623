"""
The data of both front pages: how many jobs there are, what holds them back, and which workers live.

The dashboard and the admin's first page show the same because both read it here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from django.urls import reverse

from dashboards.services.shared.cache import CachedRead
from dashboards.services.shared.wire import link, list_link
from jobs.features.outages.outages import count_held, open_breakers
from jobs.features.watches.failing import troubled_services
from jobs.features.watches.paused import ShownPause, is_quiet, shown_pauses
from jobs.features.windows.windows import upcoming
from jobs.models import Executor, PauseSwitch, ServiceBreaker
from jobs.services.explain.snapshots import counts_by_project
from jobs.services.operate.scheduled_jobs import Scheduled, count_scheduled
from jobs.services.upkeep.health import (
    Finding,
    OpenLetters,
    Situation,
    findings,
    health_of,
    open_letters,
)
from jobs.states import JobState, told_apart
from queueops.core.clock import database_moment
from queueops.tenancy.people import names_of
from ratelimits.alerts.silences import silence_of
from ratelimits.limits.ramps import ShownRamp, ramp_now
from ratelimits.models import AlertSilence, QuotaAlert

from .alerts import open_alerts
from .limits import limits_now

MAX_EXECUTORS = 40
MAX_PAUSES = 50
MAX_SILENT = 20
SEEN_BEFOREHAND = timedelta(hours=24)
MAX_UPCOMING = 20
WINDOWS_KEPT_SECONDS = 10.0
_LISTS = {
    "executors": "jobs_executor",
    "breakers": "jobs_servicebreaker",
    "pauses": "jobs_pauseswitch",
    "windows": "jobs_maintenancewindow",
    "jobs": "jobs_job",
    "ramp": "ratelimits_resumeramp",
}

Counts = Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Overview:
    """
    Attributes:
        everybody: All jobs by state. `by_project`: the same for each project, with the most unfinished jobs first.
        silent: Open breakers, the oldest first. `held`: how many jobs wait for them to close.
        scheduled: Jobs that wait for their time.
        alerts: Open alerts, the unacknowledged first. `silences`: the silences in force.
        limits: Gauges, as the dashboard shows them.
        people: Names of actors that are accounts, by the actor.
        findings: Findings about the queue's health, the gravest first; never empty.
        ramp: The ramp after a resume of everything; None: every limit is open.
    """

    everybody: Counts
    by_project: Mapping[str, Counts]
    executors: Sequence[Executor]
    paused: Sequence[ShownPause]
    silent: Sequence[ServiceBreaker]
    held: int
    scheduled: Scheduled
    alerts: Sequence[QuotaAlert]
    silences: Sequence[AlertSilence]
    letters: OpenLetters
    limits: Sequence[dict[str, Any]]
    people: Mapping[str, str]
    findings: Sequence[Finding]
    ramp: ShownRamp | None

    @property
    def apart(self) -> Counts:
        """All jobs by the states that people see: those held by an outage or scheduled are counted apart."""
        return told_apart(self.everybody, held_by_outage=self.held, scheduled=self.scheduled.jobs)


def read_overview() -> Overview:
    """Read the overview without locks and in several bounded statements, so two parts may be a moment apart."""
    by_project = counts_by_project()
    everybody = {state.value: sum(counts[state] for counts in by_project.values()) for state in JobState}
    limits, held_back = limits_now()
    executors = list(Executor.objects.order_by("host", "pid")[:MAX_EXECUTORS])
    alerts, silences = open_alerts(), list(AlertSilence.objects.standing().select_related("limit"))
    switches = list(PauseSwitch.objects.order_by("created_at")[:MAX_PAUSES])
    people = names_of([*(alert.acknowledged_by for alert in alerts), *(switch.paused_by for switch in switches)])
    paused = shown_pauses(switches, by_project, people)
    windows = [one for one in switches if one.window_id]
    ramp = ramp_now()
    silent, held, letters = open_breakers(MAX_SILENT), count_held(), open_letters()
    found = findings(
        Situation(
            counts=everybody,
            executors=[health_of(one) for one in executors],
            pauses=paused,
            silent=silent,
            held_by_outages=held,
            failing=troubled_services(),
            alerts=[
                one
                for one in alerts
                if one.acknowledged_at is None and not silence_of(one, silences) and not is_quiet(one, windows)
            ],
            held_back=held_back,
            letters=letters,
            ramp=ramp,
            upcoming=_windows_ahead.get(),
        )
    )
    return Overview(
        everybody=everybody,
        by_project=by_project,
        executors=executors,
        paused=paused,
        silent=silent,
        held=held,
        scheduled=count_scheduled(),
        alerts=alerts,
        silences=silences,
        letters=letters,
        limits=limits,
        people=people,
        findings=found,
        ramp=ramp,
    )


_windows_ahead = CachedRead(
    lambda: upcoming(now=database_moment(), within=SEEN_BEFOREHAND, most=MAX_UPCOMING), seconds=WINDOWS_KEPT_SECONDS
)


def address_of(finding: Finding) -> str:
    """Return the page that shows the subject of a finding."""
    match finding.page:
        case "alert":
            return link("ratelimits_quotaalert", finding.key)
        case "limit":
            return link("ratelimits_limit", finding.key)
        case "batch":
            return link("jobs_batch", finding.key)
        case "dead_letters":
            return reverse("admin:jobs_deadletter_groups")
        case "failing":
            return list_link("jobs_job", service=finding.key)
    return list_link(_LISTS[finding.page])
