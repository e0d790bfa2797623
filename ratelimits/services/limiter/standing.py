"""What a counter's row means at an instant: for who looks without locking."""

from __future__ import annotations

from dataclasses import dataclass

from ratelimits.algorithms.admission import Algorithm, Meter
from ratelimits.algorithms.pressure import Pressure, pressure_at
from ratelimits.models import Counter
from ratelimits.services.limits.catalogue import Rule


@dataclass(frozen=True, slots=True)
class CounterStanding:
    """
    Attributes:
        pressure: The part of the cap in use, recovered since the provider pushed back.
        cooled_until: End of a cool-down that lasts still, seconds since 1970.
        cooled_because: Empty where none does.
    """

    algorithm: Algorithm
    meter: Meter
    pressure: float
    cooled_until: float | None
    cooled_because: str

    @property
    def is_slowed(self) -> bool:
        return self.cooled_until is not None or self.pressure < 1


def standing_of(rule: Rule, key: str, counter: Counter | None, now: float) -> CounterStanding:
    """Return how a counter stands at `now`, seconds since 1970; None: nobody has used it."""
    pressure = pressure_at(pressure_of(counter), now) if counter else 1.0
    algorithm = rule.algorithm(key, pressure)
    meter = algorithm.open(counter.state if counter else {}, now)
    until = counter.blocked_until.timestamp() if counter and counter.blocked_until else None
    if counter is None or until is None or until <= now:
        return CounterStanding(algorithm, meter, pressure, None, "")
    return CounterStanding(algorithm, meter, pressure, until, counter.blocked_reason)


def pressure_of(counter: Counter) -> Pressure:
    """The pressure as it is stored, not recovered since."""
    changed_at = counter.pressure_changed_at
    return Pressure(counter.pressure, changed_at.timestamp() if changed_at else None, counter.pressure_before)
