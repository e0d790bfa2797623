"""
Others: who uses a quota besides us, and how much of it is left free for them before they take it.

What they held at most is kept for a window and a part of the next, as a path's bandwidth is by BBR (Cardwell et al.
2016): of a quota that resets they show only towards its end, and an answer that comes late shows less of them than
there is. Nothing is ever added to what we send, and nothing taken from it before an answer leaves no other reading.
"""

from __future__ import annotations

from dataclasses import dataclass

from ratelimits.algorithms.admission import State

# What we always go on with: no call, no answer, and nobody would see that they have gone.
LEAST_LEFT = 0.05
FORGOTTEN_AFTER_WINDOWS = 2


@dataclass(frozen=True, slots=True)
class Others:
    """
    What others held of a quota at most, in the limit's unit: in a window's length from `since`, and in the one before.

    Attributes:
        since: Seconds since 1970.
    """

    since: float = 0.0
    latest: float = 0.0
    before: float = 0.0

    @property
    def held(self) -> float:
        return max(self.latest, self.before)

    def at(self, now: float, window_seconds: float) -> Others:
        """Return what is known of them now; nothing is forgotten in less than a window, and all is after two."""
        windows = (now - self.since) // window_seconds
        if windows < 0:  # the clock has gone back: they are not to be remembered for longer
            return Others(now, self.latest, self.before)
        if windows >= FORGOTTEN_AFTER_WINDOWS:
            return NO_OTHERS
        return self if windows < 1 else Others(self.since + window_seconds, 0.0, self.latest)

    def seen(self, amount: float, now: float, window_seconds: float) -> Others:
        """Return what is known after an answer that shows so much of them."""
        known = self.at(now, window_seconds)
        if amount <= known.latest:
            return known
        return Others(known.since if known.held else now, amount, known.before)

    def left(self, capacity: float) -> float:
        """Return the part of a cap that is ours beside them."""
        return max(LEAST_LEFT, 1 - self.held / capacity) if self.held and capacity > 0 else 1.0

    def state(self) -> list[float] | None:
        return [self.since, self.latest, self.before] if self.held else None


NO_OTHERS = Others()


def others_of(state: State, now: float, window_seconds: float) -> Others:
    """Read them from a counter's state."""
    kept = state.get("others")
    return Others(*kept).at(now, window_seconds) if kept else NO_OTHERS


def shown(missing: float, *, rounded: float = 0.0, freed: float = 0.0) -> float:
    """
    Return what others hold by one answer, in the limit's unit.

    Part of what is missing may be how it was told. So it counts only where something is left without that, and then
    whole, because they may as well hold as much more; but at most twice of what is certain, so that little that went
    astray of our own doesn't keep much free.

    Args:
        missing: How much less the provider has left than our own calls explain.
        rounded: By how much what it told may be off, either way.
        freed: What may have come free at the provider since it told.
    """
    certain = missing - rounded - freed
    return min(missing + rounded, 2 * certain) if certain > 0 else 0.0
