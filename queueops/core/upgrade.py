"""Whether the database's tables are those of this version, and whether migrations can bring them there."""

from __future__ import annotations

from typing import Any

from django.db import connection
from django.db.migrations.executor import MigrationExecutor
from django.db.migrations.loader import MigrationLoader
from django.db.migrations.recorder import MigrationRecorder

from .database import UnsuitableDatabase

# Each app's initial migration replaces a chain of migrations; this commit is the last that still has the chain.
LAST_WITH_THE_CHAIN = "a74cac7"


def missing_migrations() -> list[str]:
    """
    Return the migrations that are still to be applied, as `jobs.0001_initial`.

    Raises:
        UnsuitableDatabase: As for `ensure_upgradable`.
    """
    ensure_upgradable(connection)
    executor = MigrationExecutor(connection)
    return [str(migration) for migration, _ in executor.migration_plan(executor.loader.graph.leaf_nodes())]


def is_migrated() -> bool:
    try:
        return not missing_migrations()
    except UnsuitableDatabase:
        return False


def ensure_upgradable(database: Any) -> None:
    """
    Check the applied migrations before Django does. Django applies a migration whole, or regards it as applied whole.
    If a database has only a part of what a migration replaces, Django stops with a traceback, or creates existing
    tables again.

    Args:
        database: One of Django's connections.

    Raises:
        UnsuitableDatabase: The database has only a part of a chain of migrations that this version has replaced.
    """
    loader = MigrationLoader(database, load=False)
    loader.load_disk()
    applied = MigrationRecorder(database).applied_migrations()
    for (app, name), migration in sorted(loader.disk_migrations.items()):
        gone = [replaced for replaced in migration.replaces if replaced not in loader.disk_migrations]
        missing = [replaced for replaced in gone if replaced not in applied]
        if missing and (len(missing) < len(gone) or (app, name) in applied):
            raise UnsuitableDatabase(
                f"The tables of {app} stop before {missing[0][1]}, which this version no longer has: bring them up to"
                f" date with commit {LAST_WITH_THE_CHAIN} (version 0.1.0) first, then with this version; nothing was"
                " changed."
            )
