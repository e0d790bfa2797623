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
        job_ids: The page's jobs, in the order of their submission.
        next_after: The id after which the next page begins; None on the last page.
    """

    job_ids: list[UUID]
    next_after: UUID | None


def choose_results(batch_id: UUID, *, after: UUID = FIRST, size: int) -> ResultPage:
    """
    Choose the next jobs of a batch, one per item: a requeued item's latest job, which has the newest id.

    Args:
        size: How many ids to read. A page may have fewer jobs, as it leaves out jobs that a requeued job replaces.
    """
    rows = run_sql("jobs", "choose_results", {"batch": batch_id, "after": after, "most": size + 1})
    page, more = rows[:size], len(rows) > size
    return ResultPage([job_id for job_id, is_replaced in page if not is_replaced], page[-1][0] if more else None)
