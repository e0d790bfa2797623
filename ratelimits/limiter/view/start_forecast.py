"""How much room the limits have for a call. For screens and forecasts: reads without locks and charges nothing."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from ratelimits.algorithms.admission import never_fits
from ratelimits.algorithms.figures import NOUNS
from ratelimits.algorithms.measures import MICRO, cost_units, seconds
from ratelimits.costs import NO_AMOUNTS, UNTIL_THE_END, Amounts
from ratelimits.limiter.call_units import Costly, needed
from ratelimits.limiter.counters import OpenCounter, counter_of
from ratelimits.limiter.drain import LARGE_SHARE, Calls, passed_at
from ratelimits.limits.alternatives import counted_as
from ratelimits.limits.catalogue import Rule, rules_for
from ratelimits.models import Counter
from ratelimits.subjects import Subject


class Asked(NamedTuple):
    """A call that would like to go. Costs in tokens, and amounts by unit, as in `decide.Call`."""

    subject: Subject
    cost: float = 1
    known_cost: float | None = None
    amounts: Amounts = NO_AMOUNTS


@dataclass(frozen=True, slots=True)
class LimitForecast:
    """
    One limit and what it means for a call. Times in seconds since 1970, amounts in the limit's unit.

    Attributes:
        free_at: When the call has room, if nothing else comes; None: never, or when a call in flight ends.
        cooled_until: End of a cool-down that still lasts.
        why: Why the limit is cooled down, or why the call never fits.
        rate_per_second: The pace at which a queue behind the limit drains; None: the length of the calls sets the pace.
        pressure: Part of the cap that is used since the provider pushed back; 1: all of it.
        share: Part of the remaining cap that a ramp leaves open; 1: all of it.
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
    share: float
    counter: OpenCounter = field(repr=False)

    @property
    def per_call(self) -> bool:
        """Whether every call takes one unit of the limit, whatever the call costs."""
        return self.rule.per_call

    @property
    def noun(self) -> str:
        """The limit's unit as people call it."""
        return "calls" if self.per_call else NOUNS[self.rule.unit]

    @property
    def is_large(self) -> bool:
        """Whether such calls leave room unused into which the next call does not fit."""
        return not self.per_call and self.needed > LARGE_SHARE * self.capacity

    def amount_of(self, call: Costly) -> float:
        """The amount that a call takes of this limit, in its unit."""
        return 1.0 if self.per_call else needed(self.rule, self.key, call)

    def passed_at(self, calls: Calls, *, crowded: bool = False) -> float | None:
        """See `drain.passed_at`."""
        return passed_at(self.counter, calls, crowded=crowded)


def look_ahead(calls: Sequence[Asked], *, now: float) -> list[tuple[LimitForecast, ...]]:
    """
    Return the limits that each call meets, without shadow limits unless they cool down. Reads all counters at once.

    A pool's call meets the limits of the member that has room first.

    Args:
        now: Seconds since 1970 by the database's clock.
    """
    options = [[call._replace(subject=one) for one in counted_as(call.subject)] for call in calls]
    applied = [[(one, rules_for(one.subject, queued=True)) for one in those] for those in options]
    ids = {rule.counter_id(one.subject) for those in applied for one, rules in those for rule in rules}
    counters = Counter.objects.in_bulk(ids) if ids else {}

    def met(one: Asked, rules: Sequence[Rule]) -> tuple[LimitForecast, ...]:
        found = [forecast_of(rule, one, counters.get(rule.counter_id(one.subject)), now) for rule in rules]
        return tuple(limit for limit in found if not limit.rule.shadow or limit.cooled_until is not None)

    return [min((met(*option) for option in those), key=_free_at, default=()) for those in applied]


def _free_at(limits: Sequence[LimitForecast]) -> float:
    """Return when the last of the limits has room; infinite if nobody knows."""
    return max((math.inf if limit.free_at is None else limit.free_at for limit in limits), default=0.0)


def forecast_of(rule: Rule, call: Asked, counter: Counter | None, now: float) -> LimitForecast:
    """Return how one limit stands for a call; its counter is None before the first use."""
    key = rule.key(call.subject)
    opened = counter_of(rule, key, counter, now)
    algorithm, meter, cooled = opened.algorithm, opened.meter, opened.cooled_until
    units = MICRO if rule.per_call else cost_units(needed(rule, key, call))
    never = None if rule.shadow else never_fits(algorithm, units)
    has_room = rule.shadow or (never is None and meter.room_for(units))
    available = max(0.0, meter.available() / MICRO)
    free_at: float | None = cooled or now
    if never is not None or (not has_room and rule.unit in UNTIL_THE_END):
        free_at = None
    elif not has_room:
        free_at = max(free_at or now, opened.sooner(seconds(meter.line_up(units))))
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
        share=opened.share,
        counter=opened,
    )
