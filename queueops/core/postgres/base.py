"""Django's PostgreSQL backend, whose transactions begin with the settings of the block they are in."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from django.db.backends.postgresql import base
from psycopg.pq import TransactionStatus

from .local_settings import Settings, begin_statement, of_the_block, set_statement, unset, wanted_settings

Djangos: Any = base.DatabaseWrapper  # its stubs know none of the methods that a backend overrides


class DatabaseWrapper(Djangos):  # type: ignore[misc]
    """
    Attributes:
        applied: The settings that the open transaction was begun with.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.applied: Settings | None = None
        self.execute_wrappers.append(_execute)

    def apply(self, settings: Settings | None, instead_of: Settings | None) -> None:
        """Change the settings of the open transaction."""
        self.applied = settings
        changed = settings or unset(instead_of or ())
        # A broken transaction takes no statement, and what rolls it back takes the settings back too.
        if changed and self.connection.info.transaction_status != TransactionStatus.INERROR:
            self._run(set_statement(changed))

    def _set_autocommit(self, autocommit: bool) -> None:  # noqa: FBT001 (Django's signature)
        settings = None if autocommit else wanted_settings()
        self.applied = None
        if settings is None:
            super()._set_autocommit(autocommit)
            return
        # The driver stays in its autocommit mode: in the other it would send a BEGIN of its own.
        try:
            self._run(begin_statement(settings))
        except BaseException:
            self.rollback()
            raise
        self.applied = settings

    def _commit(self) -> Any:
        self.applied = None
        return super()._commit()

    def _rollback(self) -> Any:
        self.applied = None
        return super()._rollback()

    def _savepoint_rollback(self, sid: str) -> None:
        super()._savepoint_rollback(sid)
        if self.applied is not None:  # set after the savepoint, they went with it
            self._run(set_statement(self.applied))

    def _run(self, statement: bytes) -> None:
        with self.wrap_database_errors:
            self.connection.execute(statement, prepare=False)


def _execute(execute: Callable[..., Any], *arguments: Any) -> Any:
    with of_the_block(arguments[-1]["connection"]):
        return execute(*arguments)
