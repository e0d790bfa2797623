"""
Emptying the database after a test that committed.

Django's flush makes content types, permissions, groups and schedules again each time, which takes longer than the
emptying itself. Here they are left alone where the test changed none of them; else they are copied from what was made
the first time. It truncates every table, and each costs new files for itself and its indexes; here one without a byte
is left as it is. It also leaves the log, whose table Django does not manage; here that is emptied too, for a worker
runs modules in any order.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from django.contrib.contenttypes.models import ContentType
from django.core.management.sql import emit_post_migrate_signal
from django.db import OperationalError, connection, transaction
from django.test import TransactionTestCase
from psycopg import sql
from psycopg.errors import DeadlockDetected

LOG = "jobs_jobevent"
DEADLOCKS = 5  # that the database ends by refusing us
# It outlives a test as web processes do, which would see a database of an earlier epoch.
KEPT = "jobs_epoch"
# A table's own size: rows that were deleted or rolled back count until it is truncated, as its statistics do.
WRITTEN = """
    SELECT oid::regclass::text FROM pg_class
     WHERE relname = ANY(%s) AND pg_table_is_visible(oid)
       AND (pg_relation_size(oid) > 0
            OR relkind = 'p' AND EXISTS (
               SELECT FROM pg_partition_tree(oid) AS part WHERE pg_relation_size(part.relid) > 0))
"""
REFERS_ELSEWHERE = """
    SELECT conrelid::regclass::text FROM pg_constraint
     WHERE contype = 'f' AND conrelid::regclass::text = ANY(%(kept)s) AND confrelid::regclass::text <> ALL(%(kept)s)
"""


class Emptier:
    """
    Attributes:
        rows: What post_migrate makes, by table, as PostgreSQL copies it; empty until it was made once.
        seal: Tells whether somebody changed it.
    """

    def __init__(self) -> None:
        self.rows: dict[str, bytes] = {}
        self.seal: list[str] = []

    def empty(self) -> None:
        """Again where a server that outlives the test reads: it holds one table and asks for another that we hold."""
        ContentType.objects.clear_cache()  # a test may have filled it from another database under the same name
        for _ in range(DEADLOCKS):
            try:
                self._empty()
            except OperationalError as error:
                if not isinstance(error.__cause__, DeadlockDetected):
                    raise
            else:
                return
        self._empty()

    def _empty(self) -> None:
        with transaction.atomic(), connection.cursor() as cursor:
            names = connection.introspection.django_table_names(only_existing=False, include_views=False)
            cursor.execute(WRITTEN, [[*(name for name in names if name != KEPT), LOG]])
            written = {name for (name,) in cursor}
            is_intact = bool(self.rows) and self._sealed() == self.seal
            if is_intact:
                written -= self.rows.keys()
            if written:
                # With them, as PostgreSQL demands, those that refer to them.
                cursor.execute(f"TRUNCATE {', '.join(sorted(written))} CASCADE")
            if not self.rows:
                self._make()
            elif not is_intact:
                self._copy()

    def _make(self) -> None:
        emit_post_migrate_signal(verbosity=0, interactive=False, db=connection.alias)
        with connection.cursor() as cursor:
            for table in connection.introspection.django_table_names(only_existing=True, include_views=False):
                with cursor.copy(sql.SQL("COPY (SELECT * FROM {}) TO STDOUT").format(sql.Identifier(table))) as copied:
                    self.rows[table] = b"".join(bytes(part) for part in copied)
            self.rows = {table: rows for table, rows in self.rows.items() if rows and table != KEPT}
            cursor.execute(REFERS_ELSEWHERE, {"kept": [*self.rows]})
            assert not list(cursor), "emptying others would empty these"
        self.seal = self._sealed()

    def _copy(self) -> None:
        with connection.cursor() as cursor:
            for table, rows in self.rows.items():
                with cursor.copy(f'COPY "{table}" FROM STDIN') as copying:
                    copying.write(rows)

    def _sealed(self) -> list[str]:
        with connection.cursor() as cursor:
            cursor.execute(
                " UNION ALL ".join(
                    f"SELECT '{table}' || md5(string_agg(one::text, '' ORDER BY one::text)) FROM {table} AS one"  # noqa: S608
                    for table in self.rows
                )
            )
            return [text for (text,) in cursor]


@pytest.fixture(autouse=True, scope="session")
def quick_emptying() -> Iterator[None]:
    """In place of Django's flush, which a command runs anew after each test."""
    emptier = Emptier()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(TransactionTestCase, "_fixture_teardown", lambda _: emptier.empty())
        yield
