"""How far the log of events is complete, although ids come out of a sequence and commit out of order."""

from __future__ import annotations

import threading
import time
from collections import deque
from typing import NamedTuple

from queueops.core.sql import hot_cursor
from queueops.tenancy.scope import for_everyone

MARK_SECONDS = 0.1  # a mark takes a transaction id, so not every read makes one
MAX_MARKS = 600  # while an old transaction lasts; beyond it the newest mark is not made

LAST_ID = b"""
SELECT CASE WHEN is_called THEN last_value ELSE 0 END, epoch.value, epoch.began_at, pg_is_in_recovery()
  FROM jobs_jobevent_id LEFT JOIN jobs_epoch AS epoch ON true
"""
TAKE_XID = b"SELECT pg_current_xact_id()::text::bigint"
NEWEST_ID = b"SELECT coalesce((SELECT id FROM jobs_jobevent ORDER BY id DESC LIMIT 1), 0)"
OLDEST_UNFINISHED = b"SELECT pg_snapshot_xmin(pg_current_snapshot())::text::bigint"


class Cursor(NamedTuple):
    """
    A place in the log.

    Attributes:
        id: All events up to it are known.
        epoch: Of the database; in another one the number means something else.
    """

    id: int
    epoch: str

    def answer(self) -> dict[str, int | str]:
        """As every answer has it."""
        return {"cursor": self.id, "epoch": self.epoch}


class Horizon:
    """
    The id up to which every event that will ever be there is visible.

    A mark is the sequence's last id, and a transaction id taken after it was read. A transaction has its id before it
    takes an event's, so whichever is younger than the mark has greater ids of events. Once the mark is older than
    every unfinished transaction, nothing can appear at or below its id.
    """

    def __init__(self) -> None:
        self.settled = 0
        self.epoch: str | None = None
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
        Move on as far as it is certain.

        Args:
            oldest_unfinished: Of the snapshot that the caller has read by.
            newest_id: The greatest id read so far. Beyond it the sequence may fall back after a crash.
        """
        while self._marks and self._marks[0][1] <= oldest_unfinished:
            self.settled = max(self.settled, min(self._marks.popleft()[0], newest_id))
        return self.settled

    def begin_anew(self, epoch: str | None) -> None:
        """The log is another one, or was put back to an earlier moment and gives ids again."""
        self.settled = 0
        self.epoch = epoch
        self.forget_marks()

    def forget_marks(self) -> None:
        """After a lost connection: a server that crashed may give the same transaction ids again."""
        self._marks.clear()
        self._marked_id = 0


_lock = threading.Lock()
_of_this_process = Horizon()


@for_everyone()
def log_cursor() -> Cursor:
    """
    Return a cursor up to which every event is visible to statements that begin afterwards; 0 while none is known.

    Read it before what it is to be a cursor of. It lags behind by as much as the oldest unfinished transaction.
    """
    with hot_cursor() as cursor:
        [(last_id, epoch, *_)] = cursor.execute(LAST_ID).fetchall()
        with _lock:
            is_due = _of_this_process.is_due(last_id)
        xid = _number(cursor.execute(TAKE_XID).fetchone()) if is_due else 0
        newest_id = _number(cursor.execute(NEWEST_ID).fetchone())
        oldest = _number(cursor.execute(OLDEST_UNFINISHED).fetchone())
    with _lock:
        if epoch != _of_this_process.epoch or newest_id < _of_this_process.settled:
            _of_this_process.begin_anew(epoch)
            return Cursor(0, epoch or "")
        if is_due:
            _of_this_process.mark(last_id, xid)
        return Cursor(_of_this_process.settle(oldest, newest_id=newest_id), epoch or "")


def _number(row: tuple[int, ...] | None) -> int:
    return row[0] if row else 0
