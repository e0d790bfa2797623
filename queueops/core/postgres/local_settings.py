"""
Settings of PostgreSQL that apply to every statement of a block and outlast no transaction.

A connection of a pool serves many projects. A setting of the session would stay and show the next request the rows of
the one before. A setting of the transaction ends with it, also when the process dies.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from django.db import connection, transaction
from psycopg import sql

Settings = tuple[tuple[str, str], ...]
"""The name and value of each setting."""


@dataclass(frozen=True, slots=True)
class Guard:
    """
    A statement that each transaction of a block runs first, and that can refuse the transaction.

    Attributes:
        statement: Sent in the message that begins the transaction. If it returns a row, the transaction is refused.
        refuse: Called with that row; raises the refusal.
    """

    statement: bytes
    refuse: Callable[..., object]


_wanted: ContextVar[Settings | None] = ContextVar("local_settings", default=None)
_guard: ContextVar[Guard | None] = ContextVar("guard", default=None)


class UnscopedStatement(RuntimeError):
    """A statement was about to run under other settings than its block has. A defect of ours, so no QueueOpsError."""


def wanted_settings() -> Settings | None:
    return _wanted.get()


def wanted_guard() -> Guard | None:
    return _guard.get()


@contextmanager
def guarded(guard: Guard | None) -> Iterator[None]:
    """Guard each transaction that begins in the block and has settings; None: guard no transaction."""
    token = _guard.set(guard)
    try:
        yield
    finally:
        _guard.reset(token)


@contextmanager
def local_settings(settings: Settings | None) -> Iterator[None]:
    """
    Run each transaction that begins in the block with these settings; None: with the session's own.

    In a transaction that is already open, the settings are made at once, and taken back when the block ends. A thread
    that the block starts is outside of it, unless it runs in a copy of the context.
    """
    open_one: Any = connection if connection.connection is not None and not connection.autocommit else None
    before = _wanted.get()
    token = _wanted.set(settings)
    try:
        if open_one:
            open_one.apply(settings, before)
        yield
    finally:
        _wanted.reset(token)
        if open_one:
            open_one.apply(before, settings)


def of_the_block(used: Any) -> AbstractContextManager[None]:
    """
    Return a context in which one statement runs under its block's settings: a transaction of its own, or an empty
    context if the open transaction has the settings.

    Raises:
        UnscopedStatement: The open transaction has other settings, because it began elsewhere or because the block's
            first transaction has ended.
    """
    if used.applied == _wanted.get():
        return nullcontext()
    if used.get_autocommit():
        return _alone(used.alias)
    raise UnscopedStatement


@contextmanager
def _alone(alias: str) -> Iterator[None]:
    """Run one statement in its own transaction, unguarded: it may read what a guarded transaction has committed."""
    with guarded(None), transaction.atomic(using=alias):
        yield


@lru_cache(maxsize=4096)
def set_statement(settings: tuple[tuple[str, str | None], ...]) -> bytes:
    each = [sql.SQL("set_config({}, {}, true)").format(*pair) for pair in settings]
    return (sql.SQL("SELECT ") + sql.SQL(", ").join(each)).as_bytes(None)


@lru_cache(maxsize=4096)
def begin_statement(settings: Settings, guard: Guard | None) -> bytes:
    """Return BEGIN, the settings and the guard in one message, so that they cost no further round trips."""
    parts = [b"BEGIN", set_statement(settings), *([guard.statement] if guard else [])]
    return b"; ".join(parts)


def unset(settings: Settings) -> tuple[tuple[str, str | None], ...]:
    """
    Return settings that undo these. NULL restores a server parameter's session value; our own settings are emptied.
    """
    return tuple((name, "none" if name == "role" else "" if "." in name else None) for name, _ in settings)
