"""Reports of spend, summed up from the ledger."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, tzinfo
from typing import Any, Literal
from uuid import UUID

from django.db.models import Count, F, Max, Q, QuerySet, Sum
from django.db.models.functions import TruncDate

from ratelimits.costs import Usage
from ratelimits.models import Spend, Via

from .amounts import cost_of
from .prices import price_list

Grouping = Literal["day", "project", "user", "batch", "model"]
GROUPINGS: Sequence[Grouping] = ("day", "project", "user", "batch", "model")
OTHERS: dict[str, Callable[[QuerySet[Spend]], list[SpendGroup] | None]] = {}  # see `also_group`
MAX_GROUPS = 1_000
MAX_REPORT_DAYS = 400


@dataclass(frozen=True, slots=True)
class SpendSum:
    """
    The cost of some calls together.

    Attributes:
        money: The cost of the calls that have a price, in micro-units.
        unpriced: Calls without a price: their cost is not in `money`.
        unknown: Calls whose cost nobody knows. `money` includes the most that they can cost.
        unknown_money: The most that the `unknown` calls can cost.
    """

    calls: int = 0
    money: int = 0
    unpriced: int = 0
    unknown: int = 0
    unknown_money: int = 0
    input_tokens: int = 0
    cached_tokens: int = 0
    output_tokens: int = 0


@dataclass(frozen=True, slots=True)
class SpendGroup:
    """
    One line of a report.

    Attributes:
        key: The day, project, user, batch, or `provider/model`; empty: the calls had none.
        provider, model, via: Only in a group by model.
    """

    key: str
    sum: SpendSum
    provider: str = ""
    model: str = ""
    via: str = ""


def spent_between(first: date, last: date, zone: tzinfo = UTC) -> QuerySet[Spend]:
    """The calls of some whole days, including the last."""
    begins = datetime.combine(first, time.min, zone)
    return Spend.objects.filter(at__gte=begins, at__lte=datetime.combine(last, time.max, zone))


def total(rows: QuerySet[Spend]) -> SpendSum:
    return _sum_of(rows.order_by().aggregate(**_SUMS))


def grouped(rows: QuerySet[Spend], by: Grouping, zone: tzinfo = UTC) -> list[SpendGroup]:
    """Sum up by day, the earliest first; or by something else, the dearest first, at most MAX_GROUPS."""
    rows = rows.order_by()
    if by == "day":
        days = rows.annotate(day=TruncDate("at", tzinfo=zone)).values("day").annotate(**_SUMS).order_by("day")
        return [SpendGroup(str(row["day"]), _sum_of(row)) for row in days]
    if by == "model":
        of_model = rows.values("provider", "model", "via").annotate(**_SUMS).order_by(*_DEAREST, "provider", "model")
        return [
            SpendGroup(f"{row['provider']}/{row['model']}", _sum_of(row), row["provider"], row["model"], row["via"])
            for row in of_model[:MAX_GROUPS]
        ]
    column = {"project": "project_id", "user": "user_id", "batch": "batch_id"}[by]
    return [SpendGroup(str(value or ""), found) for value, found in sums_by(rows, column)]


def sums_by(rows: QuerySet[Spend], column: str) -> list[tuple[Any, SpendSum]]:
    """Sum up by a column or annotation, the dearest first, at most MAX_GROUPS."""
    groups: Any = rows.order_by().values(column).annotate(**_SUMS).order_by(*_DEAREST, column)
    return [(row[column], _sum_of(row)) for row in groups[:MAX_GROUPS]]


def also_group(name: str, groups: Callable[[QuerySet[Spend]], list[SpendGroup] | None]) -> None:
    """
    Have the report in the admin sum up by something that the ledger does not have.

    Args:
        groups: Returns the groups, the dearest first; None: there are too many calls to look at.
    """
    OTHERS[name] = groups


def spent_today_by_project() -> list[tuple[str, str, SpendSum]]:
    """The spend by project and provider since midnight in UTC; at most MAX_GROUPS, the dearest first."""
    today = datetime.now(UTC).date()
    rows = spent_between(today, today).order_by().values("project_id", "provider").annotate(**_SUMS)
    return [(row["project_id"], row["provider"], _sum_of(row)) for row in rows.order_by(*_DEAREST)[:MAX_GROUPS]]


def spent_on_jobs(job_ids: Collection[UUID]) -> dict[UUID, SpendSum]:
    """The cost of each of these jobs, all its calls together; a job without a call in the ledger is left out."""
    rows = Spend.objects.filter(job_id__in=job_ids).order_by().values("job_id").annotate(**_SUMS)
    return {row["job_id"]: _sum_of(row) for row in rows}


def spent_on_batch(batch_id: UUID) -> SpendSum | None:
    """The cost of a batch's jobs; None: the ledger has no call of them."""
    found = total(Spend.objects.filter(batch_id=batch_id))
    return found if found.calls else None


def saved_on_batch(batch_id: UUID) -> int:
    """
    How much more a batch's calls that went by provider batches would have cost live, in micro-units.

    Computed with the live prices for input of ordinary length at the time of a model's last such call. A model without
    such a price adds nothing.
    """
    went = Spend.objects.filter(batch_id=batch_id, via=Via.BATCH, kind=Spend.Kind.CALL, money__isnull=False)
    used = ("input_tokens", "cached_tokens", "written_tokens", "written_1h_tokens", "output_tokens", "requests")
    sums = {f"sum_{name}": Sum(name) for name in used}
    saved = 0
    rows: Any = went.order_by().values("provider", "model").annotate(paid=Sum("money"), last=Max("at"), **sums)
    for row in rows:
        rates = price_list(row["provider"], row["model"]).at(row["last"])
        live = cost_of(Usage(**{name: row[f"sum_{name}"] for name in used}), rates)
        saved += max(0, live - int(row["paid"])) if live is not None else 0
    return saved


_SUMS: dict[str, Any] = {
    "calls": Count("pk"),
    "sum_money": Sum("money", default=0),
    "unpriced": Count("pk", filter=Q(money=None)),
    "unknown": Count("pk", filter=Q(kind=Spend.Kind.UNKNOWN)),
    "sum_unknown": Sum("money", filter=Q(kind=Spend.Kind.UNKNOWN), default=0),
    "sum_input": Sum("input_tokens", default=0),
    "sum_cached": Sum("cached_tokens", default=0),
    "sum_output": Sum("output_tokens", default=0),
}
_DEAREST = (F("sum_money").desc(),)


def _sum_of(row: Mapping[str, Any]) -> SpendSum:
    return SpendSum(
        calls=row["calls"],
        money=int(row["sum_money"]),
        unpriced=row["unpriced"],
        unknown=row["unknown"],
        unknown_money=int(row["sum_unknown"]),
        input_tokens=int(row["sum_input"]),
        cached_tokens=int(row["sum_cached"]),
        output_tokens=int(row["sum_output"]),
    )
