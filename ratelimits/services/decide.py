"""The decision over every limit that applies: all scopes or none, for many calls at once."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from django.db import transaction

from queueops.core.sql import plain_array, run_sql
from ratelimits.algorithms.admission import never_fits
from ratelimits.algorithms.estimates import clamped
from ratelimits.algorithms.measures import MICRO, MalformedCost, cost_units, seconds
from ratelimits.algorithms.sliding_window import BUCKETS, SlidingWindow
from ratelimits.models import Unit
from ratelimits.subjects import Subject, counter_id

from .catalogue import Rule, rules, rules_for
from .counters import OpenCounter, Place, lock_counters, write_counters

HELD_UNITS = frozenset({Unit.TOKENS.value, Unit.IN_FLIGHT.value})  # what a call's end settles


class Call(NamedTuple):
    """
    One call that asks to go.

    Attributes:
        cost: Tokens, estimated. Of requests and of places in flight every call takes one.
        known_cost: The part of the cost that is no guess; None: all of it.
        holder: Under which name it settles what it holds; empty: it never will.
        kind: For the tally of who used a limit.
        waited_seconds: Since it wanted to go.
        hold_seconds: After which what it holds is reclaimed, because its holder has crashed.
        paced: It comes from a queue: a window that has been full lets it go in a steady stream, not in a burst.
        crowded: More calls wait in that queue than a window admits: it goes in a stream from the first on.
    """

    subject: Subject
    cost: float = 1
    known_cost: float | None = None
    holder: str = ""
    kind: str = ""
    waited_seconds: float = 0.0
    hold_seconds: float = 600.0
    paced: bool = False
    crowded: bool = False


class Settlement(NamedTuple):
    """The end of a call. `actual`: what it really cost in tokens; None: unknown, the estimate stands."""

    holder: str
    actual: float | None = None


@dataclass(frozen=True, slots=True)
class Binding:
    """
    Why a call cannot go now: one counter's figures, in its limit's unit.

    Attributes:
        retry_at: When it has room, seconds since 1970, if nothing else comes; None: never.
        cooling: The provider pushed back, or an operator did.
    """

    limit: str
    limit_id: int
    key: str
    unit: str
    needed: float
    available: float
    capacity: float
    retry_at: float | None
    hard_reset: bool
    cooling: bool = False
    reason: str = ""


Kind = Literal["proceed", "defer", "retry", "reject"]


@dataclass(frozen=True, slots=True)
class Decision:
    """
    What becomes of one call.

    Attributes:
        kind: `proceed`: every limit had room and was charged. `defer`: room will come. `retry`: the provider pushed
            back lately. `reject`: no wait helps.
        retry_at: Earliest time for `defer` and `retry`, seconds since 1970 by the database's clock.
        binding: The limit that takes longest to have room; None for `proceed`.
        blocking: All that have none, the binding one first.
        now: The database's clock after the locks.
        holds: A Charge was written for the call's holder.
    """

    kind: Kind
    now: float
    retry_at: float | None = None
    binding: Binding | None = None
    blocking: tuple[Binding, ...] = ()
    reason: str = ""
    holds: bool = False


@dataclass(slots=True)
class _Asked:
    """One call with its counters and what it takes of each, in millionths."""

    call: Call
    needs: list[tuple[OpenCounter, int]] = field(default_factory=list)
    denied_by: list[tuple[OpenCounter, int]] = field(default_factory=list)
    rejection: Binding | None = None
    malformed: str = ""


@transaction.atomic(savepoint=False)
def decide(calls: Sequence[Call], *, settlements: Sequence[Settlement] = ()) -> list[Decision]:
    """
    Decide which of these calls may go now and charge those, in the order given; settle others in the same step.

    A call that one counter refuses closes that counter for the calls behind it, so that small ones do not overtake a
    large one; calls that do not touch it may still go. Calls without any limit proceed.

    Locks the charges settled, then the counters of all calls and settlements in the order of their ids.

    Returns:
        One decision a call, in order.
    """
    ended = _taken_charges(settlements)
    applied = [rules_for(call.subject) for call in calls]
    counters = lock_counters([*_places(calls, applied), *_charged_places(ended)])
    now = next((counter.now for counter in counters.values()), 0.0)
    _settle(ended, {ending.holder: ending.actual for ending in settlements}, counters)
    asked = [_weigh(call, applicable, counters) for call, applicable in zip(calls, applied, strict=True)]
    granted = [(one, _charge(one)) for one in asked if _may_go(one)]
    decisions = [_decision(one, now) for one in asked]
    write_counters(counters.values())
    _write_charges(granted)
    _write_tallies([one.call for one, _ in granted if one.needs])
    return decisions


def unfit(call: Call) -> tuple[str, str] | None:
    """Return the limit that can never admit a call, and why, without asking a counter; None: each can, some time."""
    for rule in rules_for(call.subject):
        key = rule.key(call.subject)
        if not rule.shadow and (reason := never_fits(rule.algorithm(key), _units_of(call, rule, key))):
            return rule.name, reason
    return None


def settle(settlements: Sequence[Settlement]) -> None:
    """Settle calls that have ended; one that was settled before changes nothing."""
    if settlements:
        decide((), settlements=settlements)


def reclaim_expired(most: int = 1000) -> int:
    """
    Take back what crashed holders held: estimates into their own window, places in flight at once.

    Returns:
        How many charges were reclaimed.
    """
    return _reclaim([], most)


def reclaim(holders: Sequence[str]) -> int:
    """Do what `reclaim_expired` does, for holders that are known to have crashed."""
    return _reclaim(holders, 0) if holders else 0


@transaction.atomic(savepoint=False)
def _reclaim(holders: Sequence[str], most: int) -> int:
    rows = run_sql("ratelimits", "take_charges", {"holders": list(holders), "expired": most})
    ended = [(holder, json.loads(entries), True) for holder, entries, _ in rows]
    counters = lock_counters(_charged_places(ended))
    _settle(ended, {}, counters)
    write_counters(counters.values())
    return len(ended)


Charged = tuple[str, list[list[object]], bool]
"""Holder, entries of its charge, and whether it had expired."""


def _taken_charges(settlements: Sequence[Settlement]) -> list[Charged]:
    if not settlements:
        return []
    holders = sorted({ending.holder for ending in settlements})
    rows = run_sql("ratelimits", "take_charges", {"holders": holders, "expired": 0})
    return [(holder, json.loads(entries), expired) for holder, entries, expired in rows]


def _places(calls: Sequence[Call], applied: Sequence[tuple[Rule, ...]]) -> Iterable[Place]:
    seen = set()
    for call, applicable in zip(calls, applied, strict=True):
        if call.subject not in seen:
            seen.add(call.subject)
            yield from ((rule, rule.key(call.subject)) for rule in applicable)


def _charged_places(ended: Sequence[Charged]) -> Iterable[Place]:
    by_id = {rule.id: rule for rule in rules()} if ended else {}
    for _, entries, _ in ended:
        for counter, *_ in entries:
            limit, _, key = str(counter).partition(":")
            if rule := by_id.get(int(limit)):  # a limit switched off meanwhile has nothing to settle
                yield rule, key


def _settle(ended: Sequence[Charged], actuals: dict[str, float | None], counters: dict[str, OpenCounter]) -> None:
    for holder, entries, expired in ended:
        actual = actuals.get(holder)
        for name, unit, charged, booked_at in entries:
            counter = counters.get(str(name))
            if counter is None:
                continue
            units, at = int(str(charged)), int(str(booked_at))
            if unit == Unit.IN_FLIGHT or (expired and holder not in actuals):
                counter.give_back(units, at)
            elif actual is not None:
                difference = cost_units(actual) - units
                if difference < 0:
                    counter.give_back(-difference, at)
                elif difference:
                    counter.take(difference)


def _weigh(call: Call, applicable: tuple[Rule, ...], counters: dict[str, OpenCounter]) -> _Asked:
    """Find out what a call needs of each counter, and whether it can ever have it."""
    one = _Asked(call)
    for rule in applicable:
        counter = counters[rule.counter_id(call.subject)]
        try:
            units = _units_of(call, rule, counter.key)
        except MalformedCost as error:
            one.malformed = error.message
            return one
        if not rule.shadow and (reason := never_fits(counter.algorithm, units)):
            one.rejection = _binding(counter, units, None, reason)
            return one
        one.needs.append((counter, units))
    return one


def _units_of(call: Call, rule: Rule, key: str) -> int:
    """What a call takes of a limit, in millionths of its unit."""
    if rule.unit != Unit.TOKENS:
        return MICRO
    cost_units(call.cost)  # a cost that is no number must not pass for what is known of it
    return cost_units(clamped(call.cost, call.known_cost, rule.algorithm(key).capacity))


def _may_go(one: _Asked) -> bool:
    if one.rejection is not None or one.malformed:
        return False
    refusing = []
    for counter, units in one.needs:
        free = counter.blocked_until is None and not counter.closed
        if free and counter.room_for(units, paced=one.call.paced, crowded=one.call.crowded):
            continue
        if counter.rule.shadow:
            counter.denials += 1
        else:
            refusing.append((counter, units))
    for counter, _ in refusing:
        counter.closed = True
    one.denied_by = refusing
    return not refusing


def _charge(one: _Asked) -> list[list[object]]:
    """Take what a call needs, and return the entries that it has to settle."""
    entries: list[list[object]] = []
    for counter, units in one.needs:
        booked_at = counter.take(units)
        if counter.rule.unit in HELD_UNITS:
            entries.append([counter_id(counter.rule.id, counter.key), counter.rule.unit, units, booked_at])
    return entries


def _decision(one: _Asked, now: float) -> Decision:
    if one.malformed:
        return Decision("reject", now, reason=one.malformed)
    if one.rejection is not None:
        return Decision("reject", now, None, one.rejection, (one.rejection,), one.rejection.reason)
    if not one.denied_by:
        holds = bool(one.call.holder) and any(counter.rule.unit in HELD_UNITS for counter, _ in one.needs)
        return Decision("proceed", now, holds=holds)
    blocking = [_refusal(counter, units) for counter, units in one.denied_by]
    blocking.sort(key=lambda binding: -(binding.retry_at or 0))
    kind: Kind = "retry" if any(binding.cooling for binding in blocking) else "defer"
    return Decision(kind, now, blocking[0].retry_at, blocking[0], tuple(blocking), blocking[0].reason)


def _refusal(counter: OpenCounter, units: int) -> Binding:
    at = seconds(counter.meter.line_up(units))
    if isinstance(counter.algorithm, SlidingWindow) and counter.meter.room_for(units):
        # There is room and the stream is full: it goes on with the window's next part.
        at = max(at, counter.now + counter.algorithm.window_seconds / BUCKETS)
    if counter.blocked_until is not None:
        return _binding(counter, units, max(at, counter.blocked_until), counter.blocked_reason, cooling=True)
    return _binding(counter, units, max(at, counter.now), f"{counter.rule.name} has no room")


def _binding(
    counter: OpenCounter, units: int, retry_at: float | None, reason: str, *, cooling: bool = False
) -> Binding:
    return Binding(
        limit=counter.rule.name,
        limit_id=counter.rule.id,
        key=counter.key,
        unit=counter.rule.unit,
        needed=units / MICRO,
        available=max(0.0, counter.meter.available() / MICRO),
        capacity=counter.algorithm.capacity,
        retry_at=retry_at,
        hard_reset=counter.rule.hard_reset,
        cooling=cooling,
        reason=reason,
    )


def _write_charges(granted: Sequence[tuple[_Asked, list[list[object]]]]) -> None:
    holding = [(one.call, entries) for one, entries in granted if entries and one.call.holder]
    if holding:
        parameters = {
            "holders": [call.holder for call, _ in holding],
            "entries": [json.dumps(entries) for _, entries in holding],
            "holds": plain_array([call.hold_seconds for call, _ in holding]),
        }
        run_sql("ratelimits", "insert_charges", parameters)


def _write_tallies(calls: Sequence[Call]) -> None:
    if not calls:
        return
    sums: dict[tuple[Subject, str], list[float]] = defaultdict(lambda: [0, 0.0, 0.0])
    for call in calls:
        total = sums[call.subject, call.kind]
        total[0] += 1
        total[1] += call.cost
        total[2] += call.waited_seconds
    subjects = [subject for subject, _ in sums]
    parameters = {
        "services": [subject.service for subject in subjects],
        "call_types": [subject.call_type for subject in subjects],
        "models": [subject.model for subject in subjects],
        "projects": [subject.project for subject in subjects],
        "users": [subject.user for subject in subjects],
        "kinds": [kind for _, kind in sums],
        "calls": plain_array([int(total[0]) for total in sums.values()]),
        "tokens": plain_array([total[1] for total in sums.values()]),
        "waits": plain_array([total[2] for total in sums.values()]),
    }
    run_sql("ratelimits", "insert_tallies", parameters)
