"""How the limits stand for a call, read without locks and charging nothing: for screens and forecasts."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from ratelimits.algorithms.admission import Algorithm, never_fits
from ratelimits.algorithms.estimates import clamped
from ratelimits.algorithms.fixed_window import FixedWindow
from ratelimits.algorithms.measures import MICRO, cost_units, microseconds, seconds
from ratelimits.models import Counter, Unit
from ratelimits.subjects import Subject

from .catalogue import WHOLE_DAY_SECONDS, Rule, rules_for
from .standing import standing_of


class Asked(NamedTuple):
    """A call that would like to go. Costs in tokens, as in `decide.Call`."""

    subject: Subject
    cost: float = 1
    known_cost: float | None = None


@dataclass(frozen=True, slots=True)
class Outlook:
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

    @property
    def per_call(self) -> bool:
        """Whether every call takes one, whatever it costs."""
        return self.rule.unit != Unit.TOKENS

    def passed_at(self, amount: float) -> float | None:
        """
        Return when the last of `amount` has gone through, if nothing else comes; None: no rate is known.

        What is free goes at once and the rest at the limit's rate; of a fixed window, in as many windows as it fills.
        A cool-down comes before all of it.
        """
        if not self.rate_per_second:
            return None
        begins = max(self.now, self.cooled_until or 0.0)
        missing = amount - self.available
        if missing <= 0:
            return begins
        if isinstance(self.algorithm, FixedWindow):
            reset = seconds(self.algorithm.reset_after(microseconds(begins)))
            window = self.rule.window_seconds if not self.rule.reset_zone else None
            return reset + (math.ceil(missing / self.capacity) - 1) * (window or WHOLE_DAY_SECONDS)
        return begins + missing / self.rate_per_second


def look_ahead(calls: Sequence[Asked], *, now: float) -> list[tuple[Outlook, ...]]:
    """
    Return what each call meets, shadow limits left out unless they cool down. One read of the counters for all.

    Args:
        now: Seconds since 1970 by the database's clock.
    """
    applied = [rules_for(call.subject) for call in calls]
    ids = {rule.counter_id(call.subject) for call, those in zip(calls, applied, strict=True) for rule in those}
    counters = Counter.objects.in_bulk(ids) if ids else {}
    found = [
        [outlook_of(rule, call, counters.get(rule.counter_id(call.subject)), now) for rule in those]
        for call, those in zip(calls, applied, strict=True)
    ]
    return [tuple(one for one in those if not one.rule.shadow or one.cooled_until is not None) for those in found]


def outlook_of(rule: Rule, call: Asked, counter: Counter | None, now: float) -> Outlook:
    """Return how one limit stands for a call; its counter is None before the first use."""
    key = rule.key(call.subject)
    standing = standing_of(rule, key, counter, now)
    algorithm, meter, cooled = standing.algorithm, standing.meter, standing.cooled_until
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
    return Outlook(
        rule=rule,
        key=key,
        needed=units / MICRO,
        available=available,
        capacity=algorithm.capacity,
        is_closed=not has_room or cooled is not None,
        free_at=free_at,
        cooled_until=cooled,
        why=never or standing.cooled_because,
        rate_per_second=rule.rate_per_second(key, standing.pressure),
        pressure=standing.pressure,
        now=now,
        algorithm=algorithm,
    )
