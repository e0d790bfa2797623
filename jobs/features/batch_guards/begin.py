"""Begins a batch's guard at its submission: how many of its jobs go at once, and when the batch is to stop itself."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

from jobs.models import Batch
from jobs.services.submit.documents.accept_document import CHUNK_BYTES, JOBS_OF_AN_INSERT, size_of
from jobs.services.submit.prepare import PreparedJob
from jobs.states import GuardState
from queueops.tenancy.models import Project

OUT = 2  # for each deciding job, at most so many jobs go before the deciding jobs have ended


class BatchTrial:
    """
    The division of a batch into jobs that go at once and jobs that are held until the first have ended.

    A scheduled job, a job that waits for others, and a job that goes by its provider's batch are neither held nor
    counted. Such a job does not run at once. If it counted as one of the first jobs, held jobs might wait a day for it,
    and then a day themselves.

    Args:
        first: How many jobs decide about the batch; None: as many as the project says.
        percent: The share of failed jobs at which the batch stops itself, 0: never; None: as the project says.
    """

    def __init__(self, project_id: str, *, first: int | None, percent: int | None) -> None:
        policy = Project.objects.only("guard_first", "guard_percent", "guard_over").get(pk=project_id)
        self._first = policy.guard_first if first is None else first
        self._percent = policy.guard_percent if percent is None else percent
        is_asked_for = bool(first or percent) and percent != 0
        self._over = 0 if is_asked_for else policy.guard_over
        self._holds = self._percent > 0
        self._out = 0
        self._until: UUID | None = None
        self._is_holding = False

    def see(self, chunk: Sequence[PreparedJob], *, seen: int) -> None:
        """Look at a chunk before it is inserted; if it ends a small batch, nothing is held."""
        is_all = len(chunk) < JOBS_OF_AN_INSERT and sum(size_of(job) for job in chunk) < CHUNK_BYTES
        if is_all and seen + len(chunk) <= max(self._over, OUT * self._first):
            self._holds = False

    @property
    def is_full(self) -> bool:
        """Whether enough jobs go at once, and the others are held; also true if the batch holds no job."""
        return not self._holds or self._out >= OUT * self._first

    def divide(self, jobs: list[PreparedJob]) -> tuple[list[PreparedJob], list[PreparedJob]]:
        """Return the jobs that may go now, and the others. Until the trial is full, the others may go as well."""
        if not self._holds:
            return jobs, []
        go: list[PreparedJob] = []
        wait: list[PreparedJob] = []
        room = OUT * self._first - self._out
        for job in jobs:
            counts = _goes_at_once(job) and not self._is_before_the_held(job)
            (wait if counts and room <= 0 else go).append(job)
            room -= counts
        return go, wait

    def count(self, jobs: list[PreparedJob], added: set[UUID]) -> None:
        """
        Count which of the jobs that may go now were inserted.

        A line that an older job's key makes a duplicate must not count: the trial would wait for a job that was never
        made.
        """
        for job in jobs if self._holds else ():
            if job.id in added and _goes_at_once(job):
                self._out += 1
                self._until = max(self._until or job.id, job.id)

    def hold(self, added: set[UUID]) -> None:
        """Note which inserted jobs are held."""
        self._is_holding |= bool(added)

    def settle(self, batch: Batch, *, accepted: int) -> None:
        """Write the trial on the batch. If the batch is small after all, its held jobs are let go within a second."""
        batch.trial_until = self._until if self._is_holding else None
        if self._percent and accepted > self._over:
            batch.guard = {"first": self._first, "percent": self._percent}
            batch.guard_state = GuardState.TRIAL

    def _is_before_the_held(self, job: PreparedJob) -> bool:
        # A line that was inserted only at a second try, because its key was taken before, may be earlier than the first
        # jobs. Do not hold it: the guard lets go only jobs after `trial_until`, so it would be held for ever.
        return self._until is not None and job.id <= self._until


def _goes_at_once(job: PreparedJob) -> bool:
    spec = job.spec
    has_time = spec.scheduled_at is not None or spec.delay_seconds or spec.debounce_seconds
    return not has_time and not spec.after and job.way.via != "batch"
