"""Jobs out of files: one JSON object a line, one JSON document, or CSV as the admin's upload takes it."""

from __future__ import annotations

import codecs
import csv
import json
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from queueops_client.errors import ClientError

DELIMITERS = ",;\t"
JSON_MARK = ":json"
SEPARATOR_LINE = re.compile(r"sep=([^\w\s\"]|\t)", re.IGNORECASE)  # spreadsheets read this line and do not show it
QUOTED = re.compile(r'"[^"]*"')  # text in quotes says nothing of the delimiter
BOOLEANS = {"TRUE": True, "FALSE": False}  # spreadsheets write booleans so, however they were typed
MAX_CELL = 20_000_000  # characters; the csv module's own limit is below what a payload may have
FORMATS = {".csv": "csv", ".tsv": "csv", ".json": "json"}
STANDARD_INPUT = "-"


class BadFile(ClientError):
    """The file holds no jobs, or does not fit its format. Nothing was sent."""


@contextmanager
def opened(name: str) -> Iterator[IO[str]]:
    """
    Raises:
        BadFile
    """
    try:
        if name == STANDARD_INPUT:
            sys.stdin.reconfigure(encoding="utf-8-sig", newline="")  # type: ignore[union-attr]
            yield sys.stdin
        else:
            path = Path(name)
            with path.open("rb") as begin:
                is_wide = begin.read(2) in {codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE}  # written by Windows PowerShell
            with path.open(encoding="utf-16" if is_wide else "utf-8-sig", newline="") as file:
                yield file
    except UnicodeDecodeError as error:
        raise BadFile(f"{name} is not UTF-8: {error}") from error
    except OSError as error:
        raise BadFile(f"{name}: {error.strerror}") from error


def jobs_of(file: IO[str], *, kind: str, file_format: str, places: list[str]) -> Iterator[dict[str, Any]]:
    """
    Args:
        kind: The kind of the jobs that name no kind.
        file_format: `ndjson`, `csv` or `json`.
        places: Is filled with where in the file each job stands: the server counts jobs, not lines.

    Raises:
        BadFile: The file cannot be read; the message names the line.
    """
    read = {"ndjson": _lines, "csv": _rows, "json": _document}[file_format]
    for place, job in read(file):
        if not isinstance(job, dict):
            raise BadFile(f"{place}: a job is a JSON object, not {json.dumps(job, ensure_ascii=False)[:60]}.")
        if not job.get("kind") and not kind:
            raise BadFile(f"{place}: the job names no kind; say --kind.")
        places.append(place)
        yield {**job, "kind": job.get("kind") or kind}


def job_in(text: str) -> dict[str, Any]:
    """
    Return the job that an option gives: as JSON, or as an @ and the name of a file with the JSON.

    Raises:
        BadFile
    """
    where = text[1:] if text.startswith("@") else "--on-finish"
    if not where:
        raise BadFile("--on-finish @ names no file.")
    if text.startswith("@"):
        with opened(where) as file:
            text = file.read()
    job = parsed(text, where)
    if not isinstance(job, dict):
        raise BadFile(f"{where}: a job is a JSON object.")
    return job


def format_of(name: str) -> str:
    return FORMATS.get(Path(name).suffix.lower(), "ndjson")


def _lines(file: IO[str]) -> Iterator[tuple[str, Any]]:
    for number, line in enumerate(file, 1):
        if line.lstrip().startswith("["):  # not one job a line: a list of jobs, as in exports
            yield from _listed(line + file.read())
            return
        if line.strip():
            yield f"Line {number}", parsed(line, f"Line {number}")


def _document(file: IO[str]) -> Iterator[tuple[str, Any]]:
    yield from _listed(file.read())


def _listed(text: str) -> Iterator[tuple[str, Any]]:
    document = parsed(text, "The file")
    jobs = document.get("jobs") if isinstance(document, dict) else document
    if not isinstance(jobs, list):
        raise BadFile('The file is neither a JSON list of jobs nor {"jobs": [...]}.')
    for number, job in enumerate(jobs, 1):
        yield f"Job {number}", job


def _rows(file: IO[str]) -> Iterator[tuple[str, Any]]:
    """Read jobs of CSV. A column is a field or a path in the payload: `payload.url` (text), `payload.a:json` (JSON)."""
    for place, header, row in table_of(file):
        yield place, _job_of(header, row, place)


def table_of(file: IO[str]) -> Iterator[tuple[str, list[str], list[str]]]:
    """
    Yield each row of a CSV file that is not empty: its place, the header, its cells.

    Raises:
        BadFile
    """
    csv.field_size_limit(MAX_CELL)
    first = file.readline()
    if told := SEPARATOR_LINE.fullmatch(first.strip()):
        first = file.readline()
    while first.count('"') % 2 and (line := file.readline()):
        first += line  # a name of several lines, as spreadsheets allow it
    unquoted = QUOTED.sub("", first)
    delimiter = told[1] if told else max(DELIMITERS, key=unquoted.count)
    [header] = [[" ".join(name.split()) for name in row] for row in csv.reader([first], delimiter=delimiter)] or [[]]
    if not any(header):
        raise BadFile("The file has no header.")
    try:
        for number, row in enumerate(csv.reader(file, delimiter=delimiter, strict=True), 2):
            place = f"Row {number}"
            if any(cell.strip() for cell in row[len(header) :]):
                raise BadFile(f"{place} has {len(row)} cells, and the header {len(header)}.")
            if any(cell.strip() for cell in row):
                yield place, header, row
    except csv.Error as error:
        raise BadFile(f"The file is not CSV: {error}.") from error


def _job_of(header: list[str], row: list[str], place: str) -> dict[str, Any]:
    job: dict[str, Any] = {}
    for column, cell in zip(header, row, strict=False):
        if not cell.strip():
            continue
        if not column:
            raise BadFile(f"{place} has a value in a column that the header does not name.")
        path, is_json = column.removesuffix(JSON_MARK).split("."), column.endswith(JSON_MARK)
        value: Any = cell
        if is_json and cell.strip() in BOOLEANS:
            value = BOOLEANS[cell.strip()]
        elif is_json or path == ["payload"]:
            value = parsed(cell, f"{place}, column {column}")
        target = job
        for name in path[:-1]:
            target = target.setdefault(name, {})
            if not isinstance(target, dict):
                raise BadFile(f"{place}, column {column}: another column has set what it belongs to.")
        target[path[-1]] = value
    return {name: READ[name](value) if name in READ else value for name, value in job.items()}


def _list(cell: Any) -> Any:
    return [part.strip() for part in cell.split(",") if part.strip()] if isinstance(cell, str) else cell


def _number(cell: Any) -> Any:
    """Parse a number; any other text is left as it is, so that the server says what is wrong."""
    try:
        return json.loads(cell)
    except (TypeError, ValueError):
        return cell


READ = {"cost": _number, "delay_seconds": _number, "tags": _list, "after": _list}  # fields that are not texts


def parsed(text: str, place: str) -> Any:
    """
    Raises:
        BadFile: The text is no JSON; the message names the place.
    """
    try:
        return json.loads(text, parse_constant=_refuse)
    except ValueError as error:
        raise BadFile(f"{place} is not JSON: {error}.") from error
    except RecursionError as error:
        raise BadFile(f"{place} is nested too deep.") from error


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is no number in JSON")
