"""The bodies and query parameters of budgets and of spend."""

from __future__ import annotations

from datetime import UTC, date, datetime
from typing import Annotated, Any
from uuid import UUID

from pydantic import ConfigDict, Field, StringConstraints, ValidationInfo, field_validator

from queueops.rest.inputs import Input, as_changes
from ratelimits.api.inputs import Reason
from ratelimits.models import Budget, BudgetScope
from ratelimits.money.models import MAX_MONEY
from ratelimits.money.reports import MAX_REPORT_DAYS, Grouping


class NewBudget(Input):
    """Whose money it is, and how much; amounts in millionths of the currency."""

    name: Annotated[str, StringConstraints(min_length=1, max_length=100)]
    amount: Annotated[int, Field(strict=True, ge=0, le=MAX_MONEY)]
    policy: Budget.Policy = Budget.Policy.WAIT
    note: Reason = ""
    scope: BudgetScope = BudgetScope.PROJECT
    user_id: UUID | None = Field(default=None, description="Of scope `user`: who.")
    batch_id: UUID | None = Field(default=None, description="Of scope `batch`: which.")
    period: Budget.Period = Budget.Period.MONTH
    time_zone: Annotated[str, StringConstraints(max_length=64)] = Field(
        default="UTC", description="Where a day or month begins at midnight."
    )
    reason: Reason = Field(default="", description="For the audit trail.")

    def figures(self) -> dict[str, Any]:
        """The figures that were given, by the names of the budget's fields."""
        return self.model_dump(exclude_unset=True, exclude={"reason"})


class ChangeBudget(NewBudget):
    """
    Changes to a budget. A field that is left out stays as it is.

    Scope, user, batch, period and time zone cannot be changed.
    """

    model_config = ConfigDict(json_schema_extra=as_changes)

    name: Annotated[str, StringConstraints(min_length=1, max_length=100)] = ""
    amount: Annotated[int, Field(strict=True, ge=0, le=MAX_MONEY)] = 0


class SpendAsked(Input):
    """Query parameters of a report of spend."""

    group_by: Grouping = Field(default="day", description="By default day.")
    first: date = Field(
        default_factory=lambda: datetime.now(UTC).date(), alias="from", description="By default today, in UTC."
    )
    last: date = Field(
        default_factory=lambda: datetime.now(UTC).date(),
        alias="to",
        description="Included. By default today, in UTC.",
        validate_default=True,
    )

    @field_validator("last")
    @classmethod
    def _is_a_span(cls, last: date, given: ValidationInfo) -> date:
        first = given.data.get("first")  # absent if invalid, which is reported already
        if first is not None and not 0 <= (last - first).days <= MAX_REPORT_DAYS:
            raise ValueError(f"must not be before from, nor more than {MAX_REPORT_DAYS} days after")
        return last
