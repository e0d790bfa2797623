"""The places where an executor last found ready jobs, for times when a look everywhere is slow."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from jobs.services.finish.claimed import ClaimedJob
from queueops.core.sql import plain_array, text_array

DEAR_SECONDS = 0.05  # a choice among a million jobs takes a tenth of it
SHARE = 0.1  # at most this share of the time goes into looks everywhere while they are slow
MOST = 5_000
AGE_ROUNDING_SECONDS = 0.001  # an age is a rounded difference


class ScanCursor:
    """
    The queues that an executor claimed from, one a project and tier, and how far it came in each.

    The head of the index is full of rows that were claimed. Vacuum removes them, unless somebody holds a transaction
    open: then every claim would read past all rows that died since. While a look everywhere is slow, claims begin where
    the last ones did, and only some look everywhere. Older jobs that came back and new queues wait for such a look.

    Args:
        clock: Seconds, monotonic.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._since: dict[tuple[str, str], float] = {}
        self._dear_until = self._begun = float("-inf")
        self._everywhere = True
        self._had_one_queue = False

    @property
    def had_one_queue(self) -> bool:
        """Whether this look is everywhere, and the last one found jobs of one queue: that is asked for first."""
        return self._had_one_queue and self._everywhere

    @property
    def is_dear(self) -> bool:
        """Whether looking everywhere took long when it was last done."""
        return self._clock() < self._dear_until

    def begin(self) -> dict[str, object]:
        """Begin a look; return what the statement needs to know of where to look."""
        self._begun = self._clock()
        since = self._since if self._begun < self._dear_until else {}
        self._everywhere = not since
        return {
            "known_projects": text_array([project for project, _ in since]),
            "known_priorities": text_array([priority for _, priority in since]),
            "known_since": plain_array(list(since.values())),
            "everywhere": self._everywhere,
        }

    def end(self, chosen: Sequence[ClaimedJob]) -> None:
        """Note what the look found."""
        now = self._clock()
        queues = {(job.project, job.priority, job.lane) for job in chosen}
        self._had_one_queue = len(queues) == 1 and chosen[0].lane is None
        if self._everywhere:
            if now - self._begun < DEAR_SECONDS:
                self._since.clear()
                return
            self._dear_until = now + (now - self._begun) / SHARE
        elif not chosen:
            self._dear_until = now  # nothing better is to be done
        first: dict[tuple[str, str], float] = {}
        for job in chosen:
            if job.lane is None:
                key = job.project, job.priority
                first[key] = min(job.claimed_at - job.waited - AGE_ROUNDING_SECONDS, first.get(key, float("inf")))
        self._since |= {key: max(at, self._since.get(key, at)) for key, at in first.items()}
        if len(self._since) > MOST:
            self._since.clear()
