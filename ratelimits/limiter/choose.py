"""Choosing the member of a pool for a call: the member with the most room for its weight."""

from __future__ import annotations

import threading
from collections.abc import Sequence

from ratelimits.algorithms.measures import MICRO

from .counters import OpenCounter

MAX_REMEMBERED = 10_000

Needs = Sequence[tuple[OpenCounter, int]]


def used_share(needs: Needs) -> float:
    """Return the used part, from 0 to 1, of the fullest limit that would count a call; 0: no limit counts it."""
    return max((_used(counter) for counter, _ in needs if not counter.rule.shadow), default=0.0)


def _used(counter: OpenCounter) -> float:
    capacity = counter.algorithm.capacity
    return 1.0 - max(0.0, counter.meter.available() / MICRO) / capacity if capacity > 0 else 1.0


class MemberTurns:
    """
    Decides by weight which of several equally full members takes the next call, as projects take turns.

    Each process keeps its own turns in memory. If no limit counts a pool's calls, these turns alone spread them.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._passes: dict[str, float] = {}
        self._now = 0.0

    def standing(self, member: str) -> float:
        return max(self._passes.get(member, 0.0), self._now)

    def served(self, member: str, weight: float) -> None:
        with self._lock:
            start = self.standing(member)
            if len(self._passes) > MAX_REMEMBERED:
                self._passes.clear()
            self._passes[member] = start + 1 / weight
            # `_now` does not wait for the lowest pass: with many pools an idle member would hold it back for ever. A
            # pass below `_now` counts as `_now`.
            self._now = max(self._now, start - 1 / weight)


turns = MemberTurns()
