"""Everything the operators' dashboard shows, read at one moment, in a bounded number of bounded reads."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from django.db.models import Sum
from django.urls import reverse

from jobs.models import WHOLE_PROJECT, Executor, JobCount, PauseSwitch
from jobs.services.claim.ready import oldest_ready
from jobs.services.finish.outages import count_held, open_breakers
from jobs.services.upkeep.failing import failing_services
from jobs.services.upkeep.health import Finding, Situation, findings, health_of, open_letters
from jobs.states import JobState
from queueops.core.clock import database_now

from .alerts import alert_row, open_alerts
from .batches import batch_rows
from .feed import newest_events
from .limits import limits_made, limits_now
from .people import names_of
from .tiles import tiles
from .wire import iso, link, list_link

MOST_PROJECTS = 50  # asked for their oldest ready job, those with the most queued first
MOST_EXECUTORS = 40
MOST_PAUSES = 50
MOST_SILENT = 20
_LISTS = {
    "executors": "jobs_executor",
    "breakers": "jobs_servicebreaker",
    "pauses": "jobs_pauseswitch",
    "jobs": "jobs_job",
}


@dataclass(frozen=True, slots=True)
class _Counted:
    everybody: dict[str, int]
    busiest: list[str]


def ops_snapshot() -> dict[str, Any]:
    """
    Return the whole dashboard as JSON values; see docs/reference/live-protocol.md for its parts.

    Reads without locks and in several statements, so two parts may be a moment apart. The same for everybody who
    may see it; what a person may do is not in it.
    """
    counted = _counts()
    limits, held_back = limits_now()
    executors = list(Executor.objects.order_by("host", "pid")[:MOST_EXECUTORS])
    alerts = open_alerts()
    letters = open_letters()
    pauses = list(PauseSwitch.objects.order_by("created_at")[:MOST_PAUSES])
    people = names_of([*(alert.acknowledged_by for alert in alerts), *(switch.paused_by for switch in pauses)])
    held = count_held()
    situation = Situation(
        counts=counted.everybody,
        executors=[health_of(one) for one in executors],
        pauses=pauses,
        silent=open_breakers(MOST_SILENT),
        held_by_outages=held,
        failing=failing_services(),
        alerts=[alert for alert in alerts if alert.acknowledged_at is None],
        held_back=held_back,
        letters=letters,
        people=people,
    )
    oldest = min(oldest_ready(counted.busiest).values(), default=None)
    [verdict, *others] = [_finding(one) for one in findings(situation)]
    return {
        "at": iso(datetime.fromtimestamp(database_now(), UTC)),
        "health": {**verdict, "also": others},
        "tiles": tiles(counted.everybody, letters=letters, oldest=oldest, held=held),
        "limits": limits,
        "has_limits": bool(limits) or limits_made(),
        "batches": batch_rows(),
        "alerts": [alert_row(alert, people) for alert in alerts],
        "executors": [_executor(one) for one in executors],
        "feed": newest_events(),
    }


def _counts() -> _Counted:
    rows = list(
        JobCount.objects.filter(batch_id=WHOLE_PROJECT)
        .values_list("project_id")
        .annotate(*[Sum(state.value) for state in JobState])
        .order_by()
    )
    states = [state.value for state in JobState]
    by_project = {project: dict(zip(states, sums, strict=True)) for project, *sums in rows}
    everybody = {state: sum(counts[state] for counts in by_project.values()) for state in states}
    queued = {project: counts[JobState.QUEUED] for project, counts in by_project.items() if counts[JobState.QUEUED]}
    return _Counted(everybody, sorted(queued, key=lambda project: -queued[project])[:MOST_PROJECTS])


def _executor(executor: Executor) -> dict[str, Any]:
    return {
        "id": str(executor.pk),
        "name": str(executor),
        "role": executor.role,
        "health": health_of(executor),
        "in_flight": executor.in_flight,
        "slots": executor.slots,
        "loop_lag_ms": round(executor.loop_lag_ms, 1),
        "leases_lost": executor.leases_lost,
        "heartbeat_at": iso(executor.heartbeat_at),
        "started_at": iso(executor.started_at),
    }


def _finding(one: Finding) -> dict[str, Any]:
    return {"tone": one.tone, "text": one.text, "cause": one.cause, "until": iso(one.until), "href": _where(one)}


def _where(one: Finding) -> str:
    match one.page:
        case "alert":
            return link("ratelimits_quotaalert", one.key)
        case "limit":
            return link("ratelimits_limit", one.key)
        case "dead_letters":
            return reverse("admin:jobs_deadletter_groups")
        case "failing":
            return list_link("jobs_job", service=one.key)
    return list_link(_LISTS[one.page])
