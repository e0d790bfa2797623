"""Tells how the jobs of a bulk requeue ended, and how the first jobs of any operation did."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Any, NamedTuple
from uuid import UUID

from django.db.models import QuerySet

from jobs.errors import InvalidPace
from jobs.models import BulkOperation, CanaryState, DeadLetter, Job
from jobs.states import TERMINAL, JobState

MIN_ENDED = 20  # with fewer ended jobs a share says little
CANARY_PERCENT = 20
MAX_CANARIES = 1_000
NEWEST_REQUEUED = 2_000  # only the newest requeued jobs count, as the cause of older failures may be repaired


@dataclass(frozen=True, slots=True)
class RequeueOutcome:
    """
    Attributes:
        requeued: How many requeued jobs were read, the newest ones.
        unfinished: Jobs that have not ended yet.
    """

    requeued: int
    completed: int
    failed: int
    unfinished: int

    @property
    def ended(self) -> int:
        return self.requeued - self.unfinished

    @property
    def failed_percent(self) -> float:
        return 100 * self.failed / self.ended if self.ended else 0.0


def requeue_outcome(operation_id: UUID, *, newest: int = NEWEST_REQUEUED) -> RequeueOutcome:
    """Look at the newest jobs that the operation made; reads only their index entries and rows."""
    letters = DeadLetter.objects.filter(operation_id=operation_id, requeued_as__isnull=False).order_by("-pk")
    states = Counter(letters.values_list("requeued_as__status", flat=True)[:newest])
    return RequeueOutcome(
        requeued=states.total(),
        completed=states[JobState.COMPLETED],
        failed=states[JobState.FAILED],
        unfinished=sum(count for state, count in states.items() if state not in TERMINAL),
    )


class Canary(NamedTuple):
    """
    A part of a bulk operation that goes first; the rest follows once all its jobs have ended well enough.

    `rows`: 1 to MAX_CANARIES. `percent`: the operation ends when this share of them fails with one code.
    """

    rows: int
    percent: int = CANARY_PERCENT

    def check(self) -> None:
        """
        Raises:
            InvalidPace
        """
        if not 1 <= self.rows <= MAX_CANARIES:
            raise InvalidPace(fields={"canary": [f"from 1 to {MAX_CANARIES:,}"]})
        if not 1 <= self.percent <= 100:  # noqa: PLR2004 - percent
            raise InvalidPace(fields={"canary_percent": ["from 1 to 100"]})

    def columns(self) -> dict[str, Any]:
        return {"canary": self.rows, "canary_percent": self.percent, "canary_state": CanaryState.TRYING}


class CanaryOutcome(NamedTuple):
    """`failed`: how many jobs have failed with `code`, the most frequent error code."""

    jobs: int
    ended: int
    failed: int
    code: str

    def fault(self, operation: BulkOperation) -> str:
        """Say why the operation is to end; empty: it goes on."""
        if not self.failed or self.failed * 100 < operation.canary_percent * self.jobs:
            return ""
        return (
            f"Stopped: {self.failed:,} of the {self.jobs:,} jobs that went first failed with {self.code}"
            f" ({100 * self.failed / self.jobs:.0f} %, the limit is {operation.canary_percent} %)."
            " The rest is as it was: go on, or leave it."
        )


def canary_outcome(operation: BulkOperation) -> CanaryOutcome:
    """Look at the jobs of the rows that went first; a job that was deleted meanwhile counts as ended."""
    rows = operation.canary_rows
    if operation.action == "requeue_dead_letters":
        letters = DeadLetter.objects.filter(pk__in=rows, requeued_as__isnull=False)
        found = list(letters.values_list("requeued_as__status", "requeued_as__last_error_code"))
    else:
        found = list(Job.objects.filter(pk__in=rows).values_list("status", "last_error_code"))
    open_ones = sum(status not in TERMINAL for status, _ in found)
    codes = Counter(code for status, code in found if status == JobState.FAILED)
    [(code, failed)] = codes.most_common(1) or [("", 0)]
    return CanaryOutcome(len(rows), len(rows) - open_ones, failed, code)


def failed_again(operation_id: UUID, *, most: int) -> QuerySet[DeadLetter]:
    """Return the newest dead letters of jobs that the operation made."""
    made = DeadLetter.objects.filter(operation_id=operation_id, requeued_as__isnull=False).values("requeued_as")
    return DeadLetter.objects.filter(job__in=made).defer("payload", "attempts").order_by("-pk")[:most]


def failed_too_often(operation: BulkOperation) -> str:
    """Say why the operation is to stop; empty: it goes on."""
    if operation.stop_at_failed_percent is None:
        return ""
    outcome = requeue_outcome(operation.pk)
    if outcome.ended < MIN_ENDED or outcome.failed_percent <= operation.stop_at_failed_percent:
        return ""
    return (
        f"Stopped: {outcome.failed:,} of the {outcome.ended:,} requeued jobs that ended failed again"
        f" ({outcome.failed_percent:.0f} %, the limit is {operation.stop_at_failed_percent} %). The rest is as it was."
    )
