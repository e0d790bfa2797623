"""Remembers in which queues an executor last found ready jobs, so that claims can skip a full scan while it is slow."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from jobs.services.finish.claimed import ClaimedJob
from queueops.core.sql import plain_array, text_array

DEAR_SECONDS = 0.05  # a full scan that takes longer is slow; a scan of a million jobs normally takes a tenth of this
DEAR_SECONDS_A_JOB = 0.0001  # added for each chosen job: choosing and locking a job takes up to half of this
SHARE = 0.1  # while full scans are slow, they take at most this share of the time
MOST = 5_000  # queues
AGE_ROUNDING_SECONDS = 0.001  # ages are rounded: without this a scan could begin just after its first job


class ScanCursor:
    """
    The queues that an executor claimed from, one for each project and tier, and the time that claims reached in each.

    The head of the index is full of dead entries of claimed rows. Vacuum removes them, unless somebody holds a
    transaction open: then every claim would read past all rows that died since. While a full scan is slow, claims begin
    where earlier ones did, and only some scan all queues. Older jobs that are queued again, and new queues, wait for a
    full scan.

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
        """Whether this is a full scan and the last scan found one queue's jobs: try choose_only_queue.sql first."""
        return self._had_one_queue and self._everywhere

    @property
    def is_dear(self) -> bool:
        """Whether the last full scan was slow."""
        return self._clock() < self._dear_until

    def begin(self) -> dict[str, object]:
        """Begin a scan; return the parameters of choose_jobs.sql that say which queues to read."""
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
        """Note which jobs the scan chose."""
        now = self._clock()
        queues = {(job.project, job.priority, job.lane) for job in chosen}
        self._had_one_queue = len(queues) == 1 and chosen[0].lane is None
        if self._everywhere:
            if now - self._begun < DEAR_SECONDS + DEAR_SECONDS_A_JOB * len(chosen):
                self._since.clear()
                return
            self._dear_until = now + (now - self._begun) / SHARE
        elif not chosen:
            self._dear_until = now  # the known queues are empty: the next claim can as well scan all
        first: dict[tuple[str, str], float] = {}
        for job in chosen:
            if job.lane is None:
                key = job.project, job.priority
                first[key] = min(job.claimed_at - job.waited - AGE_ROUNDING_SECONDS, first.get(key, float("inf")))
        self._since |= {key: max(at, self._since.get(key, at)) for key, at in first.items()}
        if len(self._since) > MOST:
            self._since.clear()
