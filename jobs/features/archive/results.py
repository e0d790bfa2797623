"""
Large results of archived jobs: the archive has copies of its own, beside the file that names them.

    acme/2026-11-24/results/<as in the result store>

The results are copied before the rows are deleted, so that the result store may delete its objects. A restore copies
them back under the same name.
"""

from __future__ import annotations

import json
import logging
import shutil
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any
from uuid import UUID

from jobs.features.results.garbage_collect import keep_sweep_out, objects_of, remove_objects
from jobs.features.results.read import sum_of
from jobs.features.results.reference import StoredResult, stored_in
from jobs.features.results.store import result_store
from queueops.core.sealing import STORED
from queueops.core.stores.store import Store, StoreError
from queueops.tenancy.models import Project, ProjectMove

from .day_files import ArchiveError, DayFiles

logger = logging.getLogger(__name__)


def with_results(
    files: DayFiles,
    rows: Iterable[tuple[str, str]],
    *,
    keep: Callable[[], None],
    again: Callable[[str], str | None],
) -> Iterator[tuple[str, str]]:
    """
    Yield each row after its large result was copied into the archive.

    Args:
        keep: Called before each copy to renew the archive's duty: thousands of copies may take longer than one term.
        again: Reads a row anew by its key; None: it is gone.

    Raises:
        ArchiveError: The result store is not set here, or does not answer.
    """
    for key, row in rows:
        text = row
        while stored := stored_of(text):
            keep()
            if _copy(stored, source=_store(), name=stored.name, target=files.store, place=place_of(files, stored)):
                break
            # `encrypt_payloads` may have replaced the object since the row was read. Read the row again: otherwise it
            # would be archived without its result, and the new object would be removed with the row.
            newer = again(key)
            if newer is None or stored_of(newer) == stored:
                _warn_of_lost(_store(), stored.name)
                break
            text = newer
        yield key, text


def forget_copied(project_id: str, ids: Sequence[UUID], objects: Collection[str]) -> None:
    """
    Remove the objects of archived jobs from the result store, after the jobs' rows are deleted.

    The archive's copies have been read back and compared by then. Objects of a project that moves, or has moved, stay:
    its rows at the other installation name them.

    If the store does not answer, the sweep removes the objects a day later.
    """
    if not objects or not Project.objects.filter(pk=project_id, move=ProjectMove.NONE).exists():
        return
    named = set(objects_of(project_id, ids))  # jobs that were not deleted still name these objects
    try:
        remove_objects(_store(), [name for name in objects if name not in named])
    except (ArchiveError, StoreError, OSError) as error:
        logger.warning("results of archived jobs of %s stay until the next sweep: %s", project_id, error)


def bring_back(files: DayFiles, lines: Iterable[str]) -> None:
    """
    Copy the large results of restored jobs back into the result store, in the transaction that inserts the jobs' rows.

    Raises:
        ArchiveError
    """
    found = [stored for line in lines if (stored := stored_of(line))]
    if found:
        keep_sweep_out()
    for stored in found:
        place = place_of(files, stored)
        if not _copy(stored, source=files.store, name=place, target=_store(), place=stored.name):
            _warn_of_lost(files.store, place)


def stored_of(line: str) -> StoredResult | None:
    """The stored result that an archived job names."""
    if STORED not in line:
        return None
    found: Mapping[str, Any] = json.loads(line)
    if "job" not in found:
        return None
    text = found["job"].get("result_text")  # archives from before 1.1 have the JSON `result` alone
    return stored_in(found["job"]["result"] if text is None else json.loads(text))


def place_of(files: DayFiles, stored: StoredResult) -> str:
    """The path of a result in the archive."""
    return f"{files.project_id}/{files.day}/results/{stored.name.rpartition('/')[2]}"


def verify_result(files: DayFiles, stored: StoredResult) -> bool:
    """
    Whether the archive has a sound copy of a result; False: it has no copy, because the result store had lost it.

    Raises:
        ArchiveError: The copy differs, or cannot be read.
    """
    place = place_of(files, stored)
    try:
        with files.store.read(place) as file:
            if sum_of(file) != stored.sha256:
                raise ArchiveError(f"{place} is not what was written: its checksum differs.")
    except FileNotFoundError:
        return False
    except OSError as error:
        raise ArchiveError(f"{place} cannot be read: {error}.") from error
    return True


def _store() -> Store:
    store = result_store()
    if store is None:
        raise ArchiveError("There are results in a result store: set QUEUEOPS_RESULT_STORE here.")
    return store


def _copy(stored: StoredResult, *, source: Store, name: str, target: Store, place: str) -> bool:
    """Copy an object; return False if the source lacks it. Raises ArchiveError: the object was not copied."""
    try:
        try:
            original = source.read(name)
        except FileNotFoundError:
            return False
        with original, target.write(place) as copy:
            shutil.copyfileobj(original, copy)
        with target.read(place) as file:
            if sum_of(file) != stored.sha256:
                raise ArchiveError(f"{name} is not what its job names, or was not copied whole.")
    except (StoreError, OSError) as error:
        raise ArchiveError(f"{name} cannot be copied from {source} to {target}: {error}") from error
    return True


def _warn_of_lost(store: Store, name: str) -> None:
    """The object was lost before: the job goes without it, and its row still says what was stored."""
    logger.warning("%s has no %s: its job goes without its result", store, name)
