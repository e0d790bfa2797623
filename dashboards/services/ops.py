"""Everything that the operators' dashboard shows, in a bounded number of bounded reads."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from dashboards.services.shared.wire import iso
from jobs.features.watches.paused import ShownPause
from jobs.models import Executor, PauseSwitch
from jobs.services.claim.ready import oldest_of_busiest
from jobs.services.operate.pauses import OPERATORS
from jobs.services.upkeep.health import Finding, health_of
from jobs.states import JobState
from queueops.core.clock import database_now

from .alerts import alert_row
from .batches import batch_rows
from .feed import newest_events
from .limits import limits_made
from .objectives import objective_rows
from .overview import Overview, address_of, read_overview
from .tiles import tiles

MAX_PAUSES_SHOWN = 6


def ops_snapshot() -> dict[str, Any]:
    """
    Return the whole dashboard as JSON values; see docs/reference/live-protocol.md for its parts.

    It reads without locks and in several statements, so two parts may be a moment apart. It is the same for everybody
    who may see it; it does not say what a person may do.
    """
    overview = read_overview()
    [verdict, *others] = [_finding(one) for one in overview.findings]
    objectives, more_objectives = objective_rows()
    return {
        "at": iso(datetime.fromtimestamp(database_now(), UTC)),
        "health": {**verdict, "also": others},
        "pauses": [_pause(one) for one in overview.paused[:MAX_PAUSES_SHOWN]],
        "ramp": overview.ramp
        and {"percent": overview.ramp.percent, "is_held": overview.ramp.is_held, "ends_at": iso(overview.ramp.ends_at)},
        "tiles": tiles(
            overview.apart, letters=overview.letters, oldest=_oldest(overview), scheduled=overview.scheduled
        ),
        "limits": overview.limits,
        "has_limits": bool(overview.limits) or limits_made(),
        "batches": batch_rows(),
        "objectives": objectives,
        "more_objectives": more_objectives,
        "alerts": [alert_row(alert, overview.people, overview.silences) for alert in overview.alerts],
        "executors": [_executor(one) for one in overview.executors],
        "feed": newest_events(),
    }


def _oldest(overview: Overview) -> datetime | None:
    return oldest_of_busiest({project: counts[JobState.QUEUED] for project, counts in overview.by_project.items()})


def _pause(one: ShownPause) -> dict[str, Any]:
    return {
        "id": one.switch.pk,
        "name": "everything" if one.switch.scope == PauseSwitch.Scope.GLOBAL else one.name,
        "is_everything": one.switch.scope == PauseSwitch.Scope.GLOBAL,
        "may_end": one.switch.scope in OPERATORS and one.switch.window_id is None,  # the platform ends the others
        "waiting": one.waiting,
    }


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
    return {
        "tone": one.tone,
        "text": one.text,
        "cause": one.cause,
        "begins_at": iso(one.begins_at),
        "until": iso(one.until),
        "change": one.change,
        "href": address_of(one),
    }
