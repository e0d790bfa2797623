"""
Emptying the database after a test that committed.

Django's flush makes content types, permissions, groups and schedules again each time, which takes longer than the
emptying itself. Here they are made again once, and copied from then on. It also leaves the log, whose table Django
does not manage; here that is emptied too, for a worker runs modules in any order.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from django.core.management.sql import emit_post_migrate_signal
from django.db import connection, transaction
from psycopg import sql


@pytest.fixture(autouse=True, scope="session")
def copied_reference_rows() -> Iterator[None]:
    """Let flush copy what post_migrate made the first time."""
    kept: dict[str, bytes] = {}

    def refill(*args: Any, **kwargs: Any) -> None:
        with connection.cursor() as cursor:
            cursor.execute("TRUNCATE jobs_jobevent")
        if kept:
            _write(kept)
        else:
            emit_post_migrate_signal(*args, **kwargs)
            kept.update(_read())

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("django.core.management.commands.flush.emit_post_migrate_signal", refill)
        yield


def _read() -> dict[str, bytes]:
    """Every table that has rows, with its rows as PostgreSQL copies them."""
    found: dict[str, bytes] = {}
    with connection.cursor() as cursor:
        for table in connection.introspection.django_table_names(only_existing=True, include_views=False):
            with cursor.copy(sql.SQL("COPY (SELECT * FROM {}) TO STDOUT").format(sql.Identifier(table))) as copied:
                found[table] = b"".join(bytes(part) for part in copied)
    return {table: rows for table, rows in found.items() if rows}


def _write(rows_by_table: dict[str, bytes]) -> None:
    with transaction.atomic(), connection.cursor() as cursor:
        for table, rows in rows_by_table.items():
            with cursor.copy(f'COPY "{table}" FROM STDIN') as copying:
                copying.write(rows)
