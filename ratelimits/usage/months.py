"""Changing users' months: reported use and all releases are counted through `change_months`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple
from uuid import UUID

from queueops.core.sql import plain_array, run_sql, text_array

MonthKey = tuple[str, UUID, str]  # project, user, YYYY-MM


@dataclass(slots=True)
class MonthChange:
    """
    The change of one month by one transaction.

    Attributes:
        used: How much to add to the use.
        released: How much to take from what is reserved, for reservations that this transaction has ended.
        expired: How many of these reservations nobody confirmed in time.
    """

    used: int = 0
    released: int = 0
    expired: int = 0


class MonthState(NamedTuple):
    """A month after the change."""

    quota: int
    used: int
    reserved: int


def change_months(changes: Mapping[MonthKey, MonthChange]) -> dict[MonthKey, MonthState]:
    """Change months in one statement, which locks them in one order; returns their new states."""
    if not changes:
        return {}
    parameters = {
        "project_ids": text_array([project for project, _, _ in changes]),
        "user_ids": plain_array([user for _, user, _ in changes]),
        "months": plain_array([month for _, _, month in changes]),
        "used": plain_array([change.used for change in changes.values()]),
        "released": plain_array([change.released for change in changes.values()]),
        "expired": plain_array([change.expired for change in changes.values()]),
    }
    rows = run_sql("ratelimits", "change_usage_months", parameters)
    return {(project, user, month): MonthState(*state) for project, user, month, *state in rows}
