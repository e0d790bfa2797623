"""The outbox: an SQLite file shared by threads and processes. Nothing here waits for a network."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from queueops_client.usage.cache import TOKENS, Cached, Heard, View, cost_of, merge, view
from queueops_client.usage.clock import ServerClock
from queueops_client.usage.errors import OutboxFull
from queueops_client.usage.file import OutboxFile
from queueops_client.usage.owners import is_alive, seats

CLAIM_SECONDS = 120.0  # after so long others send the rows that a stopped process had claimed
MAX_ROWS = 100_000
KEPT_SENT = 1000  # sent rows that are kept, so that people can see them

EVENT_COLUMNS = "event_id, user_id, service, tokens, reservation_id, at, clock_offset, floor, attempts"
SET_APART = "(status = 'rejected' OR (status = 'intent' AND owner IS NULL))"
STANDING_COLUMNS = "version, unit, policy, month, quota, remaining, resets_at"


@dataclass(frozen=True, slots=True)
class Intent:
    """
    A use that is about to begin.

    Attributes:
        estimate: The estimated tokens; None: not given.
    """

    event_id: str
    user_id: str
    service: str
    estimate: int | None


@dataclass(frozen=True, slots=True)
class Reservation:
    """
    Attributes:
        held_until: When it ends, by the server's clock.
    """

    id: str
    month: str
    amount: int
    held_until: float


@dataclass(frozen=True, slots=True)
class Claimed:
    """A row to send; `at`, `clock_offset` and `floor` as `ServerClock.time_of_event` takes them."""

    event_id: str
    user_id: str
    service: str
    tokens: int
    reservation_id: str | None
    at: float
    clock_offset: float | None
    floor: float
    attempts: int


@dataclass(frozen=True, slots=True)
class Settled:
    """The outcome of a row; `status`: sent, rejected, or ready to be sent again."""

    event_id: str
    status: str
    reason: str | None = None
    message: str | None = None


class Outbox:
    """
    Every method is one transaction, durable (synchronous=FULL) when it returns.

    Args:
        path: A file on a local disk; created if it is missing, for its owner alone.
        max_rows: How many rows may be unsent; with so many, no further use begins.

    Raises:
        OutboxFailed: The file cannot be used. Every method may raise it.
    """

    def __init__(self, path: Path, *, clock: ServerClock, max_rows: int = MAX_ROWS) -> None:
        self.path = path
        self.max_rows = max_rows
        self._clock = clock
        self._file = OutboxFile(path)
        self.adopt()

    # Uses

    def begin(
        self,
        intent: Intent,
        goes_ahead: Callable[[View | None, int], bool],
        reservation: Reservation | None = None,
    ) -> tuple[bool, View | None]:
        """
        Write a use down before its call, if it may go ahead.

        Args:
            goes_ahead: Decides by the known state of the allowance and the use's units.

        Returns:
            Whether the use goes ahead, and the view by which that was decided.

        Raises:
            OutboxFull
        """
        with self._file.transaction() as db:
            db.execute("UPDATE event SET held = 0 WHERE held > 0 AND held_until <= ?", [self._clock.now()])
            [size] = db.execute("SELECT coalesce(sum(size), 0) FROM balance").fetchone()
            if size >= self.max_rows:
                raise OutboxFull(
                    f"The outbox {self.path} holds {size:,} rows that were not sent, as many as it may: the server has "
                    "been away for long, or rows were rejected. See the tracker's report()."
                )
            seen = self._view(db, intent.user_id)
            cost = cost_of(intent.estimate or 0, seen.unit if seen else TOKENS)
            if not goes_ahead(seen, cost):
                return False, seen
            month = reservation.month if reservation else seen.month if seen else ""
            self._insert(db, intent, "intent", cost=cost, month=month, reservation=reservation)
            return True, seen

    def complete(self, intent: Intent, *, tokens: int, unit: str) -> None:
        """
        Write down what a use took, even if its intent was deleted: a person may have discarded it as left by a
        crash.
        """
        cost = cost_of(tokens, unit)
        with self._file.transaction() as db:
            done = db.execute(
                "UPDATE event SET status = 'ready', tokens = ?, cost = ?, owner = NULL"
                " WHERE event_id = ? AND status = 'intent'",
                [tokens, cost, intent.event_id],
            ).rowcount
            if not done and not db.execute("SELECT 1 FROM event WHERE event_id = ?", [intent.event_id]).fetchall():
                self._insert(db, intent, "ready", cost=cost, month="", tokens=tokens)

    def drop(self, event_id: str) -> None:
        """Forget this process's use: it took nothing. Its reservation is given back at the next flush."""
        self._forget(event_id, "status = 'intent'")

    def discard(self, event_id: str) -> bool:
        """Forget a use that a crash cut off and that took nothing, or one that was rejected."""
        return self._forget(event_id, SET_APART)

    def _forget(self, event_id: str, condition: str) -> bool:
        chosen = f"event_id = ? AND {condition}"
        with self._file.transaction() as db:
            db.execute(
                "INSERT OR IGNORE INTO release SELECT reservation_id, held_until FROM event"
                f" WHERE {chosen} AND reservation_id IS NOT NULL",
                [event_id],
            )
            return db.execute(f"DELETE FROM event WHERE {chosen}", [event_id]).rowcount > 0

    def resolve(self, event_id: str, *, tokens: int) -> bool:
        """Set the tokens of a use that a crash cut off, or that the server rejected, and send it (again)."""
        with self._file.transaction() as db:
            row = db.execute("SELECT user_id FROM event WHERE event_id = ?", [event_id]).fetchone()
            cached = self._cached(db, row[0]) if row else None
            done = db.execute(
                "UPDATE event SET status = 'ready', tokens = ?, cost = ?, owner = NULL, attempts = 0,"
                f" reason = NULL, message = NULL WHERE event_id = ? AND {SET_APART}",
                [tokens, cost_of(tokens, cached.unit if cached else TOKENS), event_id],
            )
            return done.rowcount > 0

    def retry_rejected(self) -> int:
        """Send every rejected row again; returns how many."""
        with self._file.transaction() as db:
            return db.execute(
                "UPDATE event SET status = 'ready', attempts = 0, reason = NULL, message = NULL"
                " WHERE status = 'rejected' AND tokens IS NOT NULL"
            ).rowcount

    # Sending

    def claim(self, limit: int, *, user_id: str | None) -> list[Claimed]:
        """
        Claim the oldest rows that no process is sending.

        Args:
            user_id: The user whose rows are claimed; None: the rows of all users are.
        """
        now = time.time()
        with self._file.transaction() as db:
            rows = db.execute(
                f"SELECT {EVENT_COLUMNS} FROM event WHERE status = 'ready' AND (? IS NULL OR user_id = ?)"
                " AND (owner IS NULL OR owned_at NOT BETWEEN ? AND ?) ORDER BY seq LIMIT ?",
                [user_id, user_id, now - CLAIM_SECONDS, now + CLAIM_SECONDS, limit],
            ).fetchall()
            db.executemany(
                "UPDATE event SET owner = ?, owned_at = ?, attempts = attempts + 1 WHERE event_id = ?",
                [(self._file.seat(), now, row[0]) for row in rows],
            )
            return [Claimed(*row) for row in rows]

    def let_go(self, rows: Iterable[Claimed]) -> None:
        """Leave claimed rows to the next sender."""
        with self._file.transaction() as db:
            db.executemany(
                "UPDATE event SET owner = NULL WHERE event_id = ? AND status = 'ready' AND owner = ?",
                [(row.event_id, self._file.seat()) for row in rows],
            )

    def settle(
        self, settled: Sequence[Settled], heard: Mapping[str, Heard] | None = None, *, versions: Mapping[str, int]
    ) -> None:
        """
        Store an answer in one transaction: uses stop counting as unsettled when the remainder that contains them is
        stored.

        Args:
            heard: The state of each user's allowance by the answer.
            versions: What `versions()` returned before the request was sent.
        """
        with self._file.transaction() as db:
            db.executemany(
                "UPDATE event SET status = ?, reason = ?, message = ?, owner = NULL"
                " WHERE event_id = ? AND status = 'ready'",
                [(one.status, one.reason, one.message, one.event_id) for one in settled],
            )
            for user_id, news in (heard or {}).items():
                self._hear(db, user_id, news, versions.get(user_id, 0))
            if self._clock.offset is not None:
                db.execute("UPDATE moment SET heard_at = max(heard_at, ?)", [self._clock.now()])
            db.execute(
                "DELETE FROM event WHERE status = 'sent'"
                " AND seq <= (SELECT seq FROM event WHERE status = 'sent' ORDER BY seq DESC LIMIT 1 OFFSET ?)",
                [KEPT_SENT],
            )
            db.execute("DELETE FROM balance WHERE size = 0 AND unsettled = 0")

    def versions(self) -> dict[str, int]:
        """Return the version of every user's standing. Call this before a request whose answer goes to `settle`."""
        with self._file.transaction() as db:
            return dict(db.execute("SELECT user_id, version FROM standing").fetchall())

    def view(self, user_id: str) -> View | None:
        with self._file.transaction() as db:
            return self._view(db, user_id)

    def pending(self, *, user_id: str | None) -> int:
        """Return how many rows are still to be sent; `user_id` as for `claim`."""
        [(count,)] = self.read(
            "SELECT count(*) FROM event WHERE status = 'ready' AND (? IS NULL OR user_id = ?)", [user_id, user_id]
        )
        return int(count)

    def releases(self) -> list[str]:
        """Return reservations to give back; reservations that have ended by themselves are forgotten."""
        with self._file.transaction() as db:
            db.execute("DELETE FROM release WHERE held_until <= ?", [self._clock.now()])
            return [row[0] for row in db.execute("SELECT reservation_id FROM release")]

    def give_back(self, reservation_id: str, *, held_until: float) -> None:
        with self._file.transaction() as db:
            db.execute("INSERT OR IGNORE INTO release VALUES (?, ?)", [reservation_id, held_until])

    def released(self, reservation_id: str) -> None:
        with self._file.transaction() as db:
            db.execute("DELETE FROM release WHERE reservation_id = ?", [reservation_id])

    # The file

    def adopt(self) -> None:
        """Release the rows of dead processes: others may then send them, and their intents have no owner any more."""
        with self._file.transaction() as db:
            owners = {row[0] for row in db.execute("SELECT DISTINCT owner FROM event WHERE owner IS NOT NULL")}
            own = self._file.seat()
            dead = [one for one in (owners | seats(self.path)) - {own} if not is_alive(self.path, one)]
            db.executemany(
                "UPDATE event SET owner = NULL WHERE owner = ? AND status IN ('intent', 'ready')",
                [(one,) for one in dead],
            )

    def read(self, statement: str, parameters: Collection[Any] = ()) -> list[tuple[Any, ...]]:
        """Return the rows of a statement, for reports."""
        with self._file.transaction() as db:
            return db.execute(statement, list(parameters)).fetchall()

    def close(self) -> None:
        """Close the file. A use that ends later opens it again."""
        self._file.close()

    def _insert(
        self,
        db: sqlite3.Cursor,
        intent: Intent,
        status: str,
        *,
        cost: int,
        month: str,
        tokens: int | None = None,
        reservation: Reservation | None = None,
    ) -> None:
        db.execute(
            "INSERT INTO event (event_id, user_id, service, status, estimate, tokens, cost, month,"
            " reservation_id, held, held_until, at, clock_offset, owner, floor)"
            " SELECT ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, heard_at FROM moment",
            [
                *(intent.event_id, intent.user_id, intent.service, status, intent.estimate, tokens, cost, month),
                *((reservation.id, reservation.amount, reservation.held_until) if reservation else (None, 0, None)),
                *(self._clock.local(), self._clock.offset, self._file.seat() if status == "intent" else None),
            ],
        )

    def _cached(self, db: sqlite3.Cursor, user_id: str) -> Cached | None:
        row = db.execute(f"SELECT {STANDING_COLUMNS} FROM standing WHERE user_id = ?", [user_id]).fetchone()
        return Cached(*row) if row else None

    def _view(self, db: sqlite3.Cursor, user_id: str) -> View | None:
        cached = self._cached(db, user_id)
        if cached is None:
            return None
        [unsettled] = db.execute(
            "SELECT coalesce(sum(unsettled), 0) FROM balance WHERE user_id = ? AND month IN (?, '')",
            [user_id, cached.month],
        ).fetchone()
        return view(cached, unsettled=unsettled, now=self._clock.now())

    def _hear(self, db: sqlite3.Cursor, user_id: str, heard: Heard, version: int) -> None:
        known = merge(self._cached(db, user_id), heard, version=version)
        if known is not None:
            db.execute(
                f"INSERT OR REPLACE INTO standing (user_id, {STANDING_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
                [user_id, *(getattr(known, name) for name in STANDING_COLUMNS.split(", "))],
            )
