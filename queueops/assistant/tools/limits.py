"""Tools that read limits: how much room there is, who uses it, and what another cap would have done."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field

from queueops.assistant.asking import ask
from queueops.assistant.finding import limit_of
from queueops.assistant.showing import ToolAnswer
from queueops.assistant.tool import tool
from queueops.core.values.numbers import numbered
from queueops.rest.inputs import Input
from queueops.tenancy.callers.authentication import Caller
from ratelimits.limiter.view.gauges import top_users
from ratelimits.limits.api.limits import CHANGE, READ, LimitList, SimulateLimit
from ratelimits.models import Limit
from ratelimits.tuning.simulate import MAX_HOURS_PLAYED

from .work import Text

MAX_LIMITS = 50
MAX_USERS = 5
Cap = Annotated[float, Field(gt=0, le=1e12, strict=True)]


class OfLimits(Input):
    service: Text | None = Field(default=None, description="Only those of this service.")


class TriedCap(Input):
    limit: Text = Field(description="Its name or id.")
    capacity: Cap = Field(description="The cap to try, in the limit's unit a window.")
    hours: float = Field(default=1, gt=0, le=MAX_HOURS_PLAYED, description="So many of the last hours are played.")


@tool(READ, OfLimits)
def limits(caller: Caller, given: OfLimits) -> ToolAnswer:
    """
    The limits with their room as it is now: used, available, capacity, when more comes free, cooled down and why. Only
    the counters that count the project or everybody together; with who used them most in the last hour.
    """
    rows = ask(caller, LimitList, query={"service": given.service, "page_size": MAX_LIMITS})["results"]
    by_id = Limit.objects.in_bulk([row["id"] for row in rows])
    for row in rows:
        row["used_most_by"] = _users(by_id[row["id"]], caller) if row["counters"] else []
    return ToolAnswer(f"{numbered(len(rows), 'limit')}.", rows, masks=False)


@tool(CHANGE, TriedCap)
def simulate_cap(caller: Caller, given: TriedCap) -> ToolAnswer:
    """
    Play the last hours' calls through another cap of a limit, beside today's: how many waited and for how long.
    Changes nothing.
    """
    limit = limit_of(given.limit)
    body = {"changes": {"capacity": given.capacity}, "hours": given.hours}
    told = ask(caller, SimulateLimit, "POST", body=body, pk=limit.pk)
    return ToolAnswer(
        f"{numbered(told['calls'], 'call')} of limit {limit.pk} played with both caps.", told, masks=False
    )


def _users(limit: Limit, caller: Caller) -> list[dict[str, Any]]:
    found = top_users(limit, f"project:{caller.project_id}", most=MAX_USERS).users
    return [{"user": one.name, "calls": one.calls, "used": round(one.amount)} for one in found]
