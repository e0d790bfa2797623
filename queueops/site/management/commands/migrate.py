import contextlib
import time
from collections.abc import Iterator
from typing import Any

from django.core.management.base import CommandError
from django.core.management.commands import migrate
from django.db import DEFAULT_DB_ALIAS, connections

from queueops.core.database import UnsuitableDatabase
from queueops.core.upgrade import ensure_upgradable

LOCK_LOOK_SECONDS = 0.5
LOCK = "SELECT pg_try_advisory_xact_lock(hashtextextended('queueops migrate', 0))"


class Command(migrate.Command):
    help = "Bring the tables up to date. Of several at once, one works and the others wait for it."

    def handle(self, *args: Any, **options: Any) -> None:
        alias = options.get("database") or DEFAULT_DB_ALIAS
        with self._alone(alias):
            try:
                ensure_upgradable(connections[alias])
            except UnsuitableDatabase as error:
                raise CommandError(error.message) from error
            with connections[alias].cursor() as cursor:
                cursor.execute("SET statement_timeout = 0")  # building a large index can outlast the role's timeout
            super().handle(*args, **options)

    @contextlib.contextmanager
    def _alone(self, alias: str) -> Iterator[None]:
        """
        Hold the database's lock on migrating, in a transaction of a connection of its own. Behind a pooler, a session's
        lock would stay with the server's connection.
        """
        holding: Any = connections[alias].copy()
        told = False
        try:
            while True:
                holding.set_autocommit(False)
                with holding.cursor() as cursor:
                    cursor.execute("SET LOCAL idle_in_transaction_session_timeout = 0")
                    cursor.execute(LOCK)
                    [held] = cursor.fetchone()
                if held:
                    break
                # Poll for the lock: a statement that waits for it holds a snapshot, which would keep the other migrate
                # from building indexes concurrently.
                holding.rollback()
                if not told:
                    self.stdout.write("Another migrate is at work; waiting for it.")
                    told = True
                time.sleep(LOCK_LOOK_SECONDS)
            yield
        finally:
            holding.close()
