"""How the limits stand for a call, read without locks and charging nothing: for screens and forecasts."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import chain, islice, repeat
from typing import NamedTuple

from ratelimits.algorithms.admission import Algorithm, State, never_fits
from ratelimits.algorithms.estimates import clamped
from ratelimits.algorithms.measures import MICRO, cost_units, microseconds, seconds
from ratelimits.models import Counter, Unit
from ratelimits.services.limits.catalogue import Rule, rules_for
from ratelimits.subjects import Subject

from .counters import counter_of

LARGE_SHARE = 0.05  # of a limit: smaller calls fill it whatever their order
MOST_LINED = 2000


class Asked(NamedTuple):
    """A call that would like to go. Costs in tokens, as in `decide.Call`."""

    subject: Subject
    cost: float = 1
    known_cost: float | None = None


@dataclass(frozen=True, slots=True)
class LimitForecast:
    """
    One limit and what it means for a call. Times in seconds since 1970, amounts in the limit's unit.

    Attributes:
        free_at: When the call has room, if nothing else comes; None: never, or when a call in flight ends.
        cooled_until: End of a cool-down that lasts still.
        why: Why it is cooled down, or why it never fits.
        rate_per_second: At which a queue behind it drains; None: the calls set the pace.
        pressure: Part of the cap that is used since the provider pushed back; 1: all of it.
    """

    rule: Rule
    key: str
    needed: float
    available: float
    capacity: float
    is_closed: bool
    free_at: float | None
    cooled_until: float | None
    why: str
    rate_per_second: float | None
    pressure: float
    now: float
    algorithm: Algorithm = field(repr=False)
    state: State = field(repr=False, default_factory=dict)

    @property
    def per_call(self) -> bool:
        """Whether every call takes one, whatever it costs."""
        return self.rule.unit != Unit.TOKENS

    @property
    def is_large(self) -> bool:
        """Whether such calls leave room unused that the next does not fit into."""
        return not self.per_call and self.needed > LARGE_SHARE * self.capacity

    def amount_of(self, cost: float, known_cost: float | None) -> float:
        """What a call takes of this limit, in its unit."""
        return 1.0 if self.per_call else clamped(cost, known_cost, self.rule.algorithm(self.key).capacity)

    def passed_at(self, calls: Sequence[tuple[float, float]]) -> float | None:
        """
        Return when the last of the calls has gone through, if nothing else comes; None: no rate is known.

        Small calls go as what is free and the limit's rate let them. Large ones leave room unused that the next does
        not fit into, so they are lined up one by one, MOST_LINED of them, and those behind are taken to go at the pace
        of these. A cool-down comes before all.

        Args:
            calls: In order, what each takes, and how many like it there are.
        """
        if not self.rate_per_second:
            return None
        begins = max(self.now, self.cooled_until or 0.0)
        whole = sum(amount * times for amount, times in calls)
        if max((amount for amount, _ in calls), default=0.0) <= LARGE_SHARE * self.capacity:
            return self._flown_at(whole, begins)
        meter = self.algorithm.open(self.state, begins)
        lined, at = 0.0, begins
        copies = chain.from_iterable(repeat(amount, max(1, int(times))) for amount, times in calls)
        for amount in islice(copies, MOST_LINED):
            at = max(begins, seconds(meter.line_up(cost_units(min(amount, self.capacity)))))
            lined += amount
        return begins + (at - begins) * max(1.0, whole / lined)

    def _flown_at(self, amount: float, begins: float) -> float | None:
        """What is free goes at once and the rest at the rate; of a fixed window, in as many windows as it fills."""
        if not self.rate_per_second:
            return None
        missing = amount - self.available
        if missing <= 0:
            return begins
        reset = self.algorithm.reset_after(microseconds(begins))
        if reset is not None:
            window = self.capacity / self.rate_per_second
            return seconds(reset) + (math.ceil(missing / self.capacity) - 1) * window
        return begins + missing / self.rate_per_second


def look_ahead(calls: Sequence[Asked], *, now: float) -> list[tuple[LimitForecast, ...]]:
    """
    Return what each call meets, shadow limits left out unless they cool down. One read of the counters for all.

    Args:
        now: Seconds since 1970 by the database's clock.
    """
    applied = [rules_for(call.subject) for call in calls]
    ids = {rule.counter_id(call.subject) for call, those in zip(calls, applied, strict=True) for rule in those}
    counters = Counter.objects.in_bulk(ids) if ids else {}
    found = [
        [forecast_of(rule, call, counters.get(rule.counter_id(call.subject)), now) for rule in those]
        for call, those in zip(calls, applied, strict=True)
    ]
    return [tuple(one for one in those if not one.rule.shadow or one.cooled_until is not None) for those in found]


def forecast_of(rule: Rule, call: Asked, counter: Counter | None, now: float) -> LimitForecast:
    """Return how one limit stands for a call; its counter is None before the first use."""
    key = rule.key(call.subject)
    opened = counter_of(rule, key, counter, now)
    algorithm, meter, cooled = opened.algorithm, opened.meter, opened.blocked_until
    full = rule.algorithm(key).capacity
    units = MICRO if rule.unit != Unit.TOKENS else cost_units(clamped(call.cost, call.known_cost, full))
    never = None if rule.shadow else never_fits(algorithm, units)
    has_room = rule.shadow or (never is None and meter.room_for(units))
    available = max(0.0, meter.available() / MICRO)
    free_at: float | None = cooled or now
    if never is not None or (not has_room and rule.unit == Unit.IN_FLIGHT):
        free_at = None
    elif not has_room:
        free_at = max(free_at or now, seconds(meter.line_up(units)))
    return LimitForecast(
        rule=rule,
        key=key,
        needed=units / MICRO,
        available=available,
        capacity=algorithm.capacity,
        is_closed=not has_room or cooled is not None,
        free_at=free_at,
        cooled_until=cooled,
        why=never or opened.blocked_reason,
        rate_per_second=algorithm.rate_per_second,
        pressure=opened.pressure,
        now=now,
        algorithm=algorithm,
        state=opened.stored,
    )
