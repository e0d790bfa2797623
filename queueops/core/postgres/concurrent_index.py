"""Indexes that are built while work goes on, and that can be built again after an attempt that was cut off."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from django.contrib.postgres.operations import AddIndexConcurrently, RemoveIndexConcurrently
from django.db.migrations import AddConstraint


class AddIndexBesideWork(AddIndexConcurrently):
    """
    Django's AddIndexConcurrently, which can be repeated and waits for old transactions as long as they last.

    When an attempt is cut off, PostgreSQL leaves an invalid index of that name, at which every later attempt would
    fail. A concurrent build that waits blocks nobody. `lock_timeout`, which the page on upgrades sets for migrations,
    is therefore off meanwhile.
    """

    def database_forwards(self, app_label: str, schema_editor: Any, from_state: Any, to_state: Any) -> None:
        with _beside_work(schema_editor, self.index.name):
            super().database_forwards(app_label, schema_editor, from_state, to_state)


class RemoveIndexBesideWork(RemoveIndexConcurrently):
    """Django's RemoveIndexConcurrently, which waits for old transactions as long as they last."""

    def database_forwards(self, app_label: str, schema_editor: Any, from_state: Any, to_state: Any) -> None:
        with _beside_work(schema_editor, self.name):
            super().database_forwards(app_label, schema_editor, from_state, to_state)


class AddUniqueBesideWork(AddConstraint):
    """
    Django's AddConstraint for a unique constraint with a condition, which is an index: it works as AddIndexBesideWork
    does. The migration must have `atomic = False`.
    """

    def database_forwards(self, app_label: str, schema_editor: Any, from_state: Any, to_state: Any) -> None:
        model = to_state.apps.get_model(app_label, self.model_name)
        if not self.allow_migrate_model(schema_editor.connection.alias, model):
            return
        made = str(self.constraint.create_sql(model, schema_editor))
        with _beside_work(schema_editor, self.constraint.name):
            schema_editor.execute(made.replace("CREATE UNIQUE INDEX", "CREATE UNIQUE INDEX CONCURRENTLY", 1))


@contextmanager
def _beside_work(schema_editor: Any, name: str) -> Iterator[None]:
    connection = schema_editor.connection
    with connection.cursor() as cursor:
        cursor.execute("SHOW lock_timeout")
        [before] = cursor.fetchone()
        cursor.execute("SET lock_timeout = 0")
    try:
        schema_editor.execute(f"DROP INDEX CONCURRENTLY IF EXISTS {connection.ops.quote_name(name)}")
        yield
    finally:
        with connection.cursor() as cursor:
            cursor.execute("SELECT set_config('lock_timeout', %s, false)", [before])
