"""
Removes objects that no job's row names: of jobs that were deleted or erased, and of writes whose commit never came.

An object that a row names is kept. An object without a row is removed after GRACE, unless its job still runs with the
fencing token that the object was written for. Only the commit of that claim can name the object, however long the
database is away. Every other claim's commit is refused, so no row ever names a removed object.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import islice
from uuid import UUID

from django.db import connection, transaction

from jobs.states import RUNNING
from queueops.core.sql import run_sql
from queueops.core.stores.store import FileInStore, Store, StoreError
from queueops.tenancy.models import Project, ProjectMove

from .reference import read_name, stored_in
from .totals import ResultFigures, add_figures

GRACE = timedelta(days=1)
OBJECTS_AT_ONCE = 500
MARK = "swept-by"  # the object that names the database whose rows decide which objects stay
DATABASE = (
    "SELECT system_identifier::text || '.' || pg_database.oid FROM pg_control_system(), pg_database"
    " WHERE datname = current_database()"
)


class ForeignStore(StoreError):
    """The result store belongs to another database, which may be the one that this one was copied from."""

    code = "foreign_result_store"


@dataclass(frozen=True, slots=True)
class Swept:
    """
    Attributes:
        after: The last object of this sweep; empty: it went through all.
    """

    removed: int
    after: str


def ensure_own_store(store: Store, *, mark: bool = True) -> None:
    """
    Make sure that the rows of this database decide which objects stay.

    A copy of the database, made to try a restore or an upgrade, lacks the results written since, and must not remove
    their objects. The copy has another identifier, of the server or within the server.

    Args:
        mark: Whether a store without an owner becomes this database's own.

    Raises:
        ForeignStore, StoreError, OSError
    """
    with connection.cursor() as cursor:
        cursor.execute(DATABASE)
        [own] = cursor.fetchone()
    try:
        with store.read(MARK) as file:
            owner = file.read().decode(errors="replace").strip()
    except FileNotFoundError:
        if mark:
            with store.write(MARK) as file:
                file.write(own.encode())
        return
    if owner != own:
        raise ForeignStore(
            f"{store} belongs to the database {owner}, and this one is {own}: nothing is removed from it. If this "
            f"database has taken the place of that one, remove the object {MARK!r}."
        )


def sweep_results(
    store: Store,
    *,
    after: str = "",
    seconds: float = float("inf"),
    grace: timedelta = GRACE,
    project: str = "",
    dry_run: bool = False,
) -> Swept:
    """
    Remove objects that no row names, from the object `after` on. After `seconds`, the sweep ends with the current
    removal.

    The sweep must end then, even if the store is slow: django-q2 kills the worker of a longer task, with the jobs that
    run in it.

    Sweeps only the folders of projects that live here: another installation may keep its folders beside them. The rows
    of a project that has moved still name objects here until somebody has copied them.

    Args:
        grace: Objects younger than this stay; below zero, no object is too young.
        project: Only its folder. Empty: the folders of all, and the figures note a full sweep.

    Raises:
        StoreError, OSError
    """
    until, removed = time.monotonic() + seconds, 0
    old = datetime.now(UTC) - grace
    for chunk in _chunks(_files(store, after, project)):
        reached = chunk[-1].name
        if old_ones := [file for file in chunk if file.written_at < old]:
            count, stopped_at = _sweep_chunk(store, old_ones, until, dry_run=dry_run)
            removed, reached = removed + count, stopped_at or reached
        if time.monotonic() >= until:
            add_figures(ResultFigures(removed=0 if dry_run else removed))
            return Swept(removed, reached)
    if not dry_run:
        add_figures(ResultFigures(removed=removed), swept=not project)
    return Swept(removed, "")


def keep_sweep_out() -> None:
    """
    Keep sweeps away until the caller's transaction ends, however long the store takes: otherwise a sweep would remove
    restored objects that no row names yet.
    """
    with connection.cursor() as cursor:
        cursor.execute("SET LOCAL idle_in_transaction_session_timeout = 0")
        cursor.execute("SELECT pg_advisory_xact_lock(hashtextextended('queueops result store', 0))")


def _sweep_chunk(store: Store, files: Sequence[FileInStore], until: float, *, dry_run: bool) -> tuple[int, str]:
    """Return how many objects were removed, and the last object's name if time ran out before all were removed."""
    with transaction.atomic():
        keep_sweep_out()
        orphans = _orphans(files)
        for count, name in enumerate(orphans, 1):
            if not dry_run:
                store.remove(name)
            if count < len(orphans) and time.monotonic() >= until:
                return count, name
    return len(orphans), ""


def remove_objects(store: Store, names: Iterable[str]) -> int:
    """
    Remove objects that no row names any more. Call this after the commit that took their names away. The next sweep
    removes objects that this call could not.

    Raises:
        ForeignStore, StoreError, OSError
    """
    ensure_own_store(store)
    removed = 0
    for name in names:
        store.remove(name)
        removed += 1
    add_figures(ResultFigures(removed=removed))
    return removed


def remove_unnamed(store: Store, project_id: str) -> int:
    """
    Remove every object of a project that no row names, however young.

    They are results of jobs that were deleted just now; no row tells any more to which user they belong.

    Raises:
        ForeignStore, StoreError, OSError
    """
    ensure_own_store(store)
    return sweep_results(store, grace=-GRACE, project=project_id).removed  # the store's clock may be ahead of ours


def unnamed_in(store: Store, project_id: str) -> int:
    """How many objects of a project no row names. Raises as `remove_unnamed`."""
    return sum(len(_orphans(chunk)) for chunk in _chunks(store.files(project_id)))


def objects_of(project_id: str, ids: Sequence[UUID]) -> list[str]:
    """The objects that jobs name."""
    rows = run_sql("jobs", "read_stored_results", {"ids": list(ids), "projects": [project_id]})
    return [stored.name for row in rows if (stored := stored_in(row[3])) is not None]


def _files(store: Store, after: str, only: str) -> Iterator[FileInStore]:
    since = after.partition("/")[0]
    here = Project.objects.filter(move=ProjectMove.NONE)
    for project in sorted((here.filter(pk=only) if only else here).values_list("pk", flat=True)):
        if project >= since:
            yield from store.files(project, after=after if project == since else "")


def _chunks(files: Iterator[FileInStore]) -> Iterator[list[FileInStore]]:
    while chunk := list(islice(files, OBJECTS_AT_ONCE)):
        yield chunk


def _orphans(files: Sequence[FileInStore]) -> list[str]:
    written = {file.name: known for file in files if (known := read_name(file.name.removesuffix(".partial")))}
    if not written:
        return []
    ids = list({job for job, _ in written.values()})
    projects = list({name.partition("/")[0] for name in written})
    rows = {row[0]: row[1:] for row in run_sql("jobs", "read_stored_results", {"ids": ids, "projects": projects})}
    return [name for name, (job, token) in written.items() if not _is_needed(name, token, rows.get(job))]


def _is_needed(name: str, token: int, row: tuple[str, int, str | None] | None) -> bool:
    if row is None:
        return False
    status, current, result = row
    stored = stored_in(result)
    return (stored is not None and stored.name == name) or (status in RUNNING and current == token)
