"""The decision in memory: which calls may go, and what each takes. The caller has locked the counters."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from ratelimits.algorithms.admission import never_fits
from ratelimits.algorithms.measures import MICRO, MalformedCost, cost_units, seconds
from ratelimits.costs import REQUESTS, TOKENS
from ratelimits.limits.catalogue import Rule
from ratelimits.subjects import Subject, counter_id

from .call_units import needed
from .calls import Call
from .charges import Entry
from .choose import turns, used_share
from .counters import OpenCounter


@dataclass(frozen=True, slots=True)
class Binding:
    """
    Why a call cannot go now: one counter's figures, in its limit's unit.

    Attributes:
        retry_at: When the counter has room, seconds since 1970, if nothing else comes; None: never.
        cooling: The provider pushed back, or an operator cooled the counter down.
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
Limits = Mapping[tuple[Subject, bool], tuple[Rule, ...]]  # by subject, and whether the call is paced


@dataclass(frozen=True, slots=True)
class Decision:
    """
    The decision about one call.

    Attributes:
        kind: `proceed`: every limit had room and was charged. `defer`: room will come. `retry`: the provider pushed
            back lately. `reject`: waiting does not help.
        retry_at: Earliest time for `defer` and `retry`, seconds since 1970 by the database's clock.
        binding: The limit that takes longest to have room; None for `proceed`, and if no limit is the reason.
        blocking: All limits without room, the binding one first.
        met: For `defer` and `retry`, all limits that count the call: `blocking`, then the limits that have room.
        credential: The pool's member against which the call is counted; empty if it does not go or uses no pool.
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
    met: tuple[Binding, ...] = ()
    credential: str = ""


@dataclass(slots=True)
class _Asked:
    """One call with its counters, and what it takes of each, in millionths of its unit."""

    call: Call
    needs: list[tuple[OpenCounter, int]] = field(default_factory=list)
    denied_by: list[tuple[OpenCounter, int]] = field(default_factory=list)
    rejection: Binding | None = None
    malformed: str = ""
    credential: str = ""
    holds: bool = False


def weigh(
    calls: Sequence[Call], limits: Limits, counters: Mapping[str, OpenCounter], now: float
) -> tuple[list[Decision], list[tuple[Call, list[Entry]]]]:
    """
    Decide which of these calls may go now, in the order given, and charge them.

    If a counter refuses a call, it is closed for the calls behind, so that small calls do not overtake a large one.
    Calls that do not use that counter may still go. Calls without any limit proceed. A pool's call goes with the member
    that has the most room for its weight. The members' counters are closed only if no member takes the call.

    Args:
        limits: The limits of each call, and of each member if it is a pool's call.
        counters: Counters by id, at least the counters that the calls touch; changed in place.

    Returns:
        One decision for each call, in order; and the calls that were charged, with the entries that each will settle.
    """
    asked = []
    granted = []
    waiting: dict[str, float] = {}
    alike: dict[tuple[Subject, bool], _Asked] = {}
    for call in calls:
        one = _chosen(call, limits, counters, waiting) if call.alternatives else _alike(call, limits, counters, alike)
        asked.append(one)
        if _may_go(one):
            entries = []
            for counter, units in one.needs:
                booked_at = counter.take(units)
                unit = counter.rule.unit
                if unit != REQUESTS:  # a request stays charged, however the call ends
                    entries.append(Entry(counter_id(counter.rule.id, counter.key), unit, units, booked_at))
            one.holds = bool(entries and call.holder)
            granted.append((one, entries))
    free = Decision("proceed", now)  # shared by all calls that hold nothing: making one costs more than deciding
    return [_decision(one, free) for one in asked], [(one.call, entries) for one, entries in granted if one.needs]


def why_unfit(call: Call, rule: Rule) -> str | None:
    """Return why a limit can never admit a call, or None; no counter is asked."""
    key = rule.key(call.subject)
    return None if rule.shadow else never_fits(rule.algorithm(key), _units_of(call, rule, key))


def _alike(
    call: Call, limits: Limits, counters: Mapping[str, OpenCounter], known: dict[tuple[Subject, bool], _Asked]
) -> _Asked:
    """
    Return what `_asked` returns. If every limit counts calls one by one, all calls of a subject share one result.

    Args:
        known: What was found before, by subject and pace; changed in place.
    """
    place = call.subject, call.paced
    if (first := known.get(place)) is not None:
        return _Asked(call, first.needs, rejection=first.rejection)
    one = _asked(call, limits[place], counters)
    if all(rule.per_call for rule in limits[place]):
        known[place] = one
    return one


def _asked(call: Call, applicable: tuple[Rule, ...], counters: Mapping[str, OpenCounter]) -> _Asked:
    """Find out what a call needs of each counter, and whether the counter can ever have so much room."""
    one = _Asked(call)
    for rule in applicable:
        counter = counters[rule.counter_id(call.subject)]
        try:
            units = _units_of(call, rule, counter.key)
        except MalformedCost as error:
            one.malformed = error.message
            return one
        if not units and rule.unit != TOKENS:
            continue  # the call takes nothing of this limit's unit, so the limit's room and cool-down do not matter
        if not rule.shadow and (reason := never_fits(counter.algorithm, units)):
            one.rejection = binding_of(counter, units, None, reason)
            return one
        one.needs.append((counter, units))
    return one


def _chosen(call: Call, limits: Limits, counters: Mapping[str, OpenCounter], waiting: dict[str, float]) -> _Asked:
    """
    Turn a pool's call into a call of the member that takes it, or for which it waits.

    Args:
        waiting: How many calls wait for each member, divided by its weight; changed in place.
    """
    options: list[tuple[float, float, float, _Asked]] = []
    for other in call.alternatives:
        own = call._replace(subject=other.subject, alternatives=())
        one = _asked(own, limits[other.subject, call.paced], counters)
        one.credential = other.credential
        share = used_share(one.needs) / other.weight
        options.append((share, turns.standing(other.credential), other.weight, one))
    options.sort(key=lambda option: option[:2])
    fitting = [option for option in options if option[3].rejection is None and not option[3].malformed]
    for _, _, weight, one in fitting:
        if not any(_refuses(counter, units, one.call) for counter, units in one.needs):
            turns.served(one.credential, weight)
            return one
    if not fitting:
        return options[0][3]
    for *_, one in fitting:  # as for a single account: smaller calls of the pool must not overtake this one
        for counter, units in one.needs:
            counter.closed = counter.closed or _refuses(counter, units, one.call)
    _, weight, one = min(
        ((waiting.get(one.credential, 0.0), weight, one) for _, _, weight, one in fitting),
        key=lambda option: (
            max((counter.blocked_until or 0.0 for counter, _ in option[2].needs), default=0.0),
            option[0],
        ),
    )
    waiting[one.credential] = waiting.get(one.credential, 0.0) + 1 / weight
    return one


def _refuses(counter: OpenCounter, units: int, call: Call) -> bool:
    """Whether a counter keeps this call back now."""
    if counter.blocked_until is not None:
        return True
    free = not counter.closed and counter.room_for(units, paced=call.paced, crowded=call.crowded)
    return not free and not counter.rule.shadow


def _units_of(call: Call, rule: Rule, key: str) -> int:
    """The amount that a call takes of a limit, in millionths of its unit."""
    if rule.per_call:
        return MICRO
    return cost_units(needed(rule, key, call))


def _may_go(one: _Asked) -> bool:
    if one.rejection is not None or one.malformed:
        return False
    refusing: list[tuple[OpenCounter, int]] = []
    against: list[OpenCounter] = []
    for counter, units in one.needs:
        free = counter.blocked_until is None and not counter.closed
        if free and counter.room_for(units, paced=one.call.paced, crowded=one.call.crowded):
            continue
        if counter.rule.shadow and counter.blocked_until is None:  # a provider's refusal holds even in shadow
            against.append(counter)
        else:
            refusing.append((counter, units))
    for counter, _ in refusing:
        counter.closed = True
    for counter in against if not refusing else ():  # otherwise a call that waits would count again each time it asks
        counter.denials += 1
    one.denied_by = refusing
    return not refusing


def _decision(one: _Asked, free: Decision) -> Decision:
    """The decision about a call that was weighed. `free`: the shared decision for calls that go and hold nothing."""
    now = free.now
    if one.malformed:
        return Decision("reject", now, reason=one.malformed)
    if one.rejection is not None:
        return Decision("reject", now, None, one.rejection, (one.rejection,), one.rejection.reason)
    if not one.denied_by:
        if not one.holds and not one.credential:
            return free
        return Decision("proceed", now, holds=one.holds, credential=one.credential)
    blocking = [_refusal(counter, units, one.call) for counter, units in one.denied_by]
    blocking.sort(key=lambda binding: -(binding.retry_at or 0))
    kind: Kind = "retry" if any(binding.cooling for binding in blocking) else "defer"
    refusing = {id(counter) for counter, _ in one.denied_by}
    roomy = [binding_of(counter, units, now, "") for counter, units in one.needs if id(counter) not in refusing]
    met = (*blocking, *roomy)
    return Decision(kind, now, blocking[0].retry_at, blocking[0], tuple(blocking), blocking[0].reason, met=met)


def _refusal(counter: OpenCounter, units: int, call: Call) -> Binding:
    at = counter.sooner(seconds(counter.meter.line_up(units)))
    if call.paced and counter.stream and counter.is_streamed(crowded=call.crowded) and counter.meter.room_for(units):
        at = max(at, seconds(counter.stream.opens_at))  # the window has room, but its stream opens only later
    if counter.blocked_until is not None:
        return binding_of(counter, units, max(at, counter.blocked_until), counter.blocked_reason, cooling=True)
    return binding_of(counter, units, max(at, counter.now), no_room(counter))


def no_room(counter: OpenCounter) -> str:
    """
    Return the reason in words, without figures that differ by call: jobs with the same reason are deferred together.
    """
    return f"{counter.rule.name} has no room" + (", paced by the ramp" if counter.share < 1 else "")


def binding_of(
    counter: OpenCounter, units: int, retry_at: float | None, reason: str, *, cooling: bool = False
) -> Binding:
    """Return a counter's figures as the binding of a call that takes so many millionths."""
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
