"""Reserving a part of a user's monthly quota before a call."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from django.db import IntegrityError, transaction

from queueops.audit import trail
from queueops.core.errors import IdempotencyKeyReused
from queueops.core.sql import run_sql
from queueops.tenancy.moves import refuse_writes
from ratelimits.errors import NoAllowance, QuotaExceeded

from .models import new_reservation_id
from .month_end import month_end


@dataclass(frozen=True, slots=True)
class Reserved:
    """
    Attributes:
        month: The month, YYYY-MM, in which the reservation counts, whenever it is used.
        remaining: The rest of the month's quota just after reserving; never below 0.
        over_limit: The reservation exceeds the quota, and the policy allows that.
        replayed: The idempotency key was used before; this is the reservation it got then.
    """

    reservation_id: UUID
    user_id: UUID
    month: str
    amount: int
    expires_at: datetime
    remaining: int
    resets_at: datetime
    over_limit: bool
    replayed: bool


def reserve(
    *, project_id: str, user_id: UUID, amount: int, idempotency_key: str | None = None, actor: str = ""
) -> Reserved:
    """
    Reserve an amount of the user's current month until it is confirmed by an event, cancelled, or expires.

    Under the strict policy a reservation is refused if use and all reservations together would then exceed the quota.
    The same key returns the same reservation again, even if the reservation has ended.

    Args:
        amount: At least 1, in the allowance's unit.
        actor: The operator whom the audit trail names if a new reservation is made; empty: no entry.

    Raises:
        NoAllowance, QuotaExceeded, ProjectMoving, ProjectMoved: Nothing was reserved.
        IdempotencyKeyReused: The key's reservation has another user or amount.
    """
    with transaction.atomic() if actor else nullcontext():
        rows = _reserve(project_id, user_id, amount, idempotency_key)
        if not rows:
            refuse_writes(project_id)
            raise NoAllowance
        [(reservation_id, owner, month, held, expires_at, remaining, replayed, zone, quota)] = rows
        if actor and reservation_id is not None and not replayed:
            trail.record(
                actor=actor,
                action="reserve_usage",
                target=f"reservation {reservation_id}",
                after={"user_id": user_id, "month": month, "amount": amount},
                project_id=project_id,
            )
    # Outside the transaction above, so that the refusal's count is committed before the refusal is raised.
    if reservation_id is None:
        raise _refusal(project_id, user_id, amount, month=month, zone=zone, quota=quota)
    if (owner, held) != (user_id, amount):
        raise _key_reused(idempotency_key)
    return Reserved(
        reservation_id=reservation_id,
        user_id=owner,
        month=month,
        amount=held,
        expires_at=expires_at,
        remaining=max(0, remaining),
        resets_at=month_end(month, zone),
        over_limit=remaining < 0,
        replayed=replayed,
    )


def _reserve(project_id: str, user_id: UUID, amount: int, key: str | None) -> list[tuple[Any, ...]]:
    asked = {
        "project_id": project_id,
        "user_id": user_id,
        "amount": amount,
        "idempotency_key": key,
        "id": new_reservation_id(),
    }
    if key is None:
        return run_sql("ratelimits", "reserve_usage", asked)
    for _ in range(2):
        try:
            with transaction.atomic():
                return run_sql("ratelimits", "reserve_usage", asked)
        except IntegrityError:  # the key has a reservation meanwhile, which the next round reads
            continue
    raise _key_reused(key)  # the key was used by another user, whose rows this caller may not see


def _key_reused(key: str | None) -> IdempotencyKeyReused:
    return IdempotencyKeyReused("This idempotency key was used for another reservation.", idempotency_key=key)


def _refusal(project_id: str, user_id: UUID, amount: int, *, month: str, zone: str, quota: int) -> QuotaExceeded:
    counted = {"project_id": project_id, "user_id": user_id, "month_year": month, "quota": quota}
    [(left,)] = run_sql("ratelimits", "count_refusal", counted)
    # Room may have been freed since, but a client that is refused must not be told that there is enough.
    remaining = max(0, min(left, amount - 1))
    return QuotaExceeded(remaining=remaining, resets_at=month_end(month, zone), quota=quota)
