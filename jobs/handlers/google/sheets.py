"""`google_sheets.*`: writing to and reading from Google Sheets, many jobs in one call."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any
from urllib.parse import quote

from jobs.handlers.errors import ProviderError
from jobs.handlers.registry import Coalesce, Continue, Done, RunningJob, handler
from jobs.states import CallType

from .group import UNREADABLE, cut_out, failures, places_of, with_missing_grid, with_unreadable
from .payloads import MAX_SHEETS_BODY_BYTES, SERVICE, BatchUpdate, ValuesAppend, ValuesGet, ValuesUpdate
from .reading import read
from .sheets_api import AnswerTooLong, SheetsRequest, call, for_unrepeatable

TIMEOUT = timedelta(seconds=180)
MAX_JOBS = 500
# The ranges of a read are in its URL, which holds some 8,000 characters.
MAX_READS = 100
MAX_READ_BYTES = 8_000

_WRITTEN = "updatedRange,updatedRows,updatedColumns,updatedCells"


@handler(
    kind="google_sheets.values_update",
    service=SERVICE,
    call_type=CallType.WRITE,
    payload=ValuesUpdate,
    idempotent=True,  # writing a fixed range twice leaves the same values
    timeout=TIMEOUT,
    credential=lambda payload: payload.credential,
    coalesce=Coalesce(
        key=lambda payload: f"{payload.spreadsheet_id}|{payload.value_input_option}",
        max_items=MAX_JOBS,
        max_bytes=MAX_SHEETS_BODY_BYTES,
    ),
)
async def values_update(jobs: Sequence[RunningJob[ValuesUpdate]]) -> Sequence[Done | Exception]:
    """Write one range of a spreadsheet. Waiting writes to a spreadsheet leave together."""
    first = jobs[0].payload
    data = [
        {"range": job.payload.range, "majorDimension": job.payload.major_dimension, "values": job.payload.values}
        for job in jobs
    ]
    request = SheetsRequest(
        "POST",
        first.spreadsheet_id,
        "/values:batchUpdate",
        {"fields": f"responses({_WRITTEN})"},
        {"valueInputOption": first.value_input_option, "data": data},
    )
    try:
        answer = await call(jobs[0].credential, request)
    except ProviderError as error:
        cut_out(error, [1] * len(jobs), with_unreadable([job.payload.range for job in jobs]))
    except AnswerTooLong:
        answer = {}
    return [Done(entry) for entry in _entries(answer, "responses", len(jobs))]


@handler(
    kind="google_sheets.values_append",
    service=SERVICE,
    call_type=CallType.WRITE,
    payload=ValuesAppend,
    idempotent=False,
    timeout=TIMEOUT,
    credential=lambda payload: payload.credential,
    coalesce=Coalesce(
        key=lambda payload: payload.table if payload.major_dimension == "ROWS" else None,
        max_items=MAX_JOBS,
        max_bytes=MAX_SHEETS_BODY_BYTES,
    ),
)
async def values_append(jobs: Sequence[RunningJob[ValuesAppend]]) -> Sequence[Done | Exception]:
    """
    Add rows below a table. Waiting appends to a table leave together, and each is told the place of its rows.

    Nothing tells whether an append without an answer was applied, so it is not repeated: the jobs of such a call end
    with the code `outcome_unknown`. Prefer `google_sheets.values_update` to a fixed range.
    """
    payload = jobs[0].payload
    query = {"valueInputOption": payload.value_input_option, "fields": f"tableRange,updates({_WRITTEN})"}
    if payload.insert_data_option is not None:
        query["insertDataOption"] = payload.insert_data_option
    request = SheetsRequest(
        "POST",
        payload.spreadsheet_id,
        f"/values/{quote(payload.range, safe='')}:append",
        query,
        {"majorDimension": payload.major_dimension, "values": [line for job in jobs for line in job.payload.values]},
        repeatable=False,
    )
    try:
        answer = await call(jobs[0].credential, request)
    except AnswerTooLong:
        answer = {}
    except ProviderError as error:
        told = for_unrepeatable(error)
        if told is not error or UNREADABLE in error.message:  # all jobs name the same range and fail together
            raise told from error
        cut_out(error, [1] * len(jobs), lambda message, guilty: ())
    updates = answer.get("updates")
    places = places_of(updates if isinstance(updates, dict) else {}, [job.payload.values for job in jobs])
    return [Done({"tableRange": answer.get("tableRange"), **place}) for place in places]


@handler(
    kind="google_sheets.values_get",
    service=SERVICE,
    call_type=CallType.READ,
    payload=ValuesGet,
    idempotent=True,
    timeout=TIMEOUT,
    credential=lambda payload: payload.credential,
    coalesce=Coalesce(
        key=lambda payload: "|".join([payload.spreadsheet_id, *payload.options.values()]),
        max_items=MAX_READS,
        max_bytes=MAX_READ_BYTES,
    ),
)
async def values_get(jobs: Sequence[RunningJob[ValuesGet]]) -> Sequence[Done | Continue | Exception]:
    """
    Read one range. Waiting reads of a spreadsheet leave together.

    A range of more than 50,000 cells is read in parts of whole rows; each part is a call and passes the limits.
    """
    return await read(jobs)


@handler(
    kind="google_sheets.batch_update",
    service=SERVICE,
    call_type=CallType.WRITE,
    payload=BatchUpdate,
    idempotent=lambda payload: payload.idempotent,
    timeout=TIMEOUT,
    credential=lambda payload: payload.credential,
    coalesce=Coalesce(
        # Repeatable jobs share no call with others: a call whose answer is lost is repeated only if all jobs allow it.
        key=lambda payload: f"{payload.spreadsheet_id}|{payload.idempotent}|{payload.fields or ''}",
        max_items=MAX_JOBS,
        max_bytes=MAX_SHEETS_BODY_BYTES,
    ),
)
async def batch_update(jobs: Sequence[RunningJob[BatchUpdate]]) -> Sequence[Done | Exception]:
    """
    Apply subrequests of spreadsheets.batchUpdate: formats, sheets, dimensions, cells. All of a job's, or none.

    Waiting jobs of a spreadsheet leave together; one with an invalid subrequest fails alone.
    """
    first = jobs[0].payload
    sizes = [len(job.payload.requests) for job in jobs]
    request = SheetsRequest(
        "POST",
        first.spreadsheet_id,
        ":batchUpdate",
        {"fields": f"replies({first.fields})" if first.fields else "replies"},
        {"requests": [one for job in jobs for one in job.payload.requests]},
        repeatable=first.idempotent,
    )
    try:
        answer = await call(jobs[0].credential, request)
    except AnswerTooLong:
        answer = {}
    except ProviderError as error:
        told = failures(error, [job.payload.idempotent for job in jobs])
        if told[0] is error:
            cut_out(error, sizes, with_missing_grid([job.payload.requests for job in jobs]))
        return told
    replies = iter(_entries(answer, "replies", sum(sizes)))
    return [Done({"replies": [next(replies) for _ in range(size)]}) for size in sizes]


def _entries(answer: dict[str, Any], name: str, count: int) -> list[Any]:
    """Return an answer's list; empty entries if its length is wrong: the call was carried out, so no job may fail."""
    found = answer.get(name)
    return found if isinstance(found, list) and len(found) == count else [{} for _ in range(count)]
