"""
Writes large results to the result store in its own threads: neither the handlers' loop nor the pump waits for it.

A job keeps its slot until its result is stored, so no more results are in memory than there are slots.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from functools import lru_cache

from django.conf import settings

from jobs.handlers.errors import ProviderError
from jobs.services.finish.claimed import ClaimedJob
from queueops.core.errors import QueueOpsError
from queueops.core.stores.store import Store

from .store import is_for_store, put_result, result_store, size_of
from .totals import ResultFigures

logger = logging.getLogger(__name__)

RESULT_THREADS = 4
LAST_WRITE_SECONDS = 3.0  # how long an executor that stops waits for the store
STORE_AWAY_SECONDS = 10.0  # after a failure, results that fit into the database go there for so long

Writing = Future[str]


class ResultNotStored(ProviderError):
    """The result store did not take a result, and it is too large for the database. The call was made."""

    def __init__(self, size: int, why: str) -> None:
        message = f"The result has {size:,} bytes and could not be stored: {why}."
        super().__init__(None, message, code="result_store_failed", outcome="unknown")


class ResultWriter:
    """
    Writes one executor's results.

    Threads: any thread may call its methods.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._seconds = settings.QUEUEOPS.result_store_seconds
        self._most_in_row = settings.QUEUEOPS.max_payload_bytes
        self._threads = ThreadPoolExecutor(max_workers=RESULT_THREADS, thread_name_prefix="results")
        self._under_way: set[Writing] = set()
        self._away_until = float("-inf")
        self._figures = ResultFigures()

    def begin(self, job: ClaimedJob, result: str | None) -> Writing | None:
        """Begin to write a result; None: the row keeps the result itself."""
        if result is None or not is_for_store(result):
            return None
        if time.monotonic() < self._away_until and size_of(result) <= self._most_in_row:
            self._figures.note_in_row()
            return None
        writing = self._threads.submit(put_result, self._store, job, result)
        self._under_way.add(writing)
        writing.add_done_callback(self._under_way.discard)
        return writing

    async def finish(self, writing: Writing, job: ClaimedJob, result: str) -> str:
        """
        Return the value for the job's row. Waits for the store for a bounded time; LAST_WRITE_SECONDS once cancelled.

        Raises:
            ResultNotStored
        """
        there = asyncio.wrap_future(writing)
        there.add_done_callback(_seen)
        try:
            await asyncio.wait([there], timeout=self._seconds)
        except asyncio.CancelledError:
            await asyncio.wait([there], timeout=LAST_WRITE_SECONDS)
        return self._judged(writing, job, result)

    def write(self, job: ClaimedJob, result: str | None) -> str | None:
        """Return the value for the job's row; for a thread that may wait. Raises ResultNotStored."""
        writing = self.begin(job, result)
        if writing is None or result is None:
            return result
        with suppress(TimeoutError):
            writing.exception(self._seconds)
        return self._judged(writing, job, result)

    @contextmanager
    def taken_figures(self) -> Iterator[ResultFigures]:
        """Give the figures since the last call, to be written in the block; if it raises, the next call has them."""
        figures, self._figures = self._figures, ResultFigures()
        try:
            yield figures
        except BaseException:
            self._figures.add(figures)
            raise

    @property
    def is_stuck(self) -> bool:
        """Whether a thread still waits for the store, so that the process cannot end by itself."""
        return any(writing.running() for writing in list(self._under_way))

    def stop(self) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)

    def _judged(self, writing: Writing, job: ClaimedJob, result: str) -> str:
        if not writing.done():
            return self._without(writing, job, result, "it did not answer in time")
        if error := writing.exception():
            if not isinstance(error, QueueOpsError | OSError):
                raise error
            return self._without(writing, job, result, str(error))
        self._figures.note_stored(size_of(result))
        return writing.result()

    def _without(self, writing: Writing, job: ClaimedJob, result: str, why: str) -> str:
        writing.cancel()  # a write that has begun goes on: it makes an object that no row names
        self._away_until = time.monotonic() + STORE_AWAY_SECONDS
        self._figures.note_failure(why)
        size = size_of(result)
        if size <= self._most_in_row:
            logger.warning("the result of job %s stays in the database, not in the result store: %s", job.id, why)
            self._figures.note_in_row()
            return result
        raise ResultNotStored(size, why.rstrip("."))


def _seen(there: asyncio.Future[str]) -> None:
    """Retrieve an error that nobody waits for any more: otherwise asyncio logs a complaint."""
    if not there.cancelled():
        there.exception()


def write_result(job: ClaimedJob, result: str | None) -> str | None:
    """
    Return the value for the job's row; for threads that may wait and have no writer. See `taken_figures`.

    Raises:
        ResultNotStored
    """
    return _writer(settings.QUEUEOPS.result_store).write(job, result) if is_for_store(result) else result


def taken_figures() -> AbstractContextManager[ResultFigures]:
    """Give the figures of `write_result` in this process, as ResultWriter does."""
    place = settings.QUEUEOPS.result_store
    return _writer(place).taken_figures() if place else nullcontext(ResultFigures())


@lru_cache(maxsize=1)
def _writer(place: str) -> ResultWriter:
    """One writer for the process, so that it remembers when the store is away."""
    store = result_store()
    assert store is not None, place  # noqa: S101 - narrows the type
    return ResultWriter(store)
