"""What the answer to a call of several jobs means for each of them."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Sequence
from http import HTTPStatus
from itertools import accumulate
from typing import Any, NoReturn

from jobs.handlers.errors import ProviderError
from jobs.handlers.google_sheets_api import for_unrepeatable
from jobs.handlers.registry import Bisect, Poison

_INDEX = re.compile(r"\b(?:data|requests)\[([0-9]{1,6})\]")


def owner_of(place: int, sizes: Sequence[int]) -> tuple[int, int] | None:
    """Return which job has the subrequest at a place of the call, and its place within that job; None: no job has."""
    ends = list(accumulate(sizes))
    job = bisect_right(ends, place)
    if place < 0 or job >= len(sizes):
        return None
    return job, place - (ends[job] - sizes[job])


def cut_out(error: ProviderError, sizes: Sequence[int]) -> NoReturn:
    """
    Single out the job because of which an atomic call was refused: nothing of the call was applied.

    Args:
        sizes: How many subrequests each job has, in the order of the call.

    Raises:
        Poison: The provider named the subrequest.
        Bisect: It did not, and there are several jobs.
        ProviderError: There is only one job, or the error is not about the request.
    """
    if error.status != HTTPStatus.BAD_REQUEST:
        raise error
    match = _INDEX.search(error.message)
    owner = owner_of(int(match[1]), sizes) if match else None
    if match is None or owner is None:
        if len(sizes) > 1:
            raise Bisect(error.message) from error
        raise error
    own = _renumbered(error, match[1], owner[1])
    if len(sizes) > 1:
        raise Poison(owner[0], own) from error
    raise own


def failures(error: ProviderError, repeatable: Sequence[bool]) -> list[ProviderError]:
    """Return what a failed call of writes means for each job: an unknown outcome, where it may not be repeated."""
    return [error if again else for_unrepeatable(error) for again in repeatable]


def _renumbered(error: ProviderError, number: str, own: int) -> ProviderError:
    """Return the error with the index that the subrequest has in its job's own payload."""
    return ProviderError(
        error.status,
        error.message.replace(f"[{number}]", f"[{own}]", 1),
        code=error.code,
        outcome=error.outcome,
        details={**error.details, **_own_words(error.details, number, own)},
    )


def _own_words(details: dict[str, Any], number: str, own: int) -> dict[str, Any]:
    said = details.get("provider_message")
    return {"provider_message": said.replace(f"[{number}]", f"[{own}]", 1)} if isinstance(said, str) else {}
