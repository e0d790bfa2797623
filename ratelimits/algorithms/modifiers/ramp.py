"""Ramp: the share of every limit that is used after work was resumed, growing evenly to all of it."""

from __future__ import annotations

import math
from dataclasses import dataclass

FIRST_SHARE = 0.05


@dataclass(frozen=True, slots=True)
class Ramp:
    """
    Attributes:
        started_at: Seconds since 1970 by the database's clock; None: the ramp has not begun, and stays at FIRST_SHARE.
        held_share: The share at which the ramp stays until somebody lets it go on; None: it grows.
        slots: What all executors together can carry out at once; above 0.
    """

    started_at: float | None
    over_seconds: float
    held_share: float | None = None
    slots: int = 1

    def __post_init__(self) -> None:
        if not (self.over_seconds > 0 and self.slots > 0):
            raise ValueError(f"a ramp lasts some time and has slots, unlike {self}")
        if self.held_share is not None and not FIRST_SHARE <= self.held_share <= 1:
            raise ValueError(f"a ramp is held between {FIRST_SHARE} and 1, not at {self.held_share}")

    @property
    def grows(self) -> bool:
        return self.held_share is None and self.started_at is not None

    @property
    def ends_at(self) -> float | None:
        """When the whole of every limit is used again, seconds since 1970; None: the ramp is held, or has not begun."""
        return None if self.started_at is None or self.held_share is not None else self.started_at + self.over_seconds

    def share(self, now: float) -> float:
        """The part in use, FIRST_SHARE to 1. If the clock goes back, less is used again, never more."""
        if self.held_share is not None:
            return self.held_share
        if self.started_at is None:
            return FIRST_SHARE
        grown = min(1.0, max(0.0, (now - self.started_at) / self.over_seconds))
        return min(1.0, FIRST_SHARE + (1 - FIRST_SHARE) * grown)

    def sooner(self, at: float, now: float) -> float:
        """
        Return when room really comes, if it would come at `at` with the share of `now`.

        The result is never later than `at`, as the share grows. By then the same amount has passed: the integral of
        the share from `now` on, a parabola up to the ramp's end.
        """
        ends_at, share = self.ends_at, self.share(now)
        if ends_at is None or at <= now or share >= 1:
            return at
        amount = (at - now) * share  # in seconds at the full share
        growth = (1 - FIRST_SHARE) / self.over_seconds
        until_end = min(ends_at - now, self.over_seconds)  # a time before the start counts as the start
        by_end = until_end * (share + 1) / 2
        if amount >= by_end:
            return now + until_end + amount - by_end
        return now + 2 * amount / (share + math.sqrt(share * share + 2 * growth * amount))

    def start_for(self, share: float, now: float) -> float:
        """Return the start, seconds since 1970, from which the ramp would have reached this share by now."""
        return now - self.over_seconds * (share - FIRST_SHARE) / (1 - FIRST_SHARE)
