"""The room of limits right now, read without locks: for choosing lanes, and for telling people why work waits."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from queueops.core.sql import run_sql
from ratelimits.algorithms.admission import never_fits
from ratelimits.algorithms.measures import MICRO, cost_units, seconds
from ratelimits.algorithms.modifiers.hold import PROBE_SECONDS
from ratelimits.algorithms.modifiers.pressure import Pressure
from ratelimits.costs import ENQUEUED_TOKENS
from ratelimits.limiter.counters import OpenCounter, Place, open_counter
from ratelimits.limiter.evaluate import Binding, binding_of, no_room
from ratelimits.limits.alternatives import alternatives_of, is_pooled
from ratelimits.limits.catalogue import Rule, rules_for
from ratelimits.subjects import Subject

WITHOUT_END = sys.maxsize
UNUSED = ("{}", None, "", 1.0, None)  # the columns of a counter that nobody has used


@dataclass(frozen=True, slots=True)
class Headroom:
    """
    The room that one subject's limits have at an instant, if nobody else comes.

    Attributes:
        calls: How many calls may go now. Unlimited if only tokens are counted and some are left.
        opens_at: When the next call may go, seconds since 1970; not after `now` if some may go already.
        rate_per_second: The slowest pace at which these limits let calls through; None: none has a pace.
        blocking: The limits without room, first the limit that takes longest to have room.
        counters: The ids of all counters that apply.
        paces: The calls a second that each counter lets through; None: it has no pace.
        calls_each: The calls that each counter admits now.
        slowest: The limit whose pace is the slowest.
    """

    calls: int
    opens_at: float
    now: float
    rate_per_second: float | None = None
    blocking: tuple[Binding, ...] = ()
    counters: tuple[str, ...] = ()
    paces: tuple[float | None, ...] = ()
    calls_each: tuple[int, ...] = ()
    slowest: Binding | None = None


@dataclass(slots=True)
class _Seen:
    counter: OpenCounter
    rate: float | None
    calls: int
    opens_at: float


def read_headroom(
    subjects: Iterable[Subject], *, tokens: float = 1, paced: bool = False, crowded: Collection[Subject] = ()
) -> dict[Subject, Headroom]:
    """
    Read the room of each subject's calls.

    Args:
        tokens: What a call needs of token limits.
        paced: The calls come from a queue, see `decide.Call`.
        crowded: The subjects for which more calls wait than a window admits.
    """
    asked = set(subjects)
    pooled = {subject: [one.subject for one in alternatives_of(subject)] for subject in asked if is_pooled(subject)}
    single = (asked - pooled.keys()).union(*pooled.values())
    applied = {subject: rules_for(subject, queued=paced) for subject in single}
    places = {rule.counter_id(one): (rule, rule.key(one)) for one, those in applied.items() for rule in those}
    rows = run_sql("ratelimits", "read_counters", {"ids": list(places)})
    now = float(rows[0][0])
    stored = {row[1]: row for row in rows if row[1] is not None}
    many = [one for subject in crowded for one in pooled.get(subject, (subject,))]
    busy = {rule.counter_id(subject) for subject in many for rule in rules_for(subject)}
    seen = {
        name: _look(
            place, stored.get(name, (now, name, *UNUSED)), now=now, tokens=tokens, paced=paced, crowded=name in busy
        )
        for name, place in places.items()
    }
    found = {one: _room([rule.counter_id(one) for rule in those], seen, now, tokens) for one, those in applied.items()}
    return found | {subject: _together([found[one] for one in members], now) for subject, members in pooled.items()}


def _look(place: Place, row: tuple[Any, ...], *, now: float, tokens: float, paced: bool, crowded: bool) -> _Seen:
    rule, key = place
    _, _, text, blocked_until, reason, factor, changed_at = row
    pressure = Pressure(factor, changed_at)
    counter = open_counter(rule, key, json.loads(text), now, blocked=(blocked_until, reason), pressure=pressure)
    meter, units = counter.meter, _units(rule, tokens)
    stream = counter.stream if paced and counter.is_streamed(crowded=crowded) else None
    rate = None if rule.shadow else counter.algorithm.rate_per_second
    if rate is not None and not rule.per_call:
        rate = rate / max(tokens, 1)
    seen = _Seen(counter, rate, WITHOUT_END, now)
    if rule.shadow or rule.unit == ENQUEUED_TOKENS:
        pass  # only a cool-down holds calls back: a shadow limit admits all, and a live call enqueues no tokens
    elif never_fits(counter.algorithm, units):
        seen.calls, seen.opens_at = 0, math.inf
    elif not meter.room_for(units):
        seen.calls, seen.opens_at = 0, counter.sooner(seconds(meter.line_up(units)))
    elif stream and stream.opens_at > meter.now:
        seen.calls, seen.opens_at = 0, seconds(stream.opens_at)
    elif rule.per_call:
        # An unused counter admits one call that is larger than a slowed capacity.
        seen.calls = max(1, meter.available() // units)
        if stream:
            seen.calls = min(seen.calls, stream.calls(units, meter.now))
    if counter.hold.until:
        seen.calls, seen.rate = min(seen.calls, 1), 1 / PROBE_SECONDS
    if counter.blocked_until is not None:
        seen.calls, seen.opens_at = 0, max(seen.opens_at, counter.blocked_until)
    return seen


def _room(names: Sequence[str], seen: dict[str, _Seen], now: float, tokens: float) -> Headroom:
    applied = [seen[name] for name in names]
    blocking = sorted((one for one in applied if not one.calls), key=lambda one: -one.opens_at)
    slowest = min((one for one in applied if one.rate is not None), key=lambda one: one.rate or 0.0, default=None)
    return Headroom(
        calls=min((one.calls for one in applied), default=WITHOUT_END),
        opens_at=max((one.opens_at for one in applied), default=now),
        now=now,
        rate_per_second=slowest.rate if slowest else None,
        blocking=tuple(_binding(one, tokens) for one in blocking),
        counters=tuple(names),
        paces=tuple(one.rate for one in applied),
        calls_each=tuple(one.calls for one in applied),
        slowest=_binding(slowest, tokens) if slowest else None,
    )


def _together(rooms: Sequence[Headroom], now: float) -> Headroom:
    """The room of a pool: the sum of its members' room. A pool without a usable member never opens."""
    if not rooms:
        return Headroom(calls=0, opens_at=math.inf, now=now)
    first = min(rooms, key=lambda room: room.opens_at)
    rates = [room.rate_per_second for room in rooms]
    rate = None if None in rates else sum(rate or 0.0 for rate in rates)
    calls = min(WITHOUT_END, sum(room.calls for room in rooms))
    counters = tuple({name: None for room in rooms for name in room.counters})
    return Headroom(
        calls=calls,
        opens_at=first.opens_at,
        now=now,
        rate_per_second=rate,
        blocking=() if calls else first.blocking,
        counters=counters,
        paces=(rate,) * len(counters),
        calls_each=(calls,) * len(counters),
        slowest=first.slowest,
    )


def _units(rule: Rule, tokens: float) -> int:
    return MICRO if rule.per_call else cost_units(float(tokens))


def _binding(one: _Seen, tokens: float) -> Binding:
    counter = one.counter
    retry_at = None if one.opens_at == math.inf else one.opens_at
    reason = counter.blocked_reason or no_room(counter)
    cooling = counter.blocked_until is not None
    return binding_of(counter, _units(counter.rule, tokens), retry_at, reason, cooling=cooling)
