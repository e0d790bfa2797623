"""Dead letters as text, line by line, for people's own tools."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextvars import copy_context
from functools import partial
from itertools import chain
from typing import Any

from django.core.serializers.json import DjangoJSONEncoder

from jobs.models import DeadLetter
from jobs.querysets import DeadLetterQuerySet
from queueops.core.postgres.replica import RowReader, on_primary
from queueops.core.values.csv_lines import csv_line
from queueops.core.values.lines import on_one_line

LETTERS_AT_ONCE = 100  # dead letters in memory at once, as a payload may have megabytes

COLUMNS = (
    "id",
    "job_id",
    "project_id",
    "batch_id",
    "kind",
    "service",
    "error_code",
    "error_class",
    "error_message",
    "http_status",
    "remediation",
    "retry_count",
    "crash_count",
    "fingerprint",
    "created_at",
    "resolution",
    "resolved_by",
    "resolved_at",
    "requeued_as_id",
    "note",
    "payload",
    "attempts",
)
JSON_COLUMNS = frozenset({"payload", "attempts"})


def dead_letters_as_ndjson(letters: DeadLetterQuerySet, reader: RowReader = on_primary) -> Iterator[str]:
    """One JSON object in each line, in the order of ids."""
    rows = _rows(letters, _as_now(reader))
    return (on_one_line(json.dumps(row, cls=DjangoJSONEncoder, ensure_ascii=False)) + "\n" for row in rows)


def dead_letters_as_csv(letters: DeadLetterQuerySet, reader: RowReader = on_primary) -> Iterator[str]:
    """A header, then a line for each dead letter; payload and attempts are JSON. No cell can act as a formula."""
    rows = _rows(letters, _as_now(reader))
    lines = (
        csv_line(
            json.dumps(row[column], cls=DjangoJSONEncoder, ensure_ascii=False)
            if column in JSON_COLUMNS
            else row[column]
            for column in COLUMNS
        )
        for row in rows
    )
    return chain([csv_line(COLUMNS)], lines)


def _as_now(reader: RowReader) -> RowReader:
    """
    Let a reader keep the present context, which says whether the caller may read encrypted values. Pages are read while
    the answer is sent, in another context.
    """
    here = copy_context()

    def reading(read: Callable[[], Any]) -> Any:
        return here.run(reader, read)

    return reading


def _rows(letters: DeadLetterQuerySet, reader: RowReader) -> Iterator[dict[str, Any]]:
    """Read page by page: a plain iterator would fetch all rows at once, as server-side cursors are off."""
    ordered = letters.order_by("pk")
    rest = ordered
    page: list[DeadLetter]
    while page := reader(partial(list, rest[:LETTERS_AT_ONCE])):
        for letter in page:
            yield {column: getattr(letter, column) for column in COLUMNS}
        rest = ordered.filter(pk__gt=page[-1].pk)
