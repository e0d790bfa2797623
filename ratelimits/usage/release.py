"""Ending reservations: each ends once, and the same transaction subtracts what it held from the user's month."""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NamedTuple
from uuid import UUID

from django.db import transaction

from queueops.audit import trail
from queueops.core.sql import plain_array, run_sql, text_array
from queueops.tenancy.moves import refuse_writes
from ratelimits.errors import NoAllowance, UnknownReservation
from ratelimits.models import UsageReservation

from .months import MonthChange, MonthKey, change_months
from .standings import standing

Status = UsageReservation.Status

EXPIRED_AT_ONCE = 1000
BROKEN_NAMED = 10

logger = logging.getLogger(__name__)


class Ended(NamedTuple):
    """A reservation that was active until now."""

    id: UUID
    month: MonthKey
    amount: int


@dataclass(frozen=True, slots=True)
class Cancelled:
    """
    Attributes:
        status: The reservation's status now: cancelled, or the status with which it ended before.
        released: Whether this call gave back what the reservation held.
        remaining, resets_at: The rest of the user's current month, and when it ends; None: the project has no
            allowance any more.
    """

    reservation_id: UUID
    status: str
    released: bool
    remaining: int | None
    resets_at: datetime | None


@transaction.atomic
def cancel(
    reservation_id: UUID, *, project_id: str, only_user: UUID | None = None, actor: str = "", reason: str = ""
) -> Cancelled:
    """
    Give back what a reservation holds. A reservation that ended before stays as it is.

    Args:
        only_user: The user whose reservation it must be; None: any user of the project.
        actor: The operator whom the audit trail names if this call ends the reservation; empty: no entry.

    Raises:
        UnknownReservation: No reservation has that id, project and user.
        ProjectMoving, ProjectMoved: Nothing was given back.
    """
    refuse_writes(project_id)
    ended = end_reservations([(reservation_id, only_user)], project_id=project_id, status=Status.CANCELLED)
    give_back(ended)
    if actor:
        _record(ended, actor=actor, reason=reason)
    found = UsageReservation.objects.filter(pk=reservation_id, project_id=project_id)
    if only_user is not None:
        found = found.filter(user_id=only_user)
    reservation = found.values_list("status", "user_id").first()
    if reservation is None:
        raise UnknownReservation
    status, user_id = reservation
    try:
        now = standing(project_id, user_id)
    except NoAllowance:
        return Cancelled(reservation_id, status, bool(ended), None, None)
    return Cancelled(reservation_id, status, bool(ended), now.remaining, now.resets_at)


def expire_reservations(*, rounds: int = 10) -> int:
    """
    End active reservations whose time is over, EXPIRED_AT_ONCE in a transaction; the rest is for the next sweep.

    If a month holds less than its reservations do, these stay active until the ledger is repaired.

    Returns:
        How many were ended.
    """
    total = 0
    broken: set[MonthKey] = set()
    for _ in range(rounds):
        with transaction.atomic():
            rows = _expire(broken)
            ended = _ended(one for *one, was_ended in rows if was_ended)
            give_back(ended, expired=True)
        broken.update((project, user, month) for _, project, user, month, _, was_ended in rows if not was_ended)
        total += len(ended)
        if len(rows) < EXPIRED_AT_ONCE:
            break
    if broken:
        named = sorted(broken)[:BROKEN_NAMED]
        logger.error(
            "reservations of %d users' months cannot expire, because the months hold less than they do: %s%s;"
            " look with manage.py check_ledger, mend with --repair",
            len(broken),
            ", ".join(f"project {project} user {user} month {month}" for project, user, month in named),
            " ..." if len(broken) > len(named) else "",
        )
    return total


def _expire(left_alone: Collection[MonthKey]) -> list[tuple[Any, ...]]:
    parameters = {
        "most": EXPIRED_AT_ONCE,
        "project_ids": text_array([project for project, _, _ in left_alone]),
        "user_ids": plain_array([user for _, user, _ in left_alone]),
        "months": plain_array([month for _, _, month in left_alone]),
    }
    return run_sql("ratelimits", "expire_reservations", parameters)


def end_reservations(
    named: Sequence[tuple[UUID, UUID | None]], *, project_id: str, status: UsageReservation.Status
) -> list[Ended]:
    """
    End the active ones among the named reservations. The caller still has to give back what they held.

    Args:
        named: The ids, each once, with the user whose reservation it must be; None: any user.
    """
    given = {
        "project_id": project_id,
        "status": status.value,
        "ids": plain_array([reservation for reservation, _ in named]),
        "user_ids": plain_array([user for _, user in named]),
    }
    return _ended(run_sql("ratelimits", "end_reservations", given))


def give_back(ended: Sequence[Ended], *, expired: bool = False) -> None:
    """Subtract what ended reservations held from their users' months. Call this in the transaction that ended them."""
    changes: dict[MonthKey, MonthChange] = {}
    for one in ended:
        change = changes.setdefault(one.month, MonthChange())
        change.released += one.amount
        change.expired += expired
    change_months(changes)


def _record(cancelled: Sequence[Ended], *, actor: str, reason: str) -> None:
    for one in cancelled:
        project, user, month = one.month
        trail.record(
            actor=actor,
            action="cancel_reservation",
            target=f"reservation {one.id}",
            before={"user_id": user, "month": month, "amount": one.amount},
            reason=reason,
            project_id=project,
        )


def _ended(rows: Iterable[Sequence[Any]]) -> list[Ended]:
    return [Ended(one, (project, user, month), amount) for one, project, user, month, amount in rows]
