"""
Logs the calls of one executor, and how they ended, to files outside the database.

A database that was put back to an earlier moment lacks these calls; `manage.py reconcile` reads them from the files.
Each line is a JSON object: `begun` before a call, `ended` after it.
"""

from __future__ import annotations

import fcntl
import json
import logging
import os
import threading
import time
from collections.abc import Iterable, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import IO
from uuid import UUID

from jobs.classify import is_retryable
from jobs.features.results.reference import is_reference, stored_in
from jobs.handlers.registry import UnknownKind, find_handler
from jobs.services.finish.claimed import ClaimedJob
from jobs.services.finish.encrypted_outcomes import message_of, result_of
from jobs.services.finish.outcomes import Failed, Outcome, Succeeded
from queueops.core.errors import QueueOpsError
from queueops.core.stores.disk import to_disk

logger = logging.getLogger(__name__)

FILE_BYTES = 16_000_000
FILE_SECONDS = 3600.0
RESULT_BYTES = 4096  # of a larger result, only the size is written
MESSAGE_CHARACTERS = 300
COMPLAINS_EVERY_SECONDS = 60.0


class OutcomeLogUnusable(QueueOpsError):
    """The directory in QUEUEOPS_OUTCOME_LOG cannot be written."""

    code = "outcome_log_unusable"
    status = 500


def ensure_usable(directory: Path) -> None:
    """
    Make the directory if it is missing, readable by its owner alone, because its files contain results.

    Raises:
        OutcomeLogUnusable
    """
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        probe = directory / f".probe-{os.getpid()}"
        with probe.open("wb") as file:
            fcntl.flock(file, fcntl.LOCK_EX)  # some network file systems have no locks
        probe.unlink()
    except OSError as error:
        raise OutcomeLogUnusable(
            f"QUEUEOPS_OUTCOME_LOG must be a directory that workers can write; {directory}: {error.strerror}"
        ) from error


class OutcomeLog:
    """
    The log of one executor, shared by all its threads.

    When a write returns, the operating system has the lines, and they survive this process. They are synced to disk
    before a call whose kind is not always safe to repeat, when a file is full, and at the end. Lines that cannot be
    written hold up no job: a warning is logged, and the lines are lost.

    Args:
        most_bytes: Most bytes of all files in the directory; beyond that, the oldest finished files are deleted.
        days: Age in days after which a finished file is deleted.
    """

    def __init__(self, directory: Path, executor: UUID, *, most_bytes: int, days: float) -> None:
        self._directory = directory
        self._executor = executor
        self._most_bytes = most_bytes
        self._days = days
        self._file: IO[bytes] | None = None
        self._size = 0
        self._next_file_at = self._complains_at = float("-inf")
        self._repeatable: dict[str, bool] = {}
        self._lock = threading.Lock()  # the batch lane's threads write beside the pump

    def begin(self, jobs: Sequence[ClaimedJob]) -> None:
        """Write that calls for these jobs are about to begin; call this before they begin."""
        self._write((_line("begun", job) for job in jobs), sync=not all(map(self._may_be_repeated, jobs)))

    def end(self, outcomes: Iterable[Outcome]) -> None:
        """Write how calls ended; call this before the outcomes are written to the database."""
        self._write(map(_ending, outcomes), sync=False)

    def close(self) -> None:
        """Sync all lines to disk, and close the file."""
        with self._lock:
            self._close()

    def _close(self) -> None:
        file, self._file = self._file, None
        if file is not None:
            with suppress(OSError), file:
                os.fdatasync(file.fileno())

    def _write(self, lines: Iterable[str], *, sync: bool) -> None:
        text = "".join(lines).encode(errors="replace")
        if not text:
            return
        with self._lock:
            try:
                file = self._open()
                self._put(text, file)
                if sync:
                    os.fdatasync(file.fileno())
            except OSError as error:
                if time.monotonic() >= self._complains_at:
                    self._complains_at = time.monotonic() + COMPLAINS_EVERY_SECONDS
                    logger.warning("executor %s: the outcome log lacks %s bytes: %s", self._executor, len(text), error)

    def _put(self, text: bytes, file: IO[bytes]) -> None:
        """
        Write lines, and cut off a half-written one, because the next line must not continue it.

        The file stays open: on a full disk, a new file for each write would end in a directory that takes seconds to
        read, while the pump waits.
        """
        whole = 0
        try:
            whole = text.rfind(b"\n", 0, file.write(text)) + 1
        finally:
            self._size += whole
            if whole < len(text):
                self._cut(file)
        if whole < len(text):
            raise OSError(f"{file.name} takes no more")

    def _cut(self, file: IO[bytes]) -> None:
        try:
            os.ftruncate(file.fileno(), self._size)
        except OSError:
            self._close()

    def _open(self) -> IO[bytes]:
        now = time.monotonic()
        if self._file is None or self._size >= FILE_BYTES or now >= self._next_file_at:
            self._close()
            self._forget_old()
            name = f"{datetime.now(UTC):%Y%m%dT%H%M%S.%f}-{self._executor}.ndjson"
            descriptor = os.open(self._directory / name, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
            self._file, self._size = os.fdopen(descriptor, "ab", buffering=0), 0
            fcntl.flock(descriptor, fcntl.LOCK_EX)  # marks the file as being written
            self._next_file_at = now + FILE_SECONDS
            to_disk(self._directory)
        return self._file

    def _forget_old(self) -> None:
        total = 0
        for path in sorted(self._directory.glob("*.ndjson"), reverse=True):
            with suppress(OSError):  # the file is gone, or another user's: writing must go on
                known = path.stat()
                total += known.st_size
                if total > self._most_bytes or time.time() - known.st_mtime > self._days * 86400:
                    _delete_unless_written(path)

    def _may_be_repeated(self, job: ClaimedJob) -> bool:
        if job.kind not in self._repeatable:
            try:
                self._repeatable[job.kind] = find_handler(job.kind).idempotent is True
            except UnknownKind:
                return True  # no handler, so no call is made
        return self._repeatable[job.kind]


def _line(event: str, job: ClaimedJob, **facts: object) -> str:
    known = {
        "event": event,
        "at": datetime.now(UTC).isoformat(timespec="milliseconds"),
        "job": str(job.id),
        "effect_key": job.effect_key,
        "token": job.token,
        "kind": job.kind,
        "project": job.project,
    }
    return json.dumps(known | facts) + "\n"


def _ending(outcome: Outcome) -> str:
    """
    Return the line for an outcome, in which one of five words says how the call ended.

    `completed`; `failed`: no further attempt would help; `retry`: it failed and another attempt may follow; `part`: a
    part is done; `not_done`: the job is given back.
    """
    if isinstance(outcome, Succeeded):
        result = outcome.result
        if result is None:
            return _line("ended", outcome.job, outcome="completed")
        if is_reference(result):
            size = stored_in(json.loads(result))
            return _line("ended", outcome.job, outcome="completed", result_bytes=size.bytes if size else 0)
        if len(result) > RESULT_BYTES:
            return _line("ended", outcome.job, outcome="completed", result_bytes=len(result.encode()))
        return _line("ended", outcome.job, outcome="completed", result=json.loads(result_of(outcome.job, result) or ""))
    if isinstance(outcome, Failed):
        failure = outcome.failure
        again = failure.push_back is not None or is_retryable(failure, repeatable=outcome.repeatable)
        facts = {"error_code": failure.code, "message": message_of(outcome.job, failure.message[:MESSAGE_CHARACTERS])}
        return _line("ended", outcome.job, outcome="retry" if again else "failed", **facts)
    return _line("ended", outcome.job, outcome="not_done" if outcome.partial is None else "part")


def _delete_unless_written(path: Path) -> None:
    file = os.open(path, os.O_RDONLY)
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        path.unlink()
    except BlockingIOError:
        pass
    finally:
        os.close(file)
