"""Looks for traces of an erased user: in the database, the result store, the archive and the trail."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import IO
from uuid import UUID

from django.db import connection
from django.db.models import TextField
from django.db.models.functions import Cast

from jobs.features.archive.day_files import DayFiles
from jobs.features.results.garbage_collect import unnamed_in
from jobs.features.results.store import result_store
from jobs.services.upkeep.partitions import AUDIT
from queueops.audit.models import AuditEntry
from queueops.core.stores.store import Store

SEARCHED_BYTES = 1_000_000
WHY_TRAIL = "the audit trail is append-only; its months are dropped after QUEUEOPS_AUDIT_RETENTION_DAYS"


@dataclass(frozen=True, slots=True)
class UntouchedEntry:
    """An entry of the audit trail that names the user. `fields`: in which of its columns."""

    entry: int
    at: datetime
    action: str
    project: str
    fields: tuple[str, ...]
    why: str = WHY_TRAIL


def entries_naming(user_id: UUID) -> list[UntouchedEntry]:
    """Every entry of the trail that has the user's id in any column. Reads the whole trail."""
    text, columns = str(user_id), ("actor", "target", "before", "after", "reason")
    as_text = {f"{name}_text": Cast(name, TextField()) for name in columns}
    found = []
    # Searches the whole row, so that a column added later is searched as well.
    with connection.cursor() as cursor:
        name = connection.ops.quote_name(AUDIT.table)
        cursor.execute(f"SELECT id FROM {name} AS whole WHERE position(%s IN whole::text) > 0 ORDER BY id", [text])  # noqa: S608
        ids = [pk for (pk,) in cursor.fetchall()]
    for row in AuditEntry.objects.filter(pk__in=ids).annotate(**as_text).order_by("pk"):
        named = tuple(name for name in columns if text in (getattr(row, f"{name}_text") or ""))
        found.append(UntouchedEntry(row.pk, row.created_at, row.action, row.project_id, named))
    return found


def find_traces(project_id: str, user_id: UUID, *, archive: Store | None) -> dict[str, int]:
    """
    Count where the user's id is left. Reads everything.

    A row counts if any of its columns has the id, in all tables but the audit trail. An object of the project's results
    counts if it has the id. Rows and copies in the project's archive count, too. Objects that no job names are counted
    in any case, as they may be anybody's.

    Packed or sealed data is not searched: files of uploads, which `erase_user` unpacks, encrypted results, and secrets.

    Raises:
        StoreError, OSError, ArchiveError: Something cannot be read, so nothing is proven.
    """
    found = _in_tables(user_id)
    store = result_store()
    if store is not None:
        found["results that no job names"] = unnamed_in(store, project_id)
        found["results with the id"] = _objects_with(store, project_id, user_id)
    if archive is not None:
        parts = (files.lines(part) for files in DayFiles.every(archive, project_id=project_id) for part in files.parts)
        found["archived rows"] = sum(str(user_id) in line for lines in parts for line in lines)
        found["archived results"] = _objects_with(archive, project_id, user_id, within="/results/")
    return {where: count for where, count in found.items() if count}


def _in_tables(user_id: UUID) -> dict[str, int]:
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT relname FROM pg_class WHERE relnamespace = 'public'::regnamespace AND relkind IN ('r', 'p')"
            " AND NOT relispartition AND relname <> %s ORDER BY relname",
            [AUDIT.table],
        )
        found = {}
        for (table,) in cursor.fetchall():
            name = connection.ops.quote_name(table)
            statement = f"SELECT count(*) FROM {name} AS whole WHERE position(%s IN whole::text) > 0"  # noqa: S608
            cursor.execute(statement, [str(user_id)])
            [(found[table],)] = cursor.fetchall()
        return found


def _objects_with(store: Store, project_id: str, user_id: UUID, *, within: str = "/") -> int:
    wanted, count = str(user_id).encode(), 0
    for one in store.files(project_id):
        if within in one.name:
            with store.read(one.name) as file:
                count += any(wanted in piece for piece in _pieces(file, overlap=len(wanted)))
    return count


def _pieces(file: IO[bytes], *, overlap: int) -> Iterator[bytes]:
    """Pieces of a file, each with the end of the piece before: the wanted text may lie across two."""
    end = b""
    while piece := file.read(SEARCHED_BYTES):
        yield end + piece
        end = piece[-overlap:]
