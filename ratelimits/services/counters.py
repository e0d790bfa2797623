"""Counters in one transaction's hands: locked in one order, changed in memory, written once."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from django.db import transaction

from queueops.core.sql import plain_array, run_sql
from ratelimits.algorithms.admission import Algorithm, Meter, State
from ratelimits.algorithms.measures import MICRO, cost_units, microseconds, seconds
from ratelimits.algorithms.pressure import Pressure, pressure_at
from ratelimits.algorithms.sliding_window import BUCKETS, SlidingWindow
from ratelimits.algorithms.spans import SpanMeter
from ratelimits.models import Limit
from ratelimits.subjects import counter_id

from . import alerts
from .catalogue import Rule

STREAM_BUCKETS = 5  # of a window's BUCKETS
STREAM_SHARE = STREAM_BUCKETS / BUCKETS
STREAM_EXCESS = 1.1
# A burst of fewer calls, in the limit's unit, or within a longer window's slack reaches its provider in time.
LEAST_STREAM = 20
LONGEST_STREAM_SECONDS = 300

PACED = frozenset({Limit.Algorithm.TOKEN_BUCKET, Limit.Algorithm.LEAKY_BUCKET})

Place = tuple[Rule, str]
"""A rule and the key it is counted under: what a counter is for."""


@dataclass(slots=True)
class OpenCounter:
    """
    One locked counter.

    Attributes:
        closed: It refused a call; smaller ones behind must not overtake that one.
        blocked_until: End of a cool-down, seconds since 1970.
    """

    rule: Rule
    key: str
    algorithm: Algorithm
    meter: Meter
    stored: State
    blocked_until: float | None
    blocked_reason: str
    level: int
    now: float
    taken: int = 0
    changed: bool = False
    closed: bool = False
    denials: int = 0

    def room_for(self, units: int, *, paced: bool = False, crowded: bool = False) -> bool:
        """
        Say whether a call may be granted.

        Args:
            paced: Also not sooner than a window's stream lets it go, see `stream_room`.
            crowded: More calls wait than a window admits.
        """
        return self.meter.room_for(units) and not (
            paced and stream_is_full(self.algorithm, self.stored, self.meter, units, crowded=crowded)
        )

    def take(self, units: int) -> int:
        """Charge, and return the time it counts from, in microseconds since 1970."""
        self.meter.take(units)
        self.taken += units
        self.changed = True
        return self.meter.now

    def give_back(self, units: int, granted_at: int) -> None:
        """Uncharge what was charged at a time, unless that time's window is over."""
        self.meter.give_back(units, granted_at)
        self.changed = True

    def state(self) -> State:
        state = self.meter.state()
        if self.rule.algorithm_name in PACED:
            state["pace"] = [paced(self.stored, self.now, self.rule) + self.taken / MICRO, self.now]
        elif isinstance(self.meter, SpanMeter):
            is_full = self.closed or self.meter.available() < MICRO
            state["full"] = [self.now, self.algorithm.capacity] if is_full else self.stored.get("full")
        return state


def paced(state: Mapping[str, Any], now: float, rule: Rule) -> float:
    """
    Return about how much a bucket let through in its last window, in the limit's unit.

    A bucket knows its level and not its past. So each amount fades with the window as time constant, which in steady
    use sums up to rate x window.
    """
    amount, at = state.get("pace", (0.0, now))
    return float(amount * math.exp(-max(0.0, now - at) / (rule.window_seconds or 60)))


def stream_room(algorithm: Algorithm, state: State, meter: Meter, *, crowded: bool) -> int | None:
    """
    Return the millionths that may go now without a burst; None: a burst is welcome.

    What leaves in a burst comes back in a burst, a window later, for as long as work waits; and a burst takes its time
    to reach the provider, so the end of one and the beginning of the next would meet in one of its windows. So while
    more waits than a window admits, and where one has been full of late, calls leave in a stream: in a twelfth of a
    window a tenth more than its share, and one call. An unused window admits what it holds at once otherwise.
    """
    if not isinstance(algorithm, SlidingWindow) or not isinstance(meter, SpanMeter):
        return None
    if algorithm.capacity < LEAST_STREAM or algorithm.window_seconds > LONGEST_STREAM_SECONDS:
        return None
    if not crowded and not _was_full(algorithm, state, meter):
        return None
    width = -(-microseconds(algorithm.window_seconds) // BUCKETS)
    # The current bucket is one of them. With one more, a share would last longer than its part of the window.
    since = meter.now - (STREAM_BUCKETS - 1) * width
    return max(0, _stream_share(algorithm) - meter.taken_since(since))


def stream_is_full(algorithm: Algorithm, state: State, meter: Meter, units: int, *, crowded: bool) -> bool:
    """Say whether a call must wait for the stream; one larger than its share goes when nothing went of late."""
    room = stream_room(algorithm, state, meter, crowded=crowded)
    return room is not None and units > room and room < _stream_share(algorithm)


def stream_goes_on_at(algorithm: Algorithm, now: float) -> float:
    """Return when a full stream lets the next call go, seconds since 1970: as soon as another sub-bucket begins."""
    if not isinstance(algorithm, SlidingWindow):
        return now
    width = -(-microseconds(algorithm.window_seconds) // BUCKETS)
    return seconds((microseconds(now) // width + 1) * width)


def _was_full(algorithm: SlidingWindow, state: State, meter: SpanMeter) -> bool:
    if not state.get("full"):
        return False
    full_at, capacity = state["full"]
    # A raised cap takes effect at once.
    is_news = meter.now - microseconds(full_at) <= 2 * microseconds(algorithm.window_seconds)
    return is_news and algorithm.capacity <= float(capacity)


def _stream_share(algorithm: Algorithm) -> int:
    return cost_units(algorithm.capacity * STREAM_SHARE * STREAM_EXCESS) + MICRO - 1


def usage(rule: Rule, key: str, state: State, now: float, *, pressure: float = 1.0) -> tuple[float, float]:
    """
    Return how much of its cap a counter has used, and the cap, both in the limit's unit.

    A bucket's cap is the provider's quota where it is stated, and otherwise what it lets through in a window.
    """
    full = rule.algorithm(key)
    if rule.algorithm_name in PACED:
        rate = rule.rate_per_second(key) or 0.0
        return paced(state, now, rule), rule.provider_quota or full.capacity + rate * (rule.window_seconds or 60)
    algorithm = rule.algorithm(key, pressure)
    return algorithm.capacity - algorithm.open(state, now).available() / MICRO, full.capacity


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
    if len(rows) < len(ids):  # somebody deleted idle ones
        _add(ids, wanted)
        rows = run_sql("ratelimits", "lock_counters", {"ids": ids})
    now = max(row[-1] for row in rows)
    return {row[0]: _opened(*wanted[row[0]], row, now) for row in rows}


def write_counters(counters: Iterable[OpenCounter]) -> None:
    """Store what changed, and raise or resolve the alerts that this crosses."""
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


# Ids that exist, as far as this process knows: adding them anew each time would cost a statement.
_known: set[str] = set()
MOST_KNOWN = 200_000


def _add(ids: list[str], wanted: Mapping[str, Place]) -> None:
    parameters = {
        "ids": ids,
        "limits": plain_array([wanted[i][0].id for i in ids]),
        "keys": [wanted[i][1] for i in ids],
    }
    run_sql("ratelimits", "add_counters", parameters)
    # Not before they are committed: another thread would take them for there, lock the others first, and deadlock.
    transaction.on_commit(lambda: _remember(ids))


def _remember(ids: list[str]) -> None:
    if len(_known) > MOST_KNOWN:
        _known.clear()
    _known.update(ids)


def _opened(rule: Rule, key: str, row: tuple[Any, ...], now: float) -> OpenCounter:
    _, text, blocked_until, blocked_reason, factor, changed_at, level, _ = row
    state = json.loads(text)
    algorithm = rule.algorithm(key, pressure_at(Pressure(factor, changed_at), now))
    if blocked_until is not None and blocked_until <= now:
        blocked_until = None
    return OpenCounter(
        rule, key, algorithm, algorithm.open(state, now), state, blocked_until, blocked_reason, level, now
    )


def _usage(counter: OpenCounter, state: State) -> alerts.Usage:
    rule, key, now = counter.rule, counter.key, counter.now
    if rule.algorithm_name in PACED:
        before, _ = usage(rule, key, counter.stored, now)
        used, cap = usage(rule, key, state, now)
    else:
        cap = rule.algorithm(key).capacity
        used = counter.algorithm.capacity - counter.meter.available() / MICRO
        before = used - counter.taken / MICRO
    return alerts.Usage(rule, key, before, used, cap, counter.level, now)
