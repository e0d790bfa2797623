"""Tools that read what calls cost, and what may be spent."""

from __future__ import annotations

from datetime import date
from typing import Any

from pydantic import Field

from queueops.assistant.asking import ask
from queueops.assistant.showing import ToolAnswer
from queueops.assistant.tool import tool
from queueops.core.values.numbers import numbered
from queueops.rest.inputs import Input
from queueops.tenancy.callers.authentication import Caller
from ratelimits.money.api.budgets import SEE as SEE_BUDGETS
from ratelimits.money.api.budgets import BudgetList
from ratelimits.money.api.spend import SEE, SpendReport
from ratelimits.money.reports import Grouping

MAX_BUDGETS = 200


class OfSpend(Input):
    group_by: Grouping = "day"
    first: date | None = Field(default=None, description="The first day, in UTC. By default today.")
    last: date | None = Field(default=None, description="The last day, included. By default today.")


@tool(SEE, OfSpend)
def spend(caller: Caller, given: OfSpend) -> ToolAnswer:
    """
    The cost of the project's calls, summed by day, user, batch, kind or model, in millionths of the currency.
    `unpriced` calls had no price and are in no sum.
    """
    told = ask(caller, SpendReport, query={"group_by": given.group_by, "from": given.first, "to": given.last})
    return ToolAnswer(
        f"{numbered(len(told['groups']), 'group')}. Money is in millionths of the currency.", told, masks=False
    )


@tool(SEE_BUDGETS)
def budgets(caller: Caller, given: Any) -> ToolAnswer:
    """The project's budgets: spent, held by calls under way, left, in millionths of the currency, and when they end."""
    told = ask(caller, BudgetList, query={"page_size": MAX_BUDGETS})
    return ToolAnswer(f"{numbered(len(told['results']), 'budget')}.", told, masks=False)
