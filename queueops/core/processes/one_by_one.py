"""Going through rows so that one that raises stops none of the others."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from typing import TypeVar

from django.db import InterfaceError, OperationalError

logger = logging.getLogger(__name__)

Row = TypeVar("Row")


def one_by_one(rows: Iterable[Row], act: Callable[[Row], object], *, what: str) -> list[Row]:
    """
    Act on each row; what one raises is logged, and the next is gone on with.

    Args:
        act: In a transaction of its own, or a savepoint: what it did to a row that raised must be undone.
        what: What a row is, for the log.

    Returns:
        Those that raised.

    Raises:
        OperationalError, InterfaceError: The database is away, for all of them.
    """
    failed = []
    for row in rows:
        try:
            act(row)
        except (OperationalError, InterfaceError):
            raise
        except Exception:
            logger.exception("%s %s raised; the others go on", what, row)
            failed.append(row)
    return failed
