"""Reads results, wherever they are."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from contextlib import contextmanager
from threading import BoundedSemaphore
from typing import IO, Any

from jobs.models import Job
from queueops.core.errors import QueueOpsError
from queueops.core.sealing import MARK, shown_bytes
from queueops.core.stores.store import Store, StoreError

from .reference import StoredResult, stored_in
from .store import result_store

PIECE_OF_RESULT_BYTES = 1 << 18
MAX_READERS = 4
PLACE_SECONDS = 2.0  # how long one more reader waits for its turn

_readers = BoundedSemaphore(MAX_READERS)


class ResultMissing(QueueOpsError):
    """The job's row names an object that the result store lacks or has with other content."""

    code = "result_missing"
    status = 410
    detail_fields = ("object",)


def whole_result(job: Job) -> Any:
    """
    A job's result as a value.

    Raises:
        ResultMissing
        StoreError: The store does not answer, or is not set here.
    """
    stored = stored_in(job.result)
    return job.result if stored is None else json.loads(b"".join(read_stored(stored)))


@contextmanager
def among_few() -> Iterator[None]:
    """
    Run a block that reads the store for a waiting request; at most MAX_READERS blocks run at once in this process.

    Otherwise a store that hangs would block every thread that answers requests, and large results would use all memory.

    Raises:
        StoreError: MAX_READERS blocks run already.
    """
    if not _readers.acquire(timeout=PLACE_SECONDS):
        raise StoreError("The result store is slow, and as many results as may be are read from it now: try again.")
    try:
        yield
    finally:
        _readers.release()


def read_stored(stored: StoredResult) -> Iterator[bytes]:
    """
    The JSON of a stored result, in pieces. An encrypted result comes whole, as the caller may see it.

    The last piece comes once the checksum is known to be right. Raises as `whole_result`. The first piece of a plain
    result is read before this returns.
    """
    store = result_store()
    if store is None:
        raise StoreError("The result is in a result store, and QUEUEOPS_RESULT_STORE is not set here.")
    file, first = _begun(store, stored)
    if first.startswith(MARK.encode()):
        with file:
            content = b"".join(_checked(stored, file, first))
        return iter([shown_bytes(content)])
    return _closing(stored, file, first)


def sum_of(file: IO[bytes]) -> str:
    """The checksum of an object, as references have it."""
    digest = hashlib.sha256()
    while piece := file.read(PIECE_OF_RESULT_BYTES):
        digest.update(piece)
    return digest.hexdigest()


def _begun(store: Store, stored: StoredResult) -> tuple[IO[bytes], bytes]:
    try:
        file = store.read(stored.name)
        return file, file.read(PIECE_OF_RESULT_BYTES)
    except FileNotFoundError:
        raise _missing(stored, "has no") from None
    except OSError as error:
        raise StoreError(f"The result store does not answer: {error.strerror or error}.") from error


def _closing(stored: StoredResult, file: IO[bytes], first: bytes) -> Iterator[bytes]:
    with file:
        yield from _checked(stored, file, first)


def _checked(stored: StoredResult, file: IO[bytes], first: bytes) -> Iterator[bytes]:
    digest, piece = hashlib.sha256(first), first
    while following := file.read(PIECE_OF_RESULT_BYTES):
        digest.update(following)
        yield piece
        piece = following
    if digest.hexdigest() != stored.sha256:
        raise _missing(stored, "has another content of the")
    yield piece


def _missing(stored: StoredResult, what: str) -> ResultMissing:
    return ResultMissing(
        f"The result store {what} object {stored.name}, which the job's row names: it was removed there, or the "
        "database was put back to a time before.",
        object=stored.name,
    )
