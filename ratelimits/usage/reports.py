"""Reports of users' use of their allowances: month by month, day by day, and the users with the most use."""

from __future__ import annotations

from calendar import monthrange
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from typing import Any
from uuid import UUID
from zoneinfo import ZoneInfo

from django.contrib.postgres.expressions import ArraySubquery
from django.db.models import Case, Count, Exists, F, Func, IntegerField, OuterRef, Q, QuerySet, Sum, When
from django.db.models.functions import TruncDate
from django.utils import timezone

from queueops.core.postgres.zones import zone_of
from ratelimits.models import Allowance, AllowanceOverride, UsageEvent, UsageTracking

from .models import NEAR, PASSED

MAX_USES_SUMMED = 100_000  # summed up for the days of a month
MAX_USERS_READ = 200_000  # of a month; the top users are chosen among these
MAX_USERS_LISTED = 20
MAX_USERS_COUNTED = 10_000  # users of a project; beyond it a page says "more than"
MAX_NEAR = 100_000  # users near their quota, of all projects


@dataclass(frozen=True, slots=True)
class Month:
    """A user's use in one month, in the allowance's unit. `quota` None: the user used nothing, so there is no row."""

    month: str
    quota: int | None = None
    used: int = 0
    reserved: int = 0


@dataclass(frozen=True, slots=True)
class Day:
    """A user's use on one day. `over` is the part of `amount` that came when the quota was used up."""

    day: date
    amount: int = 0
    over: int = 0
    events: int = 0


@dataclass(frozen=True, slots=True)
class Days:
    """
    Attributes:
        corrected: The amount that operators added or took back; it counts on no day.
        partial: There were more than MAX_USES_SUMMED events, and the oldest are left out.
    """

    days: tuple[Day, ...]
    corrected: int
    partial: bool


@dataclass(frozen=True, slots=True)
class TopUsersOfMonth:
    """
    Attributes:
        users: The users with the most use, in order.
        count, used: The sums over all users that were read.
        partial: There were more than MAX_USERS_READ users; the latest are left out.
    """

    users: tuple[UsageTracking, ...]
    count: int
    used: int
    partial: bool


@dataclass(frozen=True, slots=True)
class Users:
    """Users of one project in a month; `users` is at most one above MAX_USERS_COUNTED."""

    month: str
    users: int
    near: int
    over: int


def months_of_user(project_id: str, user_id: UUID, *, until: str, count: int = 12) -> tuple[Month, ...]:
    """Return the last months up to `until`, a `YYYY-MM`, the oldest first."""
    wanted = months_until(until, count)
    rows = UsageTracking.objects.filter(project_id=project_id, user_id=user_id, month_year__in=wanted)
    found = {row.month_year: Month(row.month_year, row.quota, row.used, row.reserved) for row in rows}
    return tuple(found.get(month, Month(month)) for month in wanted)


def days_of_month(project_id: str, user_id: UUID, month: str, zone: ZoneInfo) -> Days:
    """
    Sum up a user's events by the day on which they occurred.

    An event of a reservation counts in the reservation's month. If it occurred before or after that month, it counts on
    the month's first or last day.
    """
    first = date.fromisoformat(f"{month}-01")
    days = [first + timedelta(days=place) for place in range(monthrange(first.year, first.month)[1])]
    rows = UsageEvent.objects.filter(project_id=project_id, user_id=user_id, month_year=month)
    newest, partial = _first(rows, MAX_USES_SUMMED, newest=True)
    by_day = newest.filter(correction=False).values(day=TruncDate("occurred_at", tzinfo=zone))
    found = {day: Day(day) for day in days}
    for row in by_day.annotate(
        sum=Sum("amount"), sum_over=Sum("amount", filter=Q(over_limit=True), default=0), events=Count("pk")
    ):
        day = found[min(max(row["day"], days[0]), days[-1])]
        amount, over, events = int(row["sum"]), int(row["sum_over"]), int(row["events"])
        found[day.day] = Day(day.day, day.amount + amount, day.over + over, day.events + events)
    return Days(
        days=tuple(found.values()),
        corrected=int(newest.filter(correction=True).aggregate(sum=Sum("amount", default=0))["sum"]),
        partial=partial,
    )


def top_users_of_month(project_id: str, month: str, *, most: int = MAX_USERS_LISTED) -> TopUsersOfMonth:
    """Return the users who used the most of a project's allowance in a month."""
    rows = UsageTracking.objects.filter(project_id=project_id, month_year=month)
    read, partial = _first(rows, MAX_USERS_READ)
    summed = read.aggregate(count=Count("pk"), used=Sum("used", default=0))
    return TopUsersOfMonth(
        users=tuple(read.filter(used__gt=0).order_by("-used", "pk")[:most]),
        count=summed["count"],
        used=int(summed["used"]),
        partial=partial,
    )


def months_until(month: str, count: int) -> list[str]:
    """The `count` months up to this one, `YYYY-MM`, the oldest first."""
    year, number = (int(part) for part in month.split("-"))
    last = year * 12 + number - 1
    return [f"{place // 12:04}-{place % 12 + 1:02}" for place in range(last - count + 1, last + 1)]


def current_month(zone: str) -> str:
    """The current month in a zone, `YYYY-MM`."""
    return f"{timezone.now().astimezone(zone_of(zone)):%Y-%m}"


def was_used(project_id: str, month: str) -> bool:
    """Whether anybody has used or reserved any of a project's allowance in a month."""
    return UsageTracking.objects.filter(project_id=project_id, month_year=month).exists()


def users_beyond(project_id: str, month: str, quota: int) -> int:
    """How many users with the project's quota use and reserve more than `quota`; at most MAX_USERS_COUNTED + 1."""
    own = AllowanceOverride.objects.filter(project_id=project_id, user_id=OuterRef("user_id"))
    rows = UsageTracking.objects.filter(project_id=project_id, month_year=month)
    beyond = rows.annotate(taken=F("used") + F("reserved")).filter(~Exists(own), taken__gt=quota).order_by()
    return beyond[: MAX_USERS_COUNTED + 1].count()


def users_of_allowances(allowances: Sequence[Allowance]) -> dict[str, Users]:
    """Count the users of each project's current month, with two statements for each month."""
    by_month: dict[str, list[str]] = {}
    for one in allowances:
        by_month.setdefault(current_month(one.time_zone), []).append(one.pk)
    found: dict[str, Users] = {}
    for month, projects in by_month.items():
        near = _near(month)
        for project_id, users in _some_users(month, projects):
            found[project_id] = Users(month, users, near.get((project_id, False), 0), near.get((project_id, True), 0))
    return found


def _first(rows: QuerySet[Any], most: int, *, newest: bool = False) -> tuple[QuerySet[Any], bool]:
    """Return at most `most` rows, the oldest or the newest by id, and whether there are more."""
    rows = rows.order_by()
    beyond = rows.order_by("-pk" if newest else "pk").values_list("pk", flat=True)[most : most + 1].first()
    if beyond is None:
        return rows, False
    return rows.filter(**{"pk__gt" if newest else "pk__lt": beyond}), True


def _some_users(month: str, projects: Sequence[str]) -> Iterable[tuple[str, int]]:
    rows = UsageTracking.objects.filter(project_id=OuterRef("pk"), month_year=month).order_by()
    count = Func(
        ArraySubquery(rows.values("pk")[: MAX_USERS_COUNTED + 1]), function="cardinality", output_field=IntegerField()
    )
    return Allowance.objects.filter(pk__in=projects).annotate(users=count).values_list("pk", "users")


def _near(month: str) -> dict[tuple[str, bool], int]:
    """Count users near their quota, by project and whether they are over it; reads at most MAX_NEAR of them."""
    read, _ = _first(UsageTracking.objects.filter(month_year=month, level__gte=NEAR), MAX_NEAR)
    over = Case(When(level=PASSED, then=True), default=False)
    counted = read.annotate(over=over).values_list("project_id", "over").annotate(count=Count("pk"))
    return {(project_id, is_over): count for project_id, is_over, count in counted}
