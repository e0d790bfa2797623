"""Reads and checks the lines of a batch, to store the batch or only to preview it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from threading import Lock
from typing import Any, TypeVar
from uuid import UUID

from django.conf import settings

from jobs.classify import clean
from jobs.services.submit.prepare import PayloadTooLarge, PreparedJob, Rules, prepare_job
from jobs.services.submit.spec import parse_spec
from queueops.core.errors import QueueOpsError
from queueops.core.web.asking import ensure_wanted

JOBS_OF_AN_INSERT = 2000  # jobs of one INSERT: enough to amortise the round trip, few enough to stay in memory
CHUNK_BYTES = 8_000_000  # payloads of one INSERT, so that they fit in memory; PostgreSQL takes no parameter of 1 GB
MAX_LISTED_ERRORS = 1000

# A job as JSON text or parsed, or the error of a line that its reader could not turn into a job.
Line = bytes | str | Mapping[str, Any] | QueueOpsError


T = TypeVar("T")


def in_chunks(things: Iterable[T], size: Callable[[T], int]) -> Iterator[list[T]]:
    """Divide jobs, or lines or rows of jobs, into lists small enough for one statement."""
    chunk: list[T] = []
    bytes_of_it = 0
    for thing in things:
        chunk.append(thing)
        bytes_of_it += size(thing)
        if len(chunk) == JOBS_OF_AN_INSERT or bytes_of_it >= CHUNK_BYTES:
            yield chunk
            chunk, bytes_of_it = [], 0
    if chunk:
        yield chunk


def size_of(job: PreparedJob) -> int:
    return len(job.payload)


Chunk = list[tuple[int, PreparedJob]]  # each job with its line's number


def _size_of_line(numbered: tuple[int, PreparedJob]) -> int:
    return size_of(numbered[1])


class TooManyJobs(QueueOpsError):
    """Too many jobs at once."""

    code = "too_many_jobs"
    status = 413
    detail_fields = ("given", "limit")


def refuse_too_many(given: int) -> None:
    """
    Args:
        given: How many jobs the batch has, as far as they were counted: a count may stop at the first job too many.

    Raises:
        TooManyJobs
    """
    limit = settings.QUEUEOPS.max_batch_jobs
    if given > limit:
        raise TooManyJobs(f"A batch takes at most {limit:,} jobs; split it.", given=given, limit=limit)


@dataclass(frozen=True, slots=True)
class LineError:
    """Why one job of a batch was not accepted. `line` counts from 1."""

    line: int
    code: str
    message: str
    fields: Mapping[str, list[str]]

    def as_dict(self) -> dict[str, Any]:
        return {"line": self.line, "code": self.code, "message": self.message, "fields": dict(self.fields)}


class LineChecker:
    """Validates the lines of a batch and keeps their errors. `chunks` and `refuse` may run in different threads."""

    def __init__(
        self,
        project_id: str,
        *,
        only_user: UUID | None = None,
        start_interval_seconds: float = 0.0,
        first_line: int = 1,
    ) -> None:
        self.start_interval_seconds = start_interval_seconds
        self.first_line = first_line
        self.rules = Rules(project_id, only_user=only_user)
        self.rules.read_all()  # now: otherwise, the thread that makes the chunks would open a connection
        self._lock = Lock()
        self.seen = 0
        self.error_count = 0
        self.errors: list[LineError] = []

    def chunks(self, lines: Iterable[Line]) -> Iterator[Chunk]:
        """Yield the valid jobs, for `with_files`: files that their payloads name are not read yet."""
        return in_chunks(self._prepared(lines), _size_of_line)

    def with_files(self, chunks: Iterable[Chunk]) -> Iterator[Chunk]:
        """Read the files that jobs name, in the thread that has the connection and the transaction."""
        for chunk in chunks:
            if any(job.lacks_files for _, job in chunk):
                yield from in_chunks(self._filled(chunk), _size_of_line)
            else:
                yield chunk

    def _filled(self, chunk: Chunk) -> Iterator[tuple[int, PreparedJob]]:
        for number, job in chunk:
            if not job.lacks_files:
                yield number, job
                continue
            try:
                filled = prepare_job(job.spec, rules=self.rules, delay_seconds=job.delay_seconds)
                yield number, filled._replace(id=job.id)  # ids are in the order of the lines
            except QueueOpsError as error:
                self.refuse(number, error)

    def _prepared(self, lines: Iterable[Line]) -> Iterator[tuple[int, PreparedJob]]:
        """
        Raises:
            ClientLeft, OutOfTime: The client of the request has left, or the request has taken too long.
        """
        number = self.first_line
        for line in lines:
            ensure_wanted()
            if not self._is_blank(line):
                self.seen += 1
                refuse_too_many(self.seen)
                if job := self._prepare(number, line):
                    yield number, job
            number += _ends_of(line)

    def _prepare(self, number: int, line: Line) -> PreparedJob | None:
        try:
            if isinstance(line, QueueOpsError):
                raise line
            self._refuse_long(line)
            spec = parse_spec(line)
            delay = None
            if self.start_interval_seconds and spec.scheduled_at is None:
                delay = (spec.delay_seconds or 0.0) + (number - self.first_line) * self.start_interval_seconds
            return prepare_job(spec, rules=self.rules, read_files=False, delay_seconds=delay)
        except QueueOpsError as error:
            self.refuse(number, error)
            return None

    def _is_blank(self, line: Line) -> bool:
        """Whether a line is blank. A line that is too long counts as not blank, because only its beginning is read."""
        return isinstance(line, (bytes, str)) and len(line) <= self.rules.max_line_bytes and not line.strip()

    def _refuse_long(self, line: bytes | str | Mapping[str, Any]) -> None:
        limit = self.rules.max_line_bytes
        if isinstance(line, (bytes, str)) and len(line) > limit:
            # Its length is not known: only the beginning of such a line is read.
            raise PayloadTooLarge(f"The line has more than {limit:,} bytes.", limit_bytes=limit)

    def refuse(self, number: int, error: QueueOpsError) -> None:
        with self._lock:
            self.error_count += 1
            if len(self.errors) < MAX_LISTED_ERRORS:
                # Errors quote what the line says, and are stored: jsonb takes no NUL.
                fields = {clean(name): list(map(clean, faults)) for name, faults in error.fields.items()}
                self.errors.append(LineError(number, error.code, clean(error.message), fields))
                self.errors.sort(key=lambda listed: listed.line)


def _ends_of(line: Line) -> int:
    """Return how many lines of the file `line` stands for: a reader may yield several blank lines as one."""
    if isinstance(line, bytes):
        return max(1, line.count(b"\n"))
    return max(1, line.count("\n")) if isinstance(line, str) else 1
