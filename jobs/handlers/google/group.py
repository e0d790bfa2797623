"""Reads from the answer to a call of several jobs how each of the jobs went."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from http import HTTPStatus
from itertools import accumulate
from typing import Any, NoReturn

from jobs.handlers.errors import ProviderError
from jobs.handlers.registry import Bisect, Poison

from .ranges import read_range
from .sheets_api import for_unrepeatable

Alike = Callable[[str, int], Iterable[int]]
"""(message, job) -> the jobs of a call that fail for the same reason as this job; the job itself may be left out."""

_INDEX = re.compile(r"\b(?:data|requests)\[([0-9]{1,6})\]")
UNREADABLE = "Unable to parse range: "
_NO_GRID = re.compile(r"No grid with id: ([0-9]{1,20})")
_CHANGING_SHEETS = frozenset({"addSheet", "duplicateSheet", "deleteSheet"})


def owner_of(place: int, sizes: Sequence[int]) -> tuple[int, int] | None:
    """Return the job whose subrequest is at a place of the call, and its place within the job; None: no such job."""
    ends = list(accumulate(sizes))
    job = bisect_right(ends, place)
    if place < 0 or job >= len(sizes):
        return None
    return job, place - (ends[job] - sizes[job])


def cut_out(error: ProviderError, sizes: Sequence[int], alike: Alike) -> NoReturn:
    """
    Find the jobs that made the provider refuse an atomic call, of which nothing was applied.

    Args:
        sizes: How many subrequests each job has, in the order of the call.

    Raises:
        Poison: The provider named the subrequest. Jobs that fail for the same reason are cut out with its job.
        Bisect: The provider named no subrequest, and there are several jobs.
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
        raise Poison(blamed(own, owner[0], alike(error.message, owner[0]))) from error
    raise own


def blamed(error: ProviderError, guilty: int, others: Iterable[int]) -> dict[int, ProviderError]:
    """Return the errors of the job that a refusal names, and of the jobs that fail for the same reason."""
    message = f"{error.message} (said of another job of the call, which names the same sheet)"
    shared = ProviderError(error.status, message, code=error.code, outcome=error.outcome, details=error.details)
    return {**dict.fromkeys(others, shared), guilty: error}


def with_unreadable(ranges: Sequence[str]) -> Alike:
    """Return the Alike for an unreadable range: jobs that name the same range or the same missing sheet fail."""

    def alike(message: str, guilty: int) -> Iterable[int]:
        if UNREADABLE not in message:
            return ()
        missing = _unreadable_with(ranges[guilty])
        return [place for place, text in enumerate(ranges) if text == ranges[guilty] or _sheet_of(text) in missing]

    return alike


def with_missing_grid(jobs: Sequence[Sequence[Mapping[str, Any]]]) -> Alike:
    """
    Return the Alike for a sheet's id that does not exist: jobs that name the same id fail.

    If the call adds or deletes sheets, no other job fails: whether a sheet exists then depends on the job's place
    in the call.
    """

    def alike(message: str, _: int) -> Iterable[int]:
        named = _NO_GRID.search(message)
        if named is None or any(_CHANGING_SHEETS & request.keys() for requests in jobs for request in requests):
            return ()
        return [place for place, requests in enumerate(jobs) if int(named[1]) in _sheet_ids(requests)]

    return alike


def places_of(updates: Mapping[str, Any], jobs: Sequence[Sequence[Sequence[Any]]]) -> list[dict[str, Any]]:
    """
    Return what an append wrote for each of its jobs, in the form of the service's answer.

    Args:
        updates: The answer's `updates`, for the whole call.
        jobs: The rows of each job, in the order of the call.
    """
    if len(jobs) == 1:
        return [dict(updates)]
    text = updates.get("updatedRange")
    box = read_range(text) if isinstance(text, str) else None
    heights = [len(rows) for rows in jobs]
    if box is None or not box.is_closed or box.rows != sum(heights):
        return [{} for _ in jobs]  # the rows were written, but their places are unknown
    places = []
    for rows, below in zip(jobs, accumulate(heights, initial=0), strict=False):
        width = max(map(len, rows))
        own = replace(box, last_column=box.first_column + max(width, 1) - 1).part(below, len(rows))
        places.append(
            {
                "updatedRange": own.rpartition(":")[0] if len(rows) == 1 and width <= 1 else own,
                "updatedRows": len(rows),
                "updatedColumns": width,
                "updatedCells": sum(cell is not None for row in rows for cell in row),
            }
        )
    return places


def failures(error: ProviderError, repeatable: Sequence[bool]) -> list[ProviderError]:
    """Return each job's error after a failed write; `for_unrepeatable` changes it if the job may not be repeated."""
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


def _unreadable_with(text: str) -> set[str]:
    """
    The title of the sheet that a refused range names: if the range is well-formed, the sheet must be missing.

    A single word is read as a title, too, though it may be a named range.
    """
    box = read_range(text)
    return {box.title} if box is not None and box.title else set()


def _sheet_of(text: str) -> str | None:
    """The title with its quotes, as the range writes it. A title that needs quotes and lacks them is unreadable."""
    box = read_range(text)
    return box.title if box is not None and "!" in text else None


def _sheet_ids(value: Any) -> Iterator[Any]:
    if isinstance(value, list):
        for entry in value:
            yield from _sheet_ids(entry)
    elif isinstance(value, dict):
        for name, entry in value.items():
            if name == "sheetId":
                yield entry
            else:
                yield from _sheet_ids(entry)
