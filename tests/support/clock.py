"""
The database's time, moved on by a test instead of waited for: `moving_clock.move(seconds=30)`.

Every statement and expression of this process that compares times goes by it, on every connection, from the next one
on. What goes on: columns' defaults, PostgreSQL's own figures, Python's clocks, other processes, and statements that a
test writes itself, unless with `queueops.core.clock` as the product does.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from queueops.core import clock as of_product
from queueops.core import sql


class MovedClock:
    """Stands where the real one does until it is moved."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self._real = dict(of_product.CLOCKS)

    def move(self, *, seconds: float) -> None:
        """On by so many seconds, from where it is; back, where they are negative."""
        self.seconds += seconds
        # In the text and not a setting of the session: a savepoint that is rolled back would take a setting back, and
        # connections that other threads hold open would not hear of it.
        moved = {name: f"({text} + interval '{self.seconds!r} seconds')" for name, text in self._real.items()}
        self._let_read(moved)

    def restore(self) -> None:
        self._let_read(self._real)

    def _let_read(self, clocks: dict[str, str]) -> None:
        of_product.CLOCKS.update(clocks)
        sql.load_sql.cache_clear()
        sql._numbered.cache_clear()


@pytest.fixture
def moving_clock() -> Iterator[MovedClock]:
    moved = MovedClock()
    yield moved
    moved.restore()
