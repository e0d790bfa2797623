"""
Others: programs that use a quota besides us, and how much of the quota we keep free for their next calls.

The most that they held is kept for a window and a part of the next, as BBR keeps a path's bandwidth (Cardwell et al.
2016). In a quota that resets, use by others shows only towards the window's end. A late answer shows less of that use
than there is. Such an answer never makes us send more. We send less only once an answer allows no other reading.
"""

from __future__ import annotations

from dataclasses import dataclass

from ratelimits.algorithms.admission import State

# The part of a cap that we always use: without calls there are no answers, and nobody would see that others stopped.
MIN_LEFT = 0.05
FORGOTTEN_AFTER_WINDOWS = 2


@dataclass(frozen=True, slots=True)
class Others:
    """
    The most that others held of a quota, in the limit's unit.

    Attributes:
        since: When the time of `latest` began, seconds since 1970.
        latest: The most held in the window's length from `since` on.
        before: The most held in the window's length before `since`.
    """

    since: float = 0.0
    latest: float = 0.0
    before: float = 0.0

    @property
    def held(self) -> float:
        return max(self.latest, self.before)

    def at(self, now: float, window_seconds: float) -> Others:
        """Return what is known of the others now. It is kept for at least one window and forgotten after two."""
        windows = (now - self.since) // window_seconds
        if windows < 0:  # the clock has gone back: start `since` anew, or the amounts would be kept too long
            return Others(now, self.latest, self.before)
        if windows >= FORGOTTEN_AFTER_WINDOWS:
            return NO_OTHERS
        return self if windows < 1 else Others(self.since + window_seconds, 0.0, self.latest)

    def seen(self, amount: float, now: float, window_seconds: float) -> Others:
        """Return what is known after an answer shows that others hold `amount`."""
        known = self.at(now, window_seconds)
        if amount <= known.latest:
            return known
        return Others(known.since if known.held else now, amount, known.before)

    def left(self, capacity: float) -> float:
        """Return the part of a cap that others leave to us."""
        return max(MIN_LEFT, 1 - self.held / capacity) if self.held and capacity > 0 else 1.0

    def state(self) -> list[float] | None:
        return [self.since, self.latest, self.before] if self.held else None


NO_OTHERS = Others()


def others_of(state: State, now: float, window_seconds: float) -> Others:
    """Read what others hold from a counter's state."""
    kept = state.get("others")
    return Others(*kept).at(now, window_seconds) if kept else NO_OTHERS


def shown(missing: float, *, rounded: float = 0.0, freed: float = 0.0) -> float:
    """
    Return what others hold according to one answer of the provider, in the limit's unit.

    Rounding and delay may explain a part of what is missing. The rest is certain. If nothing is certain, others hold
    nothing. If a part is certain, others may hold `rounded` more than is missing. The result is at most twice the
    certain part, so that a small loss among our own calls doesn't keep much free.

    Args:
        missing: How much less the provider has left than our own calls explain.
        rounded: By how much the provider's figure may be off, either way.
        freed: What may have come free at the provider since it stated the figure.
    """
    certain = missing - rounded - freed
    return min(missing + rounded, 2 * certain) if certain > 0 else 0.0
