"""
Puts results into the result store, before the outcome that names them is written.

An object is complete before the commit whose row names it, and each write makes a new object. A row therefore never
names an incomplete object. A stale executor overwrites nothing: its commit is refused, and the sweep removes its
object.
"""

from __future__ import annotations

import hashlib
from functools import lru_cache

from django.conf import settings

from jobs.services.finish.claimed import ClaimedJob
from queueops.core import sealing
from queueops.core.stores.choose import store_at
from queueops.core.stores.store import Store

from .reference import StoredResult, is_reference, new_name


def result_store() -> Store | None:
    """
    The store that the settings name; None: results are in the database.

    Raises:
        StoreError: A package that the store needs is not installed.
    """
    place = settings.QUEUEOPS.result_store
    return _store(place) if place else None


@lru_cache(maxsize=4)
def _store(place: str) -> Store:
    return store_at(place)


def is_for_store(result: str | None) -> bool:
    """Whether JSON text goes to the store, where there is one."""
    config = settings.QUEUEOPS
    if result is None or config.result_store is None:
        return False
    return size_of(result) > min(config.result_store_over, config.max_payload_bytes) and not is_reference(result)


def size_of(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode())


def put_result(store: Store, job: ClaimedJob, result: str) -> str:
    """
    Write a claimed job's result, encrypted where its payload is; return the JSON text for its row.

    Raises:
        StoreError, OSError, PayloadKeysMissing
    """
    name = new_name(job.project, job.id, job.token)
    return put_content(store, name, result.encode(), sealed=job.sealed).as_json


def put_content(store: Store, name: str, content: bytes, *, sealed: bool) -> StoredResult:
    """Write a result under a new name, encrypted if it is to be `sealed`. Raises as `put_result`."""
    kept = sealing.seal_bytes(content) if sealed else content
    found = StoredResult(name, len(content), hashlib.sha256(kept).hexdigest())
    with store.write(found.name) as file:
        file.write(kept)
    return found
