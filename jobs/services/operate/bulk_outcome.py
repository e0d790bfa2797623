"""What became of the jobs that a bulk requeue made."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from uuid import UUID

from django.db.models import QuerySet

from jobs.models import BulkOperation, DeadLetter
from jobs.states import TERMINAL, JobState

LEAST_ENDED = 20  # before so many have ended, a share of them says little
NEWEST_REQUEUED = 2_000  # requeued jobs that the share is of: an hour ago's failures may be mended


@dataclass(frozen=True, slots=True)
class RequeueOutcome:
    """
    Attributes:
        requeued: How many of the newest were looked at.
        unfinished: Those that have not ended yet.
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
    """Look at the newest jobs that the operation made; reads their index entries and rows, no more."""
    letters = DeadLetter.objects.filter(operation_id=operation_id, requeued_as__isnull=False).order_by("-pk")
    states = Counter(letters.values_list("requeued_as__status", flat=True)[:newest])
    return RequeueOutcome(
        requeued=states.total(),
        completed=states[JobState.COMPLETED],
        failed=states[JobState.FAILED],
        unfinished=sum(count for state, count in states.items() if state not in TERMINAL),
    )


def failed_again(operation_id: UUID, *, most: int) -> QuerySet[DeadLetter]:
    """The newest dead letters of jobs that the operation made."""
    made = DeadLetter.objects.filter(operation_id=operation_id, requeued_as__isnull=False).values("requeued_as")
    return DeadLetter.objects.filter(job__in=made).defer("payload", "attempts").order_by("-pk")[:most]


def failed_too_often(operation: BulkOperation) -> str:
    """Why the operation is to stop, in words; empty: it is not."""
    if operation.stop_at_failed_percent is None:
        return ""
    outcome = requeue_outcome(operation.pk)
    if outcome.ended < LEAST_ENDED or outcome.failed_percent <= operation.stop_at_failed_percent:
        return ""
    return (
        f"Stopped: {outcome.failed:,} of the {outcome.ended:,} requeued jobs that ended failed again"
        f" ({outcome.failed_percent:.0f} %, the limit is {operation.stop_at_failed_percent} %). The rest is as it was."
    )
