"""The jobs of a batch and how they ended, page by page."""

from __future__ import annotations

from dataclasses import dataclass
from uuid import UUID

from queueops.core.sql import run_sql

FIRST = UUID(int=0)


@dataclass(frozen=True, slots=True)
class ResultPage:
    """
    Attributes:
        job_ids: In the order in which they were submitted.
        next_after: Where the next page begins; None on the last.
    """

    job_ids: list[UUID]
    next_after: UUID | None


def choose_results(batch_id: UUID, *, after: UUID = FIRST, size: int) -> ResultPage:
    """
    Choose the next jobs of a batch, one per item: a requeued item's latest job, which has the newest id.

    Args:
        size: Ids looked at; a page may have fewer, as it leaves out jobs whose place another took.
    """
    rows = run_sql("jobs", "choose_results", {"batch": batch_id, "after": after, "most": size + 1})
    page, more = rows[:size], len(rows) > size
    return ResultPage([job_id for job_id, is_replaced in page if not is_replaced], page[-1][0] if more else None)
