"""How users stand in the current month."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from queueops.core.sql import plain_array, run_sql
from ratelimits.errors import NoAllowance

from .month_end import month_end


@dataclass(frozen=True, slots=True)
class MonthStanding:
    """
    One user's current month, in the allowance's unit.

    Attributes:
        month: YYYY-MM, by the database's clock, in the allowance's zone.
        remaining: The quota less use and reservations; never below 0.
        resets_at: When the next month begins.
    """

    user_id: UUID
    unit: str
    policy: str
    month: str
    quota: int
    used: int
    reserved: int
    overage: int
    remaining: int
    resets_at: datetime


def standing(project_id: str, user_id: UUID) -> MonthStanding:
    """
    Return how a user stands in the current month. Adds no row for a user who has used nothing.

    Raises:
        NoAllowance.
    """
    return standings(project_id, [user_id])[0]


def standings(project_id: str, user_ids: Collection[UUID]) -> list[MonthStanding]:
    """
    Return how several users stand, in their order; name each user once. See `standing`.

    Raises:
        NoAllowance.
    """
    rows = run_sql("ratelimits", "read_standings", {"project_id": project_id, "user_ids": plain_array([*user_ids])})
    if user_ids and not rows:
        raise NoAllowance
    found = {
        user_id: MonthStanding(
            user_id=user_id,
            unit=unit,
            policy=policy,
            month=month,
            quota=quota,
            used=used,
            reserved=reserved,
            overage=max(0, used - quota),
            remaining=max(0, quota - used - reserved),
            resets_at=month_end(month, zone),
        )
        for user_id, unit, policy, zone, month, quota, used, reserved in rows
    }
    return [found[user_id] for user_id in user_ids]
