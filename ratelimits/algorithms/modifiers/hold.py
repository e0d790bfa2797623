"""
Holds: a provider asks us to wait for longer than its quota's window explains, and may mean it or not.

The limiter waits for up to MAX_UNPROVEN, or for the window where that is longer. During the rest of a longer delay
a single call goes each PROBE_SECONDS. Once such a call is not refused, the hold is over.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

MAX_UNPROVEN = 900.0
PROBE_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class HeldDelay:
    """
    Attributes:
        until: The end of the delay that was stated, seconds since 1970; 0: nothing is held.
        next_at: When the next call may try whether the hold is over.
        is_probed: A probe call has gone and was not refused so far. If it is not refused until `next_at`, the hold is
            over.
    """

    until: float = 0.0
    next_at: float = 0.0
    is_probed: bool = False

    def probed(self, now: float) -> HeldDelay:
        """Return the hold after a probe call has gone."""
        return HeldDelay(self.until, now + PROBE_SECONDS, is_probed=True)

    def refused(self, now: float) -> HeldDelay:
        """Return the hold after a refusal, also of a call that was sent before the hold."""
        return HeldDelay(self.until, max(self.next_at, now + PROBE_SECONDS))

    def state(self) -> list[float] | None:
        return [self.until, self.next_at, float(self.is_probed)] if self.until else None


NO_HOLD = HeldDelay()


def hold_of(state: Mapping[str, Any], now: float) -> HeldDelay:
    """Read a counter's hold as it is at `now`."""
    until, next_at, probed = state.get("held") or (0.0, 0.0, 0.0)
    if until <= now or (probed and next_at <= now):
        return NO_HOLD
    return HeldDelay(until, next_at, bool(probed))


def obeyed(delay: float, window_seconds: float) -> float:
    """Return how many seconds of a stated delay all calls wait, before a single call probes the provider."""
    return min(delay, max(window_seconds, MAX_UNPROVEN))
