"""
Emptying the database after a test that committed.

Django's flush makes content types, permissions, groups and schedules again each time, which takes longer than the
emptying itself. Here they are made again once, and copied from then on. It truncates every table, and each costs new
files for itself and its indexes; here one without a byte is left as it is. It also leaves the log, whose table Django
does not manage; here that is emptied too, for a worker runs modules in any order.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from django.core.management.sql import emit_post_migrate_signal
from django.core.management.sql import sql_flush as truncate_all
from django.db import connection, transaction
from psycopg import sql

LOG = "jobs_jobevent"
# It outlives a test as web processes do, which would see a database of an earlier epoch.
KEPT = "jobs_epoch"
# A table's own size: rows that were deleted or rolled back count until it is truncated, as its statistics do.
WRITTEN = """
    SELECT oid::regclass::text FROM pg_class
     WHERE relname = ANY(%s) AND pg_table_is_visible(oid)
       AND (pg_relation_size(oid) > 0
            OR EXISTS (SELECT FROM pg_partition_tree(oid) AS part WHERE pg_relation_size(part.relid) > 0))
"""


@pytest.fixture(autouse=True, scope="session")
def copied_reference_rows() -> Iterator[None]:
    """Let flush copy what post_migrate made the first time."""
    kept: dict[str, bytes] = {}

    def refill(*args: Any, **kwargs: Any) -> None:
        if kept:
            _write(kept)
        else:
            emit_post_migrate_signal(*args, **kwargs)
            kept.update(_read())

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("django.core.management.commands.flush.emit_post_migrate_signal", refill)
        patch.setattr("django.core.management.commands.flush.sql_flush", _truncate_written)
        yield


def _truncate_written(
    style: Any, database: Any, reset_sequences: bool = False, allow_cascade: bool = False
) -> list[str]:
    """Truncate the tables that were written to, and with them, as PostgreSQL demands, those that refer to them."""
    if reset_sequences:
        return [*truncate_all(style, database, reset_sequences, allow_cascade), f"TRUNCATE {LOG}"]
    tables = database.introspection.django_table_names(only_existing=True, include_views=False)
    with database.cursor() as cursor:
        cursor.execute(WRITTEN, [[*(table for table in tables if table != KEPT), LOG]])
        written = [name for (name,) in cursor]
    return [f"TRUNCATE {', '.join(written)} CASCADE"] if written else []


def _read() -> dict[str, bytes]:
    """Every table that has rows, with its rows as PostgreSQL copies them."""
    found: dict[str, bytes] = {}
    with connection.cursor() as cursor:
        for table in connection.introspection.django_table_names(only_existing=True, include_views=False):
            with cursor.copy(sql.SQL("COPY (SELECT * FROM {}) TO STDOUT").format(sql.Identifier(table))) as copied:
                found[table] = b"".join(bytes(part) for part in copied)
    return {table: rows for table, rows in found.items() if rows and table != KEPT}


def _write(rows_by_table: dict[str, bytes]) -> None:
    with transaction.atomic(), connection.cursor() as cursor:
        for table, rows in rows_by_table.items():
            with cursor.copy(f'COPY "{table}" FROM STDIN') as copying:
                copying.write(rows)
