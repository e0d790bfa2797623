"""Finds the id up to which the event log is complete, although events commit in another order than their ids."""

from __future__ import annotations

import threading
import time
from collections import deque
from typing import NamedTuple

from queueops.core.sql import hot_cursor
from queueops.tenancy.scope import for_everyone

MARK_SECONDS = 0.1  # a mark uses up a transaction id, so not every read makes a mark
MAX_MARKS = 600  # kept while an old transaction lasts; no marks are made beyond this number

LAST_ID = b"""
SELECT CASE WHEN is_called THEN last_value ELSE 0 END, epoch.value, epoch.began_at, pg_is_in_recovery()
  FROM jobs_jobevent_id LEFT JOIN jobs_epoch AS epoch ON true
"""
TAKE_XID = b"SELECT pg_current_xact_id()::text::bigint"
NEWEST_ID = b"SELECT coalesce((SELECT id FROM jobs_jobevent ORDER BY id DESC LIMIT 1), 0)"
OLDEST_UNFINISHED = b"SELECT pg_snapshot_xmin(pg_current_snapshot())::text::bigint"


class Cursor(NamedTuple):
    """
    A position in the log.

    Attributes:
        id: All events up to this id are visible.
        epoch: The epoch of the database; in another epoch, the id may be another event's.
    """

    id: int
    epoch: str

    def answer(self) -> dict[str, int | str]:
        """Return the cursor in the form that answers of the API have."""
        return {"cursor": self.id, "epoch": self.epoch}


class Horizon:
    """
    The id up to which the log is complete: no event at or below it can appear later.

    A mark is the sequence's last id, and a transaction id taken after that id was read. A transaction gets its own id
    before the ids of its events, so the events of a transaction younger than the mark have greater ids. Once the mark
    is older than every unfinished transaction, no event can appear at or below its id.
    """

    def __init__(self) -> None:
        self.settled = 0
        self.epoch: str | None = ""  # before the first read; None: the database has no epoch yet
        self._marks: deque[tuple[int, int]] = deque()
        self._marked_id = 0
        self._marked_at = float("-inf")

    def is_due(self, last_id: int) -> bool:
        """Whether a mark at this id is worth a transaction id."""
        return (
            last_id > self._marked_id
            and time.monotonic() - self._marked_at >= MARK_SECONDS
            and len(self._marks) < MAX_MARKS
        )

    def mark(self, last_id: int, xid: int) -> None:
        """
        Args:
            last_id: The sequence's last value, read before `xid` was taken.
        """
        self._marks.append((last_id, xid))
        self._marked_id = last_id
        self._marked_at = time.monotonic()

    def settle(self, oldest_unfinished: int, *, newest_id: int) -> int:
        """
        Advance as far as the log is certainly complete, and return that id.

        Args:
            oldest_unfinished: The oldest unfinished transaction in the snapshot that the caller reads by.
            newest_id: The greatest id read so far. After a crash, the sequence may assign greater ids a second time.
        """
        while self._marks and self._marks[0][1] <= oldest_unfinished:
            self.settled = max(self.settled, min(self._marks.popleft()[0], newest_id))
        return self.settled

    def begin_anew(self, epoch: str | None) -> None:
        """Start over, because the log is another one, or was put back to an earlier moment and assigns ids again."""
        self.settled = 0
        self.epoch = epoch
        self.forget_marks()

    def forget_marks(self) -> None:
        """Drop the marks after a lost connection: a server that crashed may assign the same transaction ids again."""
        self._marks.clear()
        self._marked_id = 0


_lock = threading.Lock()
_of_this_process = Horizon()


@for_everyone()
def log_cursor() -> Cursor:
    """
    Return a cursor up to which every event is visible to statements that begin afterwards; 0 while no such id is known.

    Read the cursor before the data that it belongs to. It lags behind by the age of the oldest unfinished transaction.
    """
    horizon = _of_this_process
    with hot_cursor() as cursor:
        [(last_id, epoch, *_)] = cursor.execute(LAST_ID).fetchall()
        with _lock:
            if horizon.epoch == "":  # the process's first cursor: 0 would be too old to resume from in a long log
                horizon.begin_anew(epoch)
            # Copy `settled` before reading the newest id: meanwhile, another thread may settle an id newer than that.
            settled, is_due = horizon.settled, horizon.is_due(last_id)
        xid = _number(cursor.execute(TAKE_XID).fetchone()) if is_due else 0
        newest_id = _number(cursor.execute(NEWEST_ID).fetchone())
        oldest = _number(cursor.execute(OLDEST_UNFINISHED).fetchone())
    with _lock:
        if epoch != horizon.epoch or newest_id < settled:
            horizon.begin_anew(epoch)
            return Cursor(0, epoch or "")
        if is_due:
            horizon.mark(last_id, xid)
        return Cursor(horizon.settle(oldest, newest_id=newest_id), epoch or "")


def _number(row: tuple[int, ...] | None) -> int:
    return row[0] if row else 0
