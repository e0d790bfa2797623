"""Decisions for other programs: combined, answered once for an idempotency key, and degraded in an outage."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any
from zlib import crc32

from django.db import OperationalError, transaction
from psycopg.errors import LockNotAvailable

from queueops.core.clock import foretold
from queueops.core.errors import IdempotencyKeyReused, QueueOpsError
from queueops.core.sql import run_sql
from queueops.tenancy.moves import refusal_of
from ratelimits.algorithms.measures import MalformedCost, cost_units
from ratelimits.limits.catalogue import limited_services
from ratelimits.models import Charge, Limit

from .combine import UNREACHABLE, Combiner
from .decide import Call, Decision, Settlement, decide
from .outage import LimiterUnavailable, outage, require_fail_open

MAX_CALLS_ASKED = 1000  # in one request, and in one group of combined requests
LOCK_TIMEOUT_SECONDS = 2
BINDING_SHOWN = ("limit", "key", "unit", "needed", "available", "capacity", "hard_reset", "cooling")
SERVICES = 32  # combiners for all services together: callers can make up any number of service names

Answer = dict[str, Any]
Place = tuple[str, str]
"""A project, and one of its idempotency keys."""


@dataclass(frozen=True, slots=True)
class Asking:
    """
    One request to the limiter.

    Attributes:
        key: Idempotency key, unique in the project; None: every repetition is decided anew.
        digest: A hash of everything that determines what the request means.
        settlements: Calls that have ended.
    """

    project_id: str
    calls: tuple[Call, ...] = ()
    key: str | None = None
    digest: str = ""
    settlements: tuple[Settlement, ...] = ()

    @property
    def place(self) -> Place:
        return self.project_id, self.key or ""


@dataclass(frozen=True, slots=True)
class Reply:
    """
    Attributes:
        answer: The API's answer, as JSON can hold it.
        replayed: The answer was stored for an earlier request with the same key.
        settled: The holders whose calls this request settled; other holders were settled before, or held nothing.
    """

    answer: Answer
    replayed: bool = False
    settled: frozenset[str] = frozenset()


def ask(asking: Asking) -> Reply:
    """
    Decide or settle calls, together with requests that other threads of this process make at the moment.

    Returns only after the commit. In an outage calls proceed uncounted, marked `degraded`, if all their limits fail
    open. Then nothing is stored for the idempotency key.

    Raises:
        IdempotencyKeyReused: The key was used for another request. Nothing was charged.
        ProjectMoving, ProjectMoved: Another installation takes over the project's counters. Nothing was charged.
        LimiterUnavailable: The database is out of reach, or a counter was locked for LOCK_TIMEOUT_SECONDS. If the
            connection broke at the commit, nobody knows whether anything was charged.
    """
    if not outage.may_ask():
        return _degraded(asking)
    try:
        outcome = _combiner_of(asking).ask(asking, size=len(asking.calls))
    except UNREACHABLE as error:
        if not (isinstance(error, OperationalError) and isinstance(error.__cause__, LockNotAvailable)):
            outage.begin()
        try:
            return _degraded(asking)
        except LimiterUnavailable as refusal:
            raise refusal from error
    outage.end()
    if isinstance(outcome, QueueOpsError):
        raise outcome
    return outcome


def forget_answers(most: int = 10_000) -> int:
    """Delete answers older than a day; returns how many."""
    return len(run_sql("ratelimits", "forget_answers", {"most": most}))


def _degraded(asking: Asking) -> Reply:
    if asking.settlements:
        raise LimiterUnavailable(retry_after=1.0)
    require_fail_open(call.subject for call in asking.calls)
    now = datetime.now(UTC).timestamp()
    decisions = [_shown(call, Decision("proceed", now)) for call in asking.calls]
    return Reply({"decisions": decisions, "degraded": True})


Outcome = Reply | QueueOpsError


def _carry_out(group: Sequence[Asking]) -> list[Outcome]:
    """Answer a group in one transaction. Locks idempotency keys, then charges, then counters, each in sorted order."""
    with transaction.atomic(durable=True):
        projects = sorted({one.project_id for one in group})
        parameters = {"projects": projects, "patience": f"{LOCK_TIMEOUT_SECONDS}s"}
        moves = run_sql("ratelimits", "begin_answering", parameters)
        away = {project: refusal for project, *move in moves if (refusal := refusal_of(project, *move))}
        here = iter(_answer([one for one in group if one.project_id not in away]))
        return [away.get(one.project_id) or next(here) for one in group]


def _answer(group: Sequence[Asking]) -> list[Outcome]:
    """Answer a group as `_carry_out` does, inside its transaction."""
    firsts = {one.place: index for index, one in reversed(list(enumerate(group))) if one.key is not None}
    stored = _stored({place: group[index] for place, index in firsts.items()}) if firsts else {}
    fresh = [
        index
        for index, one in enumerate(group)
        if one.key is None or (firsts[one.place] == index and one.place not in stored)
    ]
    holding = _holding(group)
    answers = dict(zip(fresh, _decided([group[index] for index in fresh]), strict=True))
    made = {group[index].place: answer for index, answer in answers.items() if group[index].key is not None}
    if made:
        _store(made)
    outcomes: list[Outcome] = []
    for index, one in enumerate(group):
        if index in answers:
            settled = holding.intersection(ending.holder for ending in one.settlements)
            outcomes.append(Reply(answers[index], settled=settled))
            continue
        digest, answer = stored.get(one.place) or (group[firsts[one.place]].digest, made[one.place])
        outcomes.append(Reply(answer, replayed=True) if digest == one.digest else _reused(one))
    return outcomes


def _holding(group: Sequence[Asking]) -> frozenset[str]:
    """Lock the charges that are about to be settled, and return the holders that have a charge."""
    holders = {ending.holder for one in group for ending in one.settlements}
    if not holders:
        return frozenset()
    charges = Charge.objects.filter(pk__in=holders).order_by("pk").select_for_update()
    return frozenset(charges.values_list("pk", flat=True))


def _stored(keyed: dict[Place, Asking]) -> dict[Place, tuple[str, Answer]]:
    """Claim the keys that are free; return the digests and answers of the others."""
    places = sorted(keyed)
    parameters = {
        "projects": [project for project, _ in places],
        "keys": [key for _, key in places],
        "digests": [keyed[place].digest for place in places],
    }
    claimed = set(run_sql("ratelimits", "claim_answers", parameters))
    taken = [place for place in places if place not in claimed]
    if not taken:
        return {}
    parameters = {"projects": [project for project, _ in taken], "keys": [key for _, key in taken]}
    rows = run_sql("ratelimits", "read_answers", parameters)
    return {(project, key): (digest, json.loads(answer)) for project, key, digest, answer in rows}


def _store(made: dict[Place, Answer]) -> None:
    parameters = {
        "projects": [project for project, _ in made],
        "keys": [key for _, key in made],
        "answers": [json.dumps(answer) for answer in made.values()],
    }
    run_sql("ratelimits", "store_answers", parameters)


def _decided(askings: Sequence[Asking]) -> list[Answer]:
    """Decide all calls at once, except calls that `_refusals` rejects."""
    calls = [call for asking in askings for call in asking.calls]
    refusals = _refusals(calls)
    decisions = iter(
        decide(
            [call for call, refusal in zip(calls, refusals, strict=True) if refusal is None],
            settlements=[settlement for asking in askings for settlement in asking.settlements],
        )
    )
    shown = iter([_shown(call, refusal or next(decisions)) for call, refusal in zip(calls, refusals, strict=True)])
    return [{"decisions": [next(shown) for _ in asking.calls], "degraded": False} for asking in askings]


def _refusals(calls: Sequence[Call]) -> list[Decision | None]:
    """Reject calls with malformed costs, and calls of services for which nobody has configured a limit."""
    unlimited = {call.subject.service for call in calls} - limited_services()
    if unlimited:  # a service whose limits are all switched off counts as configured: its calls may go
        unlimited -= set(Limit.objects.filter(service__in=unlimited).values_list("service", flat=True))
    return [
        Decision("reject", 0.0, reason=f"No limit is configured for {call.subject.service!r}.")
        if call.subject.service in unlimited
        else _malformed(call)
        for call in calls
    ]


def _malformed(call: Call) -> Decision | None:
    try:
        cost_units(call.cost)
        cost_units(call.cost if call.known_cost is None else call.known_cost)
    except MalformedCost as error:
        return Decision("reject", 0.0, reason=error.message)
    return None


def _reused(asking: Asking) -> IdempotencyKeyReused:
    return IdempotencyKeyReused(
        f"Idempotency-Key {asking.key!r} was used for another request.", idempotency_key=asking.key
    )


def _shown(call: Call, decision: Decision) -> Answer:
    binding, at = decision.binding, decision.retry_at
    return {
        "kind": decision.kind,
        "retry_at": None if at is None else foretold(at).isoformat().replace("+00:00", "Z"),
        # Rounded up to milliseconds, so that a caller who waits so long does not come too early.
        "retry_after_seconds": None if at is None else math.ceil(max(0.0, at - decision.now) * 1000) / 1000,
        "reason": decision.reason,
        "binding": binding and {name: getattr(binding, name) for name in BINDING_SHOWN},
        "holder": call.holder if decision.holds else None,
    }


def _combiner_of(asking: Asking) -> Combiner[Asking, Outcome]:
    """One combiner for all settlements, others by service, so that a locked counter seldom delays other services."""
    if not asking.calls:
        return _combiners[0]
    return _combiners[1 + crc32(asking.calls[0].subject.service.encode()) % (len(_combiners) - 1)]


_combiners: list[Combiner[Asking, Outcome]] = [Combiner(_carry_out, most=MAX_CALLS_ASKED) for _ in range(1 + SERVICES)]
