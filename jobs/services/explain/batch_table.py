"""A batch as a table: a row for each job in the order of submission, its payload beside its result."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, nullcontext
from dataclasses import dataclass
from tempfile import TemporaryFile
from typing import IO, Any, Literal
from uuid import UUID

from django.core.serializers.json import DjangoJSONEncoder
from django.db.models import QuerySet

from jobs.features.results.read import among_few, whole_result
from jobs.features.results.reference import stored_in
from jobs.models import Job
from queueops.core.errors import QueueOpsError
from queueops.core.values.csv_lines import csv_line
from queueops.core.values.lines import on_one_line
from queueops.core.values.numbers import MEGABYTE
from queueops.core.web.asking import ensure_wanted
from ratelimits.money.reports import spent_on_jobs

from .batch_results import FIRST, choose_results

Form = Literal["csv", "ndjson", "json"]
OF_A_JOB = ("idempotency_key", "id", "state", "last_error_code", "cost_money")
PAYLOAD = "payload."  # the prefix of columns with members of the payload, as in uploaded files
JOBS_AT_ONCE = 500
MAX_TABLE_BYTES = 1_000 * MEGABYTE
MAX_INPUT_COLUMNS = 500
CONTENT_TYPES: dict[Form, str] = {
    "csv": "text/csv; charset=utf-8",
    "ndjson": "application/x-ndjson",
    "json": "application/json",
}


class TableTooLarge(QueueOpsError):
    """The table would be too large for one file. Choose fewer columns, or read the pages of results."""

    code = "table_too_large"
    status = 422
    detail_fields = ("limit_bytes", "limit_columns")


def _as_it_is(value: Any) -> Any:
    return value


@dataclass(frozen=True, slots=True)
class Table:
    """
    Attributes:
        columns: Paths in the results, such as `data.total`; empty: one column with the whole result.
        with_input: Whether each member of the payloads is a column as well, such as `payload.url`.
        with_costs: Whether the reader may see costs.
        shown: Returns the part of a payload or result that the reader may see.
    """

    form: Form
    columns: Sequence[str] = ()
    with_input: bool = False
    with_costs: bool = True
    shown: Callable[[Any], Any] = _as_it_is

    @property
    def places(self) -> dict[str, str]:
        """By column of a result, the path in the result; an empty path: the whole result."""
        return {f"result.{one}" if one in OF_A_JOB else one: one for one in self.columns} or {"result": ""}


def write_table(rows: QuerySet[Job], batch_id: UUID, table: Table) -> IO[bytes]:
    """
    Write a table of a batch's jobs to a temporary file without a name, and rewind the file.

    Args:
        rows: The jobs of the batch that the reader may see.

    Raises:
        TableTooLarge
        ClientLeft, OutOfTime: As `ensure_wanted` raises them.
        ResultMissing, StoreError: A result cannot be read from the result store.
    """
    with ExitStack() as stack:
        file = stack.enter_context(TemporaryFile())
        for line in _lines(rows, batch_id, table):
            file.write(line.encode())
            if file.tell() > MAX_TABLE_BYTES:
                raise TableTooLarge(limit_bytes=MAX_TABLE_BYTES, limit_columns=MAX_INPUT_COLUMNS)
        file.seek(0)
        stack.pop_all()
        return file


def _lines(rows: QuerySet[Job], batch_id: UUID, table: Table) -> Iterator[str]:
    wanted = rows if table.with_input else rows.defer("payload")
    found = (_row(job, cost, table) for job, cost in _jobs(wanted, batch_id, costs=table.with_costs))
    if table.form == "csv":
        names = _members(rows, batch_id) if table.with_input else []
        heads = [*OF_A_JOB, *(PAYLOAD + name for name in names), *table.places]
        yield csv_line(heads)
        for row in found:
            payload = row.pop("payload", None)
            if isinstance(payload, dict):
                row |= {PAYLOAD + name: value for name, value in payload.items()}
            yield csv_line(_cell(row.get(head)) for head in heads)
        return
    before, between, end = ("[", ",\n", "]\n") if table.form == "json" else ("", "\n", "\n")
    is_first = True
    for row in found:
        text = json.dumps(row, ensure_ascii=False, cls=DjangoJSONEncoder)
        yield (before if is_first else between) + on_one_line(text)
        is_first = False
    yield before + end if is_first and table.form == "json" else "" if is_first else end


def _row(job: Job, cost: int | None, table: Table) -> dict[str, Any]:
    with among_few() if stored_in(job.result) else nullcontext():
        result = table.shown(whole_result(job))
    return {
        "idempotency_key": job.idempotency_key,
        "id": str(job.pk),
        "state": job.status,
        "last_error_code": job.last_error_code,
        "cost_money": cost,
        **({"payload": table.shown(job.payload)} if table.with_input else {}),
        **{name: _at(result, place) if place else result for name, place in table.places.items()},
    }


def _members(rows: QuerySet[Job], batch_id: UUID) -> list[str]:
    """
    Return the names of all payloads' members, in the order in which they first occur.

    Raises:
        TableTooLarge
    """
    names: dict[str, None] = {}
    for job, _ in _jobs(rows.only("payload"), batch_id, costs=False):
        names |= dict.fromkeys(job.payload if isinstance(job.payload, dict) else ())
        if len(names) > MAX_INPUT_COLUMNS:
            raise TableTooLarge(limit_bytes=MAX_TABLE_BYTES, limit_columns=MAX_INPUT_COLUMNS)
    return list(names)


def _jobs(rows: QuerySet[Job], batch_id: UUID, *, costs: bool) -> Iterator[tuple[Job, int | None]]:
    """Yield each job with its cost, page by page; None: the cost is unknown."""
    after: UUID | None = FIRST
    while after is not None:
        ensure_wanted()
        chosen = choose_results(batch_id, after=after, size=JOBS_AT_ONCE)
        spent = spent_on_jobs(chosen.job_ids) if costs else {}
        for job in rows.filter(pk__in=chosen.job_ids).order_by("pk"):
            cost = spent.get(job.pk)
            yield job, None if cost is None or cost.unpriced else cost.money
        after = chosen.next_after


def _at(result: Any, place: str) -> Any:
    for step in place.split("."):
        result = result.get(step) if isinstance(result, dict) else None
    return result


def _cell(value: Any) -> Any:
    if value is None:
        return ""
    if isinstance(value, str | int | float) and not isinstance(value, bool):
        return value
    return json.dumps(value, ensure_ascii=False, cls=DjangoJSONEncoder)
