"""Reading ranges: several jobs in one call, large ranges in parts of whole rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any

import pydantic_core
from django.conf import settings

from jobs.handlers.errors import ProviderError
from jobs.handlers.registry import Bisect, Continue, Done, Poison, RunningJob

from .grids import FIELDS, Grids, find_grids, forget_grids, grid_of, keep_grids
from .group import UNREADABLE, blamed, with_unreadable
from .payloads import ValuesGet
from .ranges import Box, Grid, read_range
from .sheets_api import AddressTooLong, AnswerTooLong, SheetsRequest, call

CELLS_OF_A_CALL = 50_000

Reading = RunningJob[ValuesGet]


@dataclass(frozen=True, slots=True)
class _Part:
    """
    The part of a range that one job reads with this call.

    Attributes:
        box: The whole range; None: one call reads all of it.
        offset: How many rows were read before.
        rows: The most rows of this part.
    """

    text: str
    box: Box | None = None
    offset: int = 0
    rows: int = 0

    @property
    def is_last(self) -> bool:
        return self.box is None or self.offset + self.rows >= self.box.rows


async def read(jobs: Sequence[Reading]) -> list[Done | Continue | Exception]:
    """
    Read the next part of each job's range, in one call.

    To read a range with open ends in parts, the size of its sheet must be known. If it is not known, the call asks for
    the sizes instead, and every job continues with the next call.

    Raises:
        Poison, Bisect: Nothing was read because of one job.
        ProviderError: The call failed for all jobs.
    """
    grids = _grids(jobs)
    if grids is None:
        return await _read_grids(jobs)
    parts = [_part(job.payload, job.partial, grids) for job in jobs]
    ranges = list(dict.fromkeys(part.text for part in parts))
    first = jobs[0].payload
    request = SheetsRequest(
        "GET",
        first.spreadsheet_id,
        "/values:batchGet",
        {"ranges": ranges, **first.options, "fields": "valueRanges(range,values)"},
    )
    try:
        answer = await call(jobs[0].credential, request)
    except (AnswerTooLong, AddressTooLong) as error:
        if len(jobs) > 1:
            raise Bisect(str(error)) from error
        raise _too_large() from error
    except ProviderError as error:
        _single_out(error, jobs, parts)
        raise
    found = answer.get("valueRanges")
    if not isinstance(found, list) or len(found) != len(ranges):
        message = "Google Sheets answered with another number of ranges than were asked for."
        raise ProviderError(None, message, code="malformed_answer", outcome="unknown")
    by_text = dict(zip(ranges, found, strict=True))
    return [_answer(job, part, by_text[part.text]) for job, part in zip(jobs, parts, strict=True)]


async def _read_grids(jobs: Sequence[Reading]) -> list[Done | Continue | Exception]:
    first = jobs[0]
    answer = await call(first.credential, SheetsRequest("GET", first.payload.spreadsheet_id, "", {"fields": FIELDS}))
    if first.credential is None:
        raise AssertionError("a call without a credential was made")
    grids = keep_grids(first.credential, first.payload.spreadsheet_id, answer)
    going_on: list[Done | Continue | Exception] = []
    for job in jobs:
        partial = job.partial
        if partial is None and _needs_grid(job.payload):
            box = read_range(job.payload.range)
            grid = grid_of(grids, box) if box else None
            # Stored with the job: another executor may make the job's next call.
            partial = {"grid": list(grid) if grid else None, "rows": [], "next": 0}
        going_on.append(Continue(partial, "the sizes of the sheets are known"))
    return going_on


def _grids(jobs: Sequence[Reading]) -> Grids | None:
    """Return the known sizes of the sheets; None: they are needed and not known."""
    first = jobs[0]
    known = find_grids(first.credential, first.payload.spreadsheet_id) if first.credential else None
    if known is None and any(job.partial is None and _needs_grid(job.payload) for job in jobs):
        return None
    return known or {}


def _needs_grid(payload: ValuesGet) -> bool:
    box = read_range(payload.range)
    return payload.page_rows is not None and box is not None and not box.is_closed


def _part(payload: ValuesGet, partial: Any, grids: Grids) -> _Part:
    box = read_range(payload.range) if payload.major_dimension == "ROWS" else None
    if box is not None and not box.is_closed:
        grid = None
        if payload.page_rows is not None:
            grid = Grid(*partial["grid"]) if partial and partial["grid"] else None if partial else grid_of(grids, box)
        box = box.within(grid) if grid else None
    if box is None:
        return _Part(payload.range)
    rows = payload.page_rows or max(1, CELLS_OF_A_CALL // box.columns)
    if rows >= box.rows:
        return _Part(payload.range)
    offset = partial["next"] if partial else 0
    return _Part(box.part(offset, rows), box, offset, rows)


def _answer(job: Reading, part: _Part, found: Any) -> Done | Continue | Exception:
    values = found.get("values") if isinstance(found, dict) else None
    lines = values if isinstance(values, list) else []
    shown = found.get("range") if isinstance(found, dict) else None
    if part.box is not None:
        before = job.partial["rows"] if job.partial else []
        # The service leaves out empty rows at a part's end: put back those before this part.
        lines = [*before, *([] for _ in range(part.offset - len(before))), *lines] if lines else before
        shown = part.box.part(0, part.box.rows)
    result = {"range": shown, "majorDimension": job.payload.major_dimension, "values": lines}
    if len(pydantic_core.to_json(result)) > settings.QUEUEOPS.max_payload_bytes:
        return _too_large()
    if part.is_last or part.box is None:
        return Done(result)
    grid = job.partial["grid"] if job.partial else [part.box.last_row, part.box.last_column]
    following = part.offset + part.rows
    message = f"{following:,} of {part.box.rows:,} rows are read"
    job.progress(100 * following // part.box.rows, message)
    return Continue({"grid": grid, "rows": lines, "next": following}, message)


def _single_out(error: ProviderError, jobs: Sequence[Reading], parts: Sequence[_Part]) -> None:
    """Raise Poison or Bisect where some of several jobs are to blame."""
    credential = jobs[0].credential
    if error.status != HTTPStatus.BAD_REQUEST:
        return
    if credential is not None:
        forget_grids(credential, jobs[0].payload.spreadsheet_id)  # a sheet may have shrunk
    if len(jobs) == 1:
        return
    named = str(error.details.get("provider_message", "")).partition(UNREADABLE)[2].removesuffix(".")
    guilty = [place for place, part in enumerate(parts) if part.text == named]
    if guilty:
        others = with_unreadable([part.text for part in parts])(error.message, guilty[0])
        raise Poison(blamed(error, guilty[0], others)) from error
    raise Bisect(error.message) from error


def _too_large() -> ProviderError:
    most = settings.QUEUEOPS.max_payload_bytes
    message = f"The values are larger than a job keeps, {most:,} bytes. Read the range in several jobs."
    return ProviderError(None, message, code="result_too_large", outcome="refused")
