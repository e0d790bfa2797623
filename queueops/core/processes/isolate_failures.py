"""Acts on rows one by one; an error in one row does not stop the others."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TypeVar

from django.db import InterfaceError, OperationalError, connection

logger = logging.getLogger(__name__)

Row = TypeVar("Row")

_between: ContextVar[Callable[[], object] | None] = ContextVar("between", default=None)


@contextmanager
def between_rows(act: Callable[[], object]) -> Iterator[None]:
    """In the block, call `act` before each row that `one_by_one` takes up in this thread outside of a transaction."""
    token = _between.set(act)
    try:
        yield
    finally:
        _between.reset(token)


def one_by_one(rows: Iterable[Row], act: Callable[[Row], object], *, what: str) -> list[Row]:
    """
    Act on each row. An error of a row is logged, and the next row follows.

    Args:
        act: Works in its own transaction or savepoint, so that its changes to a row that raised are undone.
        what: What a row is, for the log.

    Returns:
        The rows that raised.

    Raises:
        OperationalError, InterfaceError: The database cannot be reached, so no row can be handled.
    """
    failed = []
    between = _between.get()
    for row in rows:
        if between and not connection.in_atomic_block:
            between()
        try:
            act(row)
        except (OperationalError, InterfaceError):
            raise
        except Exception:
            logger.exception("%s %s raised; the others go on", what, row)
            failed.append(row)
    return failed
