"""Counting what apps have used, each event once however often it is sent."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from uuid import UUID

from django.conf import settings
from django.db import transaction

from queueops.audit import trail
from queueops.core.sql import plain_array, run_sql, text_array
from queueops.tenancy.moves import refuse_writes
from ratelimits.errors import NoAllowance
from ratelimits.models import UsageReservation

from .months import MonthChange, MonthKey, MonthState, change_months
from .release import Ended, end_reservations
from .standings import MonthStanding, standings


class Status(StrEnum):
    ACCEPTED = "accepted"
    DUPLICATE = "duplicate"  # an event of this id was counted before; differences are ignored
    OVER_LIMIT = "over_limit"  # counted, and beyond the quota
    REJECTED = "rejected"  # not counted


MESSAGES = {
    "foreign_user": "A user reports only what that user has used.",
    "too_old": "It happened more than {days} days ago.",
    "from_future": "It is more than 5 minutes ahead of the server's clock.",
}


@dataclass(frozen=True, slots=True)
class Reported:
    """
    One use, as an app reports it.

    Attributes:
        event_id: Chosen by the app before it first sends the event.
        tokens: How many tokens it cost; if the allowance counts requests, every event counts as one.
        occurred_at: When the use occurred, with a time zone.
    """

    event_id: UUID
    user_id: UUID
    tokens: int
    occurred_at: datetime
    reservation_id: UUID | None = None
    service: str = ""


@dataclass(frozen=True, slots=True)
class Result:
    """`reason`: a key of MESSAGES, and `message`: its text, if the event was rejected; otherwise both are empty."""

    event_id: UUID
    status: Status
    reason: str = ""
    message: str = ""


@dataclass(frozen=True, slots=True)
class Ingested:
    """
    Attributes:
        results: One result for each event, in the order given.
        standings: How every user with an event that was not rejected stands after these events.
    """

    results: list[Result]
    standings: list[MonthStanding]


@dataclass(frozen=True, slots=True)
class _Entry:
    """An event that the ledger did not have, with its month and its amount."""

    event: Reported
    month: MonthKey
    amount: int


def ingest(events: Sequence[Reported], *, project_id: str, only_user: UUID | None = None, actor: str = "") -> Ingested:
    """
    Add new events to the ledger, end the reservations that they name, and count the events in their months.

    This takes one transaction, with as many statements for a thousand events as for one. An event that cannot be
    counted is rejected alone; the others count.

    Args:
        only_user: Events of other users are rejected; None: any user of the project may have events.
        actor: The operator whom the audit trail names with the new events; empty: no entry.

    Raises:
        NoAllowance, ProjectMoving, ProjectMoved: Nothing was counted.
    """
    own = [event for event in events if only_user in {None, event.user_id}]
    with transaction.atomic():
        counted = iter(_count(own, project_id=project_id, actor=actor))
    results = [next(counted) if only_user in {None, event.user_id} else _foreign(event) for event in events]
    told = {event.user_id: None for event, one in zip(events, results, strict=True) if one.status != Status.REJECTED}
    # Read after the commit, as other transactions wait for the locks on the months.
    return Ingested(results, standings(project_id, told) if told else [])


def _foreign(event: Reported) -> Result:
    return Result(event.event_id, Status.REJECTED, "foreign_user", MESSAGES["foreign_user"])


def _count(events: Sequence[Reported], *, project_id: str, actor: str) -> list[Result]:
    """Count events. All code here locks events by id, reservations by id, then months by project, user and month."""
    results: list[Result] = []
    new: list[_Entry] = []
    for event, (fault, is_new, month, amount) in zip(events, _insert(events, project_id=project_id), strict=True):
        if fault:
            message = MESSAGES[fault].format(days=settings.QUEUEOPS.usage_max_age_days)
            results.append(Result(event.event_id, Status.REJECTED, fault, message))
        elif not is_new:
            results.append(Result(event.event_id, Status.DUPLICATE))
        else:
            new.append(_Entry(event, (project_id, event.user_id, month), amount))
            results.append(Result(event.event_id, Status.ACCEPTED))
    if actor and new:
        _record(new, project_id=project_id, actor=actor)
    released = _confirm(new, project_id=project_id)
    changes = _changes(new, released)
    over = _beyond_quota(new, released, changes, change_months(changes))
    if over:
        run_sql("ratelimits", "mark_over_limit", {"project_id": project_id, "event_ids": plain_array([*over])})
    return [
        Result(one.event_id, Status.OVER_LIMIT) if one.status == Status.ACCEPTED and one.event_id in over else one
        for one in results
    ]


def _insert(events: Sequence[Reported], *, project_id: str) -> list[tuple[str | None, bool, str, int]]:
    rows = run_sql(
        "ratelimits",
        "insert_usage_events",
        {
            "project_id": project_id,
            "max_age": timedelta(days=settings.QUEUEOPS.usage_max_age_days),
            "event_ids": plain_array([event.event_id for event in events]),
            "user_ids": plain_array([event.user_id for event in events]),
            "tokens": plain_array([event.tokens for event in events]),
            "occurred_at": plain_array([event.occurred_at.isoformat() for event in events]),
            "reservations": plain_array([event.reservation_id for event in events]),
            "services": text_array([event.service for event in events]),
        },
    )
    if events and not rows:
        refuse_writes(project_id)
        raise NoAllowance
    return [(fault, is_new, month, amount) for fault, is_new, month, amount in rows]


def _record(new: Sequence[_Entry], *, project_id: str, actor: str) -> None:
    trail.record(
        actor=actor,
        action="ingest_usage",
        target=f"usage event {new[0].event.event_id}" if len(new) == 1 else f"{len(new)} usage events",
        after=[
            {
                "event_id": one.event.event_id,
                "user_id": one.event.user_id,
                "month": one.month[2],
                "amount": one.amount,
            }
            for one in new
        ],
        project_id=project_id,
    )


def _confirm(new: Sequence[_Entry], *, project_id: str) -> list[Ended]:
    """End the reservations that new events name; returns the ones that were active."""
    named = {(one.event.reservation_id, one.event.user_id): None for one in new if one.event.reservation_id}
    if not named:
        return []
    confirmed = UsageReservation.Status.CONFIRMED
    return end_reservations([*named], project_id=project_id, status=confirmed)


def _changes(new: Iterable[_Entry], released: Iterable[Ended]) -> dict[MonthKey, MonthChange]:
    changes: dict[MonthKey, MonthChange] = {}
    for one in new:
        changes.setdefault(one.month, MonthChange()).used += one.amount
    for held in released:
        changes.setdefault(held.month, MonthChange()).released += held.amount
    return changes


def _beyond_quota(
    new: Iterable[_Entry],
    released: Iterable[Ended],
    changes: Mapping[MonthKey, MonthChange],
    months: Mapping[MonthKey, MonthState],
) -> set[UUID]:
    """
    Go through new events as if they had come one by one; return the events for whose cost there was no room.

    An event always has room for as much as its own reservation holds, whatever else is used and reserved.
    """
    unused: dict[tuple[UUID | None, UUID], Ended] = {(held.id, held.month[1]): held for held in released}
    room = {
        key: month.quota - (month.used - changes[key].used) - (month.reserved + changes[key].released)
        for key, month in months.items()
    }
    over = set()
    for one in new:
        # Only reservations of the event's own user: an event does not end another user's, and must not use its amount.
        held = unused.pop((one.event.reservation_id, one.event.user_id), None)
        if held:
            room[held.month] += held.amount
        room[one.month] -= one.amount
        if room[one.month] < 0 and one.amount > (held.amount if held else 0):
            over.add(one.event.event_id)
    return over
