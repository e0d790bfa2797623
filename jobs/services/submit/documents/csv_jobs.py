"""
Jobs from a CSV file: a row is a job, and the header names its fields.

A column is a field of JobSpec (`kind`, `priority`, `idempotency_key`, ...) or a place in the payload. `payload` holds
the whole payload as JSON, `payload.url` a text at that place, `payload.values:json` JSON at that place. An empty cell
leaves its field out; `tags` and `after` are separated by commas. Empty columns without a name are left out, because
spreadsheets add such columns on the right.
"""

from __future__ import annotations

import csv
import io
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pydantic_core

from jobs.services.submit.spec import FIGURES, InvalidJob, JobSpec, WrittenJob
from queueops.core.errors import QueueOpsError
from queueops.core.values.tags import split_tags

from .accept_document import Line

DELIMITERS = ",;\t"
SEPARATOR_LINE = re.compile(r"sep=([^\w\s\"]|\t)", re.IGNORECASE)
QUOTED = re.compile(r'"[^"]*"')
# Spreadsheets write true and false like this, whatever was typed.
BOOLEANS = {"TRUE": True, "FALSE": False}
JSON_MARK = ":json"
FIRST_ROW = 2  # spreadsheets number rows from 1, which is the header
MAX_COLUMNS_NAMED = 10  # columns in one error
MAX_NAMED_LENGTH = 100
MAX_CELL = 20_000_000  # characters; the csv module's own limit is below a payload's

PLAIN_COLUMNS = frozenset(JobSpec.model_fields) - {"payload"}

LISTS = frozenset({"tags", "after"})


class UnreadableFile(QueueOpsError):
    """The file cannot be read as jobs."""

    code = "unreadable_file"
    status = 422


def jobs_of_csv(text: str, *, default_kind: str = "") -> Iterator[Line]:
    """
    Yield a job or an error for each row after the header, from row FIRST_ROW on; blank bytes for an empty row.

    Raises:
        UnreadableFile: At once for a bad header; during the iteration for other faults.
    """
    csv.field_size_limit(MAX_CELL)
    first, _, rest = text.partition("\n")
    told = SEPARATOR_LINE.fullmatch(first.strip())  # spreadsheets do not show this line, so it has no row number
    text = rest if told else text
    rows = csv.reader(io.StringIO(text, newline=""), delimiter=told[1] if told else _delimiter(text), strict=True)
    header = [name.strip() for name in _next_row(rows) or []]
    _check_header(header, default_kind)
    return _jobs(rows, header, default_kind)


def _jobs(rows: Any, header: Sequence[str], default_kind: str) -> Iterator[Line]:
    while (row := _next_row(rows)) is not None:
        try:
            yield _job(header, row, default_kind) if any(cell.strip() for cell in row) else b""
        except InvalidJob as error:
            yield error


def _job(header: Sequence[str], row: Sequence[str], default_kind: str) -> Mapping[str, Any]:
    if any(cell.strip() for cell in row[len(header) :]):
        raise InvalidJob(f"The row has {len(row)} cells, the header {len(header)}.")
    job: dict[str, Any] = {}
    payload: dict[str, Any] = {}
    for place, (name, cell) in enumerate(zip(header, row, strict=False), 1):
        if not cell.strip():
            continue
        if not name:
            raise InvalidJob(f"The row has a value in column {place}, which the header does not name.")
        if name in LISTS:
            job[name] = split_tags(cell)
        elif name in FIGURES:
            job[name] = _figure(cell.strip())
        elif name in PLAIN_COLUMNS:
            job[name] = cell.strip()
        elif name == "payload":
            payload |= _object(cell)
        else:
            _put(payload, name, cell)
    job = {"kind": default_kind, **job, "payload": payload}
    places = [name for name, cell in zip(header, row, strict=False) if _is_payload(name) and cell.strip()]
    if places == ["payload"]:
        return WrittenJob(job, f'{{"payload":{row[header.index("payload")].strip()}}}')
    return job


def _figure(cell: str) -> float | str:
    """Return the cell as a number. Other text is returned unchanged, and the check of the job refuses it."""
    try:
        return int(cell) if cell.isdecimal() else float(cell)
    except ValueError:
        return cell


def _put(payload: dict[str, Any], name: str, cell: str) -> None:
    path = name.removesuffix(JSON_MARK).split(".")[1:]
    place = payload
    for part in path[:-1]:
        place = place.setdefault(part, {})
        if not isinstance(place, dict):
            raise InvalidJob("The row is not valid.", fields={name: ["another column puts a value in its way"]})
    place[path[-1]] = _parsed(name, cell) if name.endswith(JSON_MARK) else cell


def _object(cell: str) -> dict[str, Any]:
    found = _parsed("payload", cell)
    if not isinstance(found, dict):
        raise InvalidJob("The row is not valid.", fields={"payload": ["a JSON object is needed"]})
    return found


def _parsed(name: str, cell: str) -> Any:
    if cell.strip() in BOOLEANS:
        return BOOLEANS[cell.strip()]
    try:
        return pydantic_core.from_json(cell, allow_inf_nan=False)
    except ValueError as error:
        raise InvalidJob("The row is not valid.", fields={name: [f"not JSON: {error}{_hint(cell)}"]}) from None


def _hint(cell: str) -> str:
    text = cell.strip()
    if text[:1] in {"{", "["} or text.startswith('"'):
        return ""
    return f'. A text needs quotes here ("{text[:20]}"), or a column without {JSON_MARK}'


def _check_header(header: Sequence[str], default_kind: str) -> None:
    if not any(header):
        raise UnreadableFile("The file is empty: its first row names the columns.")
    unknown = [name for name in header if name and name not in PLAIN_COLUMNS and not _is_payload(name)]
    if unknown:
        known = ", ".join([*sorted(PLAIN_COLUMNS), "payload", "payload.<place>", f"payload.<place>{JSON_MARK}"])
        raise UnreadableFile(f"Unknown columns: {_few(unknown)}. The columns are {known}.")
    twice = sorted(name for name, count in Counter(filter(None, header)).items() if count > 1)
    if twice:
        raise UnreadableFile(f"Columns that occur twice: {_few(twice)}.")
    if "kind" not in header and not default_kind:
        raise UnreadableFile("The file has no column “kind”: add one, or choose the kind for all its jobs.")


def _few(names: Sequence[str]) -> str:
    more = f" and {len(names) - MAX_COLUMNS_NAMED:,} more" if len(names) > MAX_COLUMNS_NAMED else ""
    return ", ".join(repr(name[:MAX_NAMED_LENGTH]) for name in names[:MAX_COLUMNS_NAMED]) + more


def _is_payload(name: str) -> bool:
    place = name.removesuffix(JSON_MARK)
    return place == name == "payload" or (place.startswith("payload.") and all(place.split(".")))


def _delimiter(text: str) -> str:
    """Return the delimiter that occurs most often in the header, outside of quotes."""
    first = QUOTED.sub("", text.partition("\n")[0])
    return max(DELIMITERS, key=first.count)


def _next_row(rows: Any) -> list[str] | None:
    try:
        row: list[str] | None = next(rows, None)
    except csv.Error as error:
        raise UnreadableFile(f"Line {rows.line_num:,} is not CSV: {error}.") from None
    return row
