"""The pages of a limit and of a counter: who used it, and how other figures would have worked."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NamedTuple

from queueops.core.values.numbers import numbered
from queueops.screens.formatting import NOTHING, duration
from queueops.tenancy.user_labels import in_words
from ratelimits.costs import PER_CALL
from ratelimits.limiter.view.gauges import Used, top_users
from ratelimits.models import Limit
from ratelimits.tuning.simulate import SimulatedOutcome, Simulation


class Compared(NamedTuple):
    """One line of the comparison; `tone` is the CSS class of a proposed figure that is better or worse."""

    what: str
    today: str
    proposed: str
    tone: str = ""


def simulation_rows(simulation: Simulation) -> list[Compared]:
    before, after = simulation.today, simulation.proposed
    return [
        Compared("Calls that would have waited", *_counts(before.delayed, after.delayed)),
        Compared("Waited in all", *_times(before.total_wait_seconds, after.total_wait_seconds)),
        Compared("95 of 100 calls waited at most", *_times(before.p95_wait_seconds, after.p95_wait_seconds)),
        Compared("Longest wait of a call", *_times(before.longest_wait_seconds, after.longest_wait_seconds)),
        Compared("Could never fit", *_counts(before.rejected, after.rejected)),
        Compared("Would still wait now", *_counts(before.unfinished, after.unfinished)),
        Compared("Used of the cap by the busiest key", _share(before), _share(after)),
    ]


def users_of(limit: Limit, key: str | None = None) -> dict[str, Any]:
    """Return the data for the template that lists the top users and kinds."""
    top = top_users(limit, key)
    most = max((one.amount for one in (*top.users, *top.kinds)), default=0.0)
    called = in_words(one.name for one in top.users)
    return {
        "top_users": [_used(replace(one, name=called[one.name]), most, limit) for one in top.users],
        "top_kinds": [_used(one, most, limit) for one in top.kinds],
        "top_is_partial": top.partial,
    }


def _used(one: Used, most: float, limit: Limit) -> dict[str, Any]:
    calls = [numbered(one.calls, "call")] if one.calls else []
    tokens = [] if limit.unit in PER_CALL else [f"{one.amount:,.0f} {limit.get_unit_display()}"]
    percent = round(100 * one.amount / most, 1) if most else 0.0
    return {"name": one.name, "used": ", ".join(calls + tokens), "percent": percent}


def _counts(before: int, after: int) -> tuple[str, str, str]:
    return f"{before:,}", f"{after:,}", _tone(before, after)


def _times(before: float, after: float) -> tuple[str, str, str]:
    return _duration(before), _duration(after), _tone(before, after)


def _duration(seconds: float) -> str:
    return duration(seconds) if seconds else "no time"


def _tone(before: float, after: float) -> str:
    return "" if before == after else "qo-good" if after < before else "qo-bad"


def _share(outcome: SimulatedOutcome) -> str:
    if outcome.utilisation_percent is None:
        return NOTHING
    return f"{outcome.utilisation_percent:.0f} % ({outcome.busiest_key})"
