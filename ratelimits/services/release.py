"""Giving back what reservations hold: each is ended once, and what it held leaves its month in the same transaction."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NamedTuple
from uuid import UUID

from django.db import transaction

from queueops.core.sql import plain_array, run_sql
from ratelimits.models import UsageReservation

from .errors import UnknownReservation
from .standings import standing
from .usage_months import MonthChange, MonthKey, change_months

Status = UsageReservation.Status

EXPIRED_AT_ONCE = 1000


class Ended(NamedTuple):
    """A reservation that was active until now."""

    id: UUID
    month: MonthKey
    amount: int


@dataclass(frozen=True, slots=True)
class Cancelled:
    """
    Attributes:
        status: Of the reservation now: cancelled, or how it had ended before.
        released: This call gave back what it held.
        remaining, resets_at: Of its user's current month, afterwards.
    """

    reservation_id: UUID
    status: str
    released: bool
    remaining: int
    resets_at: datetime


@transaction.atomic
def cancel(reservation_id: UUID, *, project_id: str, only_user: UUID | None = None) -> Cancelled:
    """
    Give back what a reservation holds. One that has ended before stays as it ended.

    Args:
        only_user: Whose reservation it must be; None: anybody's of the project.

    Raises:
        UnknownReservation: There is none of that id, project and user.
    """
    ended = end_reservations([(reservation_id, only_user)], project_id=project_id, status=Status.CANCELLED)
    give_back(ended)
    found = UsageReservation.objects.filter(pk=reservation_id, project_id=project_id)
    if only_user is not None:
        found = found.filter(user_id=only_user)
    reservation = found.values_list("status", "user_id").first()
    if reservation is None:
        raise UnknownReservation
    status, user_id = reservation
    now = standing(project_id, user_id)
    return Cancelled(reservation_id, status, bool(ended), now.remaining, now.resets_at)


def expire_reservations(*, rounds: int = 10) -> int:
    """
    End active reservations whose time is over, EXPIRED_AT_ONCE in a transaction; the rest is for the next sweep.

    Returns:
        How many.
    """
    total = 0
    for _ in range(rounds):
        with transaction.atomic():
            ended = _ended(run_sql("ratelimits", "expire_reservations", {"most": EXPIRED_AT_ONCE}))
            give_back(ended, expired=True)
        total += len(ended)
        if len(ended) < EXPIRED_AT_ONCE:
            break
    return total


def end_reservations(
    named: Sequence[tuple[UUID, UUID | None]], *, project_id: str, status: UsageReservation.Status
) -> list[Ended]:
    """
    End those of the reservations that are active; what they held is still to be given back.

    Args:
        named: Ids, each once, with the user whose it must be; None: anybody's.
    """
    given = {
        "project_id": project_id,
        "status": status.value,
        "ids": plain_array([reservation for reservation, _ in named]),
        "user_ids": plain_array([user for _, user in named]),
    }
    return _ended(run_sql("ratelimits", "end_reservations", given))


def give_back(ended: Sequence[Ended], *, expired: bool = False) -> None:
    """Take from their months what reservations held that were just ended, in the transaction that ended them."""
    changes: dict[MonthKey, MonthChange] = {}
    for one in ended:
        change = changes.setdefault(one.month, MonthChange())
        change.released += one.amount
        change.expired += expired
    change_months(changes)


def _ended(rows: Iterable[tuple[Any, ...]]) -> list[Ended]:
    return [Ended(one, (project, user, month), amount) for one, project, user, month, amount in rows]
