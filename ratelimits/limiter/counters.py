"""The counters of one transaction: locked in one order, changed in memory, written once."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from django.db import transaction

from queueops.core.sql import plain_array, run_sql
from ratelimits.alerts import alerts
from ratelimits.algorithms.admission import Algorithm, Meter, State
from ratelimits.algorithms.figures import window_of
from ratelimits.algorithms.measures import MICRO, cost_units
from ratelimits.algorithms.modifiers.external_usage import NO_OTHERS, Others, others_of, shown
from ratelimits.algorithms.modifiers.hold import NO_HOLD, HeldDelay, hold_of
from ratelimits.algorithms.modifiers.pressure import NO_PRESSURE, Pressure, pressure_at
from ratelimits.algorithms.spans import SpanMeter
from ratelimits.algorithms.stream import Stream, is_in_demand, stream_of
from ratelimits.limits.catalogue import Rule
from ratelimits.models import Counter
from ratelimits.subjects import counter_id

Place = tuple[Rule, str]
"""A rule and a key: together they have one counter."""


@dataclass(slots=True)
class OpenCounter:
    """
    One counter at an instant: either locked, to be charged, or only read.

    Attributes:
        closed: It refused a call; smaller calls behind must not overtake that call.
        blocked_until: The end of a cool-down that still lasts, or the time of a hold's next probe, seconds since 1970.
        blocked_reason: Why the counter is blocked; empty: it is not.
        pressure: The part of the cap in use, recovered since the provider pushed back.
        share: The part of the remaining cap that a ramp leaves open; 1: all.
        others: The use of the quota by others; `algorithm` has the capacity that they leave.
        whole: The capacity that it would have if nobody else used the quota.
        hold: A stated delay that the provider may not mean: while it lasts, one call a minute probes the provider.
        stream: The stream in which calls from a queue leave; None: they may leave in a burst.
    """

    rule: Rule
    key: str
    algorithm: Algorithm
    meter: Meter
    stored: State
    blocked_until: float | None
    blocked_reason: str
    pressure: float
    level: int
    now: float
    stream: Stream | None
    share: float = 1.0
    others: Others = NO_OTHERS
    whole: float = 0.0
    hold: HeldDelay = NO_HOLD
    taken: int = 0
    changed: bool = False
    closed: bool = False
    denials: int = 0

    @property
    def is_slowed(self) -> bool:
        return self.blocked_until is not None or self.pressure < 1

    @property
    def cooled_until(self) -> float | None:
        """When all calls may go again, also after a stated delay that is only probed; None: now."""
        return max(self.blocked_until or 0.0, self.hold.until) or None

    def sooner(self, at: float) -> float:
        """
        Return when room really comes, if it would come at `at` with a ramp that stands still; both in seconds since
        1970.
        """
        return at if self.share == 1.0 or self.rule.ramp is None else self.rule.ramp.sooner(at, self.now)

    def room_for(self, units: int, *, paced: bool = False, crowded: bool = False) -> bool:
        """
        Say whether a call may be granted.

        Args:
            paced: The call comes from a queue. While the window is in demand, the window's stream must admit it, too.
            crowded: More calls wait than a window admits.
        """
        return self.meter.room_for(units) and not (paced and self._is_ahead(crowded=crowded))

    def take(self, units: int) -> int:
        """Charge a call, and return the time from which it counts, in microseconds since 1970."""
        self.meter.take(units)
        if self.stream:
            self.stream.take(units, self.meter.now)
        self.taken += units
        self.changed = True
        if self.hold.until:
            self.hold = self.hold.probed(self.now)
            self.blocked_until = self.hold.next_at
        return self.meter.now

    def take_from_others(self, units: int) -> None:
        """Charge the others' use of the quota. For counters that do not keep the past."""
        self.meter.take(units)
        self.changed = True

    def hear(self, remaining: float, *, rounded: float = 0.0, freed: float = 0.0) -> None:
        """
        Keep free, from now on, the part of a sliding window that others hold according to its provider.

        Args:
            remaining: What the provider says is left, in the limit's unit.
            rounded, freed: See `external_usage.shown`.
        """
        cap = self.rule.algorithm(self.key).capacity
        held = self.others.held
        amount = shown(cap - remaining - self.own, rounded=rounded, freed=freed)
        self.others = self.others.seen(amount, self.now, window_of(self.rule))
        self.changed = True
        if self.others.held <= held:
            return
        self.algorithm = self.rule.algorithm(self.key, self.pressure, self.share * self.others.left(cap))
        self.meter = self.algorithm.open(self.meter.state(), self.now)
        if self.stream:
            self.stream.capacity = cost_units(self.algorithm.capacity)

    @property
    def own(self) -> float:
        """The use by our own calls, in the limit's unit."""
        return self.algorithm.capacity - self.meter.available() / MICRO

    def give_back(self, units: int, granted_at: int) -> None:
        """Take back a charge made at `granted_at`, unless that time's window is over."""
        self.meter.give_back(units, granted_at)
        if self.stream:
            self.stream.give_back(units)
        self.changed = True

    def state(self) -> State:
        state = self.meter.state()
        if self.algorithm.is_bucket:
            state["pace"] = [paced(self.stored, self.now, self.rule) + self.taken / MICRO, self.now]
        elif isinstance(self.meter, SpanMeter):
            is_full = self.closed or self.meter.available() < MICRO
            state["full"] = [self.now, self.whole] if is_full else self.stored.get("full")
        if others := self.others.state():
            state["others"] = others
        if seen := self.stored.get("whole"):  # see tuning/reserved_whole.py
            state["whole"] = seen
        if held := self.hold.state():
            state["held"] = held
        if self.stream:
            state["stream"] = self.stream.opens_at
        return state

    def is_streamed(self, *, crowded: bool) -> bool:
        """Say whether calls from a queue leave in a steady stream and not in a burst."""
        return self.stream is not None and (crowded or is_in_demand(self.algorithm, self.stored, self.meter.now))

    def _is_ahead(self, *, crowded: bool) -> bool:
        if self.stream is None or self.stream.opens_at <= self.meter.now:
            return False
        return self.is_streamed(crowded=crowded)


def paced(state: Mapping[str, Any], now: float, rule: Rule) -> float:
    """
    Return about how much a bucket let through in its last window, in the limit's unit.

    A bucket knows its level and not its past. Each amount therefore fades with the window as time constant. In steady
    use that sums up to rate x window.
    """
    amount, at = state.get("pace", (0.0, now))
    return float(amount * math.exp(-max(0.0, now - at) / (rule.window_seconds or 60)))


def usage(
    rule: Rule, key: str, state: State, now: float, *, pressure: float = 1.0, share: float = 1.0
) -> tuple[float, float]:
    """
    Return how much of its cap a counter has used, with others' part, and the cap; both in the limit's unit.

    A bucket's cap is the provider's quota if it is stated, and otherwise what the bucket lets through in a window.
    """
    full = rule.algorithm(key)
    if full.is_bucket:
        rate = rule.rate_per_second(key) or 0.0
        return paced(state, now, rule), rule.provider_quota or full.capacity + rate * (rule.window_seconds or 60)
    algorithm = rule.algorithm(key, pressure, share)
    own = algorithm.capacity - algorithm.open(state, now).available() / MICRO
    return _with_others(own, others_of(state, now, window_of(rule)), full.capacity), full.capacity


def _with_others(own: float, others: Others, capacity: float) -> float:
    """The used part of a cap. Others count for at most what we leave free, because no more is left for them."""
    return max(own, min(own + others.held, capacity))


def lock_counters(places: Iterable[Place]) -> dict[str, OpenCounter]:
    """
    Lock the counters of these places, adding those that are missing, in the caller's transaction.

    Returns:
        Counters by id, all read after the last lock was taken, by the database's clock of that moment.
    """
    wanted = {counter_id(rule.id, key): (rule, key) for rule, key in places}
    if not wanted:
        return {}
    ids = sorted(wanted)
    if not _known.issuperset(ids):
        _add(ids, wanted)
    rows = run_sql("ratelimits", "lock_counters", {"ids": ids})
    if len(rows) < len(ids):  # somebody deleted idle counters
        _add(ids, wanted)
        rows = run_sql("ratelimits", "lock_counters", {"ids": ids})
    now = max(row[-1] for row in rows)
    return {
        name: open_counter(
            *wanted[name],
            json.loads(state),
            now,
            blocked=(until, reason),
            pressure=Pressure(factor, changed_at),
            level=level,
        )
        for name, state, until, reason, factor, changed_at, level, _ in rows
    }


def open_counter(
    rule: Rule,
    key: str,
    state: State,
    now: float,
    *,
    blocked: tuple[float | None, str] = (None, ""),
    pressure: Pressure = NO_PRESSURE,
    level: int = 0,
) -> OpenCounter:
    """
    Read a counter at one instant, ready to be asked and charged.

    Args:
        blocked: The end of its cool-down, seconds since 1970, and the reason.
        pressure: The pressure as stored after its provider's last refusal.
        level: The highest threshold in percent whose alert is open.
    """
    factor, share = pressure_at(pressure, now), rule.share(now)
    algorithm = rule.algorithm(key, factor, share)
    others, whole = others_of(state, now, window_of(rule)), algorithm.capacity
    if others.held:
        algorithm = rule.algorithm(key, factor, share * others.left(rule.algorithm(key).capacity))
    until, reason = blocked
    hold = hold_of(state, now)
    if hold.until:
        until = max(until or 0.0, hold.next_at)
    if until is None or until <= now:
        until, reason = None, reason if hold.until else ""
    meter = algorithm.open(state, now)
    stream = stream_of(algorithm, state, meter.now)
    opened = (rule, key, algorithm, meter, state, until, reason, factor, level, now, stream, share, others, whole, hold)
    return OpenCounter(*opened)


def counter_of(rule: Rule, key: str, row: Counter | None, now: float) -> OpenCounter:
    """Return a counter at `now`, seconds since 1970. `row`: None if nobody has used the counter."""
    if row is None:
        return open_counter(rule, key, {}, now)
    until = row.blocked_until.timestamp() if row.blocked_until else None
    return open_counter(rule, key, row.state, now, blocked=(until, row.blocked_reason), pressure=pressure_of(row))


def pressure_of(row: Counter) -> Pressure:
    """The pressure as stored, without its recovery since."""
    changed_at = row.pressure_changed_at
    return Pressure(row.pressure, changed_at.timestamp() if changed_at else None, row.pressure_before)


def write_counters(counters: Iterable[OpenCounter]) -> None:
    """Store what changed, and open or resolve the alerts of the thresholds that it crosses."""
    changed = [counter for counter in counters if counter.changed or counter.meter.moved or counter.denials]
    if not changed:
        return
    states = [counter.state() if counter.changed or counter.meter.moved else counter.stored for counter in changed]
    crossed = alerts.watch([_usage(counter, state) for counter, state in zip(changed, states, strict=True)])
    ids = [counter_id(counter.rule.id, counter.key) for counter in changed]
    run_sql(
        "ratelimits",
        "write_counters",
        {
            "ids": ids,
            "states": [json.dumps(state, separators=(",", ":")) for state in states],
            "levels": plain_array([crossed.get(i, c.level) for i, c in zip(ids, changed, strict=True)]),
            "denials": plain_array([counter.denials for counter in changed]),
        },
    )


# Ids of counters that this process knows to exist. Adding them at every decision would cost a statement.
_known: set[str] = set()
MAX_COUNTERS_KNOWN = 200_000


def _add(ids: list[str], wanted: Mapping[str, Place]) -> None:
    parameters = {
        "ids": ids,
        "limits": plain_array([wanted[i][0].id for i in ids]),
        "keys": [wanted[i][1] for i in ids],
    }
    run_sql("ratelimits", "add_counters", parameters)
    # Remember the ids only after the commit. Otherwise another thread takes these counters to exist, locks others first
    # and deadlocks.
    transaction.on_commit(lambda: _remember(ids))


def _remember(ids: list[str]) -> None:
    if len(_known) > MAX_COUNTERS_KNOWN:
        _known.clear()
    _known.update(ids)


def _usage(counter: OpenCounter, state: State) -> alerts.Fullness:
    rule, key, now = counter.rule, counter.key, counter.now
    if counter.algorithm.is_bucket:
        before, _ = usage(rule, key, counter.stored, now)
        used, cap = usage(rule, key, state, now)
    else:
        cap = rule.algorithm(key).capacity
        used = _with_others(counter.own, counter.others, cap)
        before = _with_others(counter.own - counter.taken / MICRO, counter.others, cap)
    return alerts.Fullness(rule, key, before, used, cap, counter.level, now)
