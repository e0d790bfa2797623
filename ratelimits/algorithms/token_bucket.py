"""Token bucket: a steady rate with bounded bursts."""

from __future__ import annotations

import math
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from fractions import Fraction
from typing import ClassVar, Self

from ratelimits.algorithms.admission import STATE_VERSION, Algorithm, State, require_sizes, stored
from ratelimits.algorithms.figures import NOUNS, Figures, Findings, figure, floored, window_of
from ratelimits.algorithms.measures import cost_units, microseconds, require_amount, steady
from ratelimits.costs import PER_CALL

# A burst of 3 % and the slack leave 96.6 % of the quota to the rate: 9 + 4.83/s for 300 a minute.
BURST_SHARE = 0.03
SLACK_SECONDS = 0.25
MAX_SLACK_SHARE = 1 / 8  # of a short window: the slack then costs this share of the quota at most

KEPT_BRIMS = 8


@dataclass(frozen=True, slots=True)
class TokenBucket(Algorithm):
    """
    In any interval of t seconds the admitted cost is at most capacity + rate * t.

    A provider's window therefore sees up to capacity + rate * window: 300 refilled at 5/s lets 600 through
    in one minute. `safe_bucket` chooses figures that fit a quota.

    In an interval that spans a change of figures, the larger capacity and the larger rate set the bound. A raised rate
    counts at once. A raised capacity fills at the rate; otherwise moving a cap up and down would create tokens. A
    lowered capacity drops the tokens above it.

    Args:
        capacity: The largest burst, in the limit's unit; an unused counter is full.
        rate: The refill in a second, in the limit's unit.
        ceiling: See `Algorithm`.
    """

    kind: ClassVar = "token_bucket"
    reads: ClassVar = frozenset({"capacity", "refill_per_second", "window_seconds", "provider_quota"})
    is_bucket: ClassVar = True

    capacity: float
    rate: float
    ceiling: float | None = None

    def __post_init__(self) -> None:
        require_sizes(self)
        require_amount("rate", self.rate)

    def open(self, state: State, now: float) -> TokenMeter:
        """Read a counter's state at `now`, seconds since 1970."""
        return TokenMeter(self, state, microseconds(now))

    @classmethod
    def of(cls, figures: Figures, capacity: float, rate: float, pressure: float) -> Self:
        return cls(capacity * pressure, rate * pressure, ceiling=capacity)

    @property
    def rate_per_second(self) -> float:
        return self.rate

    @classmethod
    def in_words(cls, figures: Figures) -> str:
        refill = float(f"{figures.refill_per_second or 0:.3g}")
        return f"{figure(figures.capacity)} at once and {figure(refill)} {NOUNS[figures.unit]} a second"

    @classmethod
    def check(cls, figures: Figures, found: Findings) -> None:
        """Refuse the bucket trap: a bucket lets its burst and a window's refill through in one provider window."""
        rate, quota = figures.refill_per_second or 0, figures.provider_quota
        passes = cls.bound_in_words(figures, figures.capacity, rate)
        if quota is None:
            found.warnings.append(f"{passes} State the provider's quota to have the figures held against it.")
        # The tolerance is a billionth, as floats do not hold 4.85 exactly. Headroom shrinks both sides alike.
        elif figures.capacity + window_of(figures) * rate > quota * (1 + 1e-9):
            found.refuse("capacity", f"{passes} The provider allows {figure(quota)}. {_safer(figures, quota)}")

    @classmethod
    def bound_in_words(cls, figures: Figures, capacity: float, rate: float) -> str:
        window, noun = window_of(figures), NOUNS[figures.unit]
        return (
            f"Up to {figure(capacity + window * rate)} {noun} may pass in one provider window of {figure(window)} s:"
            f" {figure(capacity)} at once and {figure(window * rate)} refilled meanwhile."
        )

    @classmethod
    def safe(cls, figures: Figures, quota: float) -> dict[str, float | None]:
        bucket = _safe_bucket(figures, quota)
        return {"capacity": bucket.capacity, "refill_per_second": bucket.rate, "provider_quota": quota}

    @classmethod
    def missing(cls, figures: Figures, stated: AbstractSet[str]) -> dict[str, float | None]:
        """Return both figures if only the provider's quota is stated."""
        if stated & {"capacity", "refill_per_second"} or not figures.provider_quota:
            return {}
        try:
            return cls.safe(figures, float(figures.provider_quota))
        except (ValueError, TypeError):  # too small for a bucket: the check then says that the capacity is missing
            return {}


class TokenMeter:
    """
    State: `level`, tokens at the time `at`; below zero after a late charge.

    A rate in units a second is the same number in millionths a microsecond. Refills are rounded down,
    waits up. Both count from the last write and not from the last read, so that reading costs no tokens.

    `brims` as [time, room]: how near the bucket was to running over just before calls were granted. After a refund the
    level is as if only the smaller cost had been charged: tokens that would have run over since are not given back.
    """

    __slots__ = ("_at", "_brims", "_capacity", "_level", "_line", "_per_den", "_per_num", "moved", "now")

    def __init__(self, bucket: TokenBucket, state: State, now: int) -> None:
        self._capacity = cost_units(bucket.capacity)
        self._per_num, self._per_den = bucket.rate.as_integer_ratio()
        self._line: tuple[int, int, int] | None = None
        self.moved = False
        kept = stored(state, "token_bucket")
        if kept is None:
            self._level, self._at, self._brims = self._capacity, now, []
        else:
            now, self.moved = steady(kept["at"], now)
            self._level, self._at = kept["level"], now if self.moved else kept["at"]
            # Times before the clock's step back can't be told from times after it. A call granted before the step
            # gives nothing back.
            self._brims = [list(brim) for brim in kept["brims"]]
            if self.moved:
                self._brims = [[max([kept["at"] + 1, *(time for time, _ in self._brims)]), 0]]
        self.now = now

    def _level_at(self, level: int, at: int, time: int) -> int:
        return min(self._capacity, level + (time - at) * self._per_num // self._per_den)

    def room_for(self, units: int) -> bool:
        return self.available() >= min(units, self._capacity)

    def take(self, units: int) -> int:
        if units:
            level = self.available()
            self._note_brim(self._capacity - level)
            self._level, self._at = level - units, self.now
        return self.now

    def _note_brim(self, room: int) -> None:
        if any(time >= self.now and least <= room for time, least in self._brims):
            return
        self._brims = [brim for brim in self._brims if brim[0] > self.now or brim[1] < room]
        self._brims.append([self.now, room])
        if len(self._brims) > KEPT_BRIMS:
            self._brims.sort()
            (_, room_before), (time, room_then), *later = self._brims
            self._brims = [[time, min(room_before, room_then)], *later]

    def line_up(self, units: int) -> int:
        level, at, ahead = self._line or (self._level, self._at, self.now)
        missing = min(units, self._capacity) - level
        ready = max(ahead, at + -(-missing * self._per_den // self._per_num))
        self._line = (self._level_at(level, at, ready) - units, ready, ready) if units else (level, at, ready)
        return ready

    def give_back(self, units: int, granted_at: int) -> None:
        level = self.available()
        since = [brim for brim in self._brims if brim[0] > granted_at]
        back = min([units, self._capacity - level, *(room for _, room in since)])
        if back > 0:
            self._level, self._at = level + back, self.now
            for brim in since:
                brim[1] -= back

    def available(self) -> int:
        return self._level_at(self._level, self._at, self.now)

    def state(self) -> State:
        return {"v": STATE_VERSION, "kind": "token_bucket", "at": self._at, "level": self._level, "brims": self._brims}


def safe_bucket(
    quota: float,
    *,
    window_seconds: float = 60,
    largest_cost: float = 1,
    slack_seconds: float | None = None,
    ceiling: float | None = None,
) -> TokenBucket:
    """
    Return a bucket that keeps a provider's quota in every window: capacity + window * rate <= quota.

    300 a minute gives 9 + 4.83/s. Calls that are granted in `60 + d` seconds may arrive within 60 seconds: `d` is the
    slack. As calls are whole, 1/rate (0.2 s here) beyond the slack does no harm either.

    Args:
        largest_cost: The cost of the largest call; the burst holds at least one such call.
        slack_seconds: How much later after its grant than others a call may reach its provider. By default a quarter
            of a second, and at most an eighth of the window.

    Raises:
        ValueError: Nothing would be left for the rate; use a sliding window for such a limit.
    """
    require_amount("quota", quota)
    capacity = max(math.floor(quota * BURST_SHARE), largest_cost)
    if capacity >= quota:
        raise ValueError(
            f"a quota of {quota:g} in {window_seconds:g} s has no room for a burst of {capacity:g} and a rate"
        )
    if slack_seconds is None:
        slack_seconds = min(SLACK_SECONDS, window_seconds * MAX_SLACK_SHARE)
    exact = (Fraction(quota) - Fraction(capacity)) / (Fraction(window_seconds) + Fraction(slack_seconds))
    rate = float(exact)
    while Fraction(rate) > exact:
        rate = math.nextafter(rate, 0)
    return TokenBucket(capacity=capacity, rate=rate, ceiling=ceiling)


def _safer(figures: Figures, quota: float) -> str:
    window = f"a sliding window of {figure(quota)}"
    try:
        bucket = _safe_bucket(figures, quota)
    except ValueError:
        return f"Take {window}."
    rate = figure(floored(bucket.rate))
    return f"Safe: a burst of {figure(bucket.capacity)} and a refill of {rate} a second, or {window}."


def _safe_bucket(figures: Figures, quota: float) -> TokenBucket:
    return safe_bucket(
        quota,
        window_seconds=window_of(figures),
        # The estimate of one call is clamped to half the limit. With a smaller burst, larger calls could never go.
        largest_cost=quota / 2 if figures.unit not in PER_CALL else 1,
    )
