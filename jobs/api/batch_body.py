"""Reading the body of a batch: one JSON document, or one job a line with its options as query parameters."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import repeat
from typing import Any, NamedTuple

import pydantic_core
from django.conf import settings
from rest_framework.request import Request

from jobs.services.submit.documents.accept_document import refuse_too_many
from jobs.services.submit.spec import WrittenJob
from queueops.core.values.tags import split_tags
from queueops.core.values.written import elements, member
from queueops.rest.errors import InvalidInput
from queueops.rest.parsers import (
    JSON,
    MAX_DOCUMENT_BYTES,
    NDJSON,
    digest_of,
    media_type_of,
    parse_as,
    parse_query_as,
    read_document,
    spool_lines,
    without_mark,
)

from . import inputs

BEGIN = 1_000  # first bytes of a body, which show whether it is an array
AN_ARRAY = 'The body is an array: send {"jobs": [...]}, or one job a line as application/x-ndjson.'


class BatchBody(NamedTuple):
    """`lines`: as services take them; they can be read only once."""

    lines: Iterable[Any]
    options: inputs.BatchInput
    digest: Callable[[], str]


def read_batch(request: Request) -> BatchBody:
    """
    Raises:
        BodyTooLarge, MalformedJSON, InvalidInput, TooManyJobs
    """
    if media_type_of(request, JSON, NDJSON) == NDJSON:
        return _read_lines(request)
    raw = read_document(request, limit_bytes=MAX_DOCUMENT_BYTES)
    try:
        given = parse_as(inputs.BatchDocument, raw, any_number=True)  # a bad number is reported with its job
    except InvalidInput:
        if without_mark(raw[:BEGIN]).lstrip().startswith(b"["):
            raise InvalidInput(AN_ARRAY) from None
        raise
    refuse_too_many(len(given.jobs))
    # A job that is no object goes on as text, so that its error names its place, as for any other job.
    document = raw.decode()
    texts = elements(member(document, "jobs") or "") or repeat("")
    lines = (
        WrittenJob(job, text) if isinstance(job, dict) else pydantic_core.to_json(job)
        for job, text in zip(given.jobs, texts, strict=False)
    )
    if given.on_finish is not None and (text := member(document, "on_finish")):
        given.on_finish.written_in(text)
    return BatchBody(lines, given, lambda: digest_of(request, raw))


def _read_lines(request: Request) -> BatchBody:
    options: dict[str, Any] = {name: str(value) for name, value in request.query_params.items() if name != "project"}
    for name in options.keys() & {"tags", "after"}:
        options[name] = split_tags(options[name])
    if "on_finish" in options:
        options["on_finish"] = _parsed(options["on_finish"])
    given = parse_query_as(inputs.BatchInput, options)
    if given.on_finish is not None:
        given.on_finish.written_in(request.query_params["on_finish"])
    spooled = spool_lines(request, enough=settings.QUEUEOPS.max_batch_jobs + 1)
    refuse_too_many(spooled.count)
    return BatchBody(spooled.lines, given, lambda: spooled.digest)


def _parsed(text: str) -> Any:
    """Parse a line. Text that is no JSON goes on as text, so that its error names its place, as for any other job."""
    try:
        return pydantic_core.from_json(text)
    except ValueError:
        return text
