"""Input bounds and reports of the services that act on many rows."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from uuid import UUID

from jobs.services.submit.documents.accept_document import TooManyJobs

MAX_BULK_JOBS = 10_000  # ids of one call: its transaction locks all their rows until it ends


@dataclass(frozen=True, slots=True)
class BulkResult:
    """
    Attributes:
        moved: The ids acted on, in the order given.
        unmoved: The ids left alone: unknown, or in a state that the operation does not apply to.
    """

    moved: list[UUID]
    unmoved: list[UUID]

    @classmethod
    def of(cls, given: Iterable[UUID], moved: Collection[UUID]) -> BulkResult:
        ids = list(given)
        return cls([one for one in ids if one in moved], [one for one in ids if one not in moved])


@dataclass(frozen=True, slots=True)
class RequeueResult:
    """
    Attributes:
        moved: The new job of each dead letter requeued.
        unmoved: The dead letters left alone: unknown, resolved before, or of a kind that no handler carries out any
            more.
    """

    moved: Mapping[UUID, UUID]
    unmoved: list[UUID]


def distinct_ids(ids: Iterable[UUID]) -> list[UUID]:
    """
    Return the ids in the order given, each once.

    Raises:
        TooManyJobs: More than MAX_BULK_JOBS.
    """
    distinct = list(dict.fromkeys(ids))
    if len(distinct) > MAX_BULK_JOBS:
        raise TooManyJobs(
            f"At most {MAX_BULK_JOBS:,} ids at once; {len(distinct):,} were given.",
            given=len(distinct),
            limit=MAX_BULK_JOBS,
        )
    return distinct
