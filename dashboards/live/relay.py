"""Follows the log of events in a thread, and hands the watched events to the event loop."""

from __future__ import annotations

import asyncio
import logging
import os
import random
import selectors
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from typing import Any, NamedTuple

import psycopg
from django.conf import settings
from django.db import DatabaseError, connections

from jobs.services.explain.event_log import LAST_ID, TAKE_XID, Cursor, Horizon
from jobs.services.operate.epochs import PUT_BACK_REASON, declare_put_back
from queueops.core.database import connect_directly
from queueops.core.notify import Channel
from queueops.core.postgres.conditions import ReadOnlyServer
from queueops.core.sql import load_sql

from .events import Event, Group

logger = logging.getLogger(__name__)

BUSY_SECONDS = 0.025  # between two reads while events come
QUIET_SECONDS = 0.05  # while somebody watches and nothing happens
IDLE_SECONDS = 1.0  # while nobody watches
BUSY_FOR_SECONDS = 2.0
MIN_SECONDS = 0.005  # between two reads, however many notifications come
RELAYED_AT_ONCE = 1_000
MAX_BACKLOG = 100_000  # events behind after an outage; beyond it the watchers get the state instead
LOOK_BACK = 50_000  # the first cursor is so many ids behind the newest: open transactions may still commit lower ids
FIRST_RETRY_SECONDS = 0.1
LAST_RETRY_SECONDS = 5.0
BEGIN_SECONDS = 5.0
HANDED_OVER_SECONDS = 30.0

# The timeout of statements: as long as it takes to notice a connection that was lost without a TCP close.
SESSION = b"""
SET jit = off; SET plan_cache_mode = force_generic_plan; SET enable_seqscan = off; SET statement_timeout = '10s'
"""

# Called on the event loop with the watched events of one read, and the cursor as it was before that read.
Deliver = Callable[[Sequence[Event], Cursor], None]

NEWEST_EVENT = b"SELECT id, created_at FROM jobs_jobevent ORDER BY id DESC LIMIT 1"
THAT_EVENT = b"SELECT created_at FROM jobs_jobevent WHERE id = %s"
ACTOR = "system:relay"

Connection = psycopg.Connection[tuple[Any, ...]]


class _Place(NamedTuple):
    """The position of the log: the last id drawn, the epoch, and since when the epoch lasts."""

    last_id: int
    epoch: str
    since: datetime | None


class Relay:
    """
    One process's reader of the log.

    It compares snapshots, and thus reads every event that became visible since its last read, in whatever order their
    transactions committed. NOTIFY only makes it read sooner. Once the database is back after an outage, it reads the
    events that it missed; an event may then come twice.

    If the database lacks events that the relay has read, it was put back to an earlier moment: the relay pauses
    everything and declares a new epoch. In a new epoch, whoever declared it, the relay begins at the log's end. A
    standby lacks events that are not replicated yet: while the connection leads to a standby, the database counts as
    unavailable.

    Attributes:
        cursor: All events up to this one were handed over.
    """

    def __init__(self, groups: Mapping[Group, object], deliver: Deliver, lost: Callable[[], None]) -> None:
        """
        Args:
            groups: What somebody watches; read from the thread while the event loop changes it.
            lost: Called on the event loop when events were skipped, because too many had come during an outage, or the
                log is of another epoch.
        """
        self._groups = groups
        self._deliver = deliver
        self._lost = lost
        self._horizon = Horizon()
        self._low = Cursor(0, "")  # events not yet handed over have greater ids
        self._seen: str | None = None  # pg_snapshot: events visible in it were handed over
        self._newest = 0
        self._newest_at: datetime | None = None
        self._since: datetime | None = None  # when the epoch began
        self._begun = asyncio.Event()
        self._busy_until = 0.0
        self._loop: asyncio.AbstractEventLoop | None = None
        self._ears, self._mouth = os.pipe()
        os.set_blocking(self._ears, False)
        os.set_blocking(self._mouth, False)
        self._thread = threading.Thread(target=self._run, name="relay", daemon=True)

    @property
    def cursor(self) -> Cursor:
        return self._low

    def start(self) -> None:
        """Begin, once; call it on the event loop that the events go to."""
        if self._loop is None:
            self._loop = asyncio.get_running_loop()
            self._thread.start()

    async def has_begun(self) -> bool:
        """
        Wait until the relay follows the log; False: the database does not make it possible within a few seconds.

        Events that become visible before the relay has begun are handed over to nobody.
        """
        with suppress(TimeoutError):
            async with asyncio.timeout(BEGIN_SECONDS):
                await self._begun.wait()
        return self._begun.is_set()

    def hurry(self) -> None:
        """Read at once: somebody watches now."""
        with suppress(BlockingIOError):  # the pipe is full of wake-ups already
            os.write(self._mouth, b".")

    def _run(self) -> None:
        retry_seconds = FIRST_RETRY_SECONDS
        while True:
            try:
                with self._connected() as connection:
                    logger.info("the relay follows the log of events")
                    self._resume(connection)
                    retry_seconds = FIRST_RETRY_SECONDS
                    while True:
                        self._read(connection)
                        if not self._begun.is_set():
                            self._call(self._begun.set)  # only after a read: before it there is no cursor
                        self._wait(connection)
            except _LoopEnded:
                return
            except (psycopg.Error, DatabaseError) as error:
                logger.warning("the relay lost the database: %s", str(error).strip())
            except Exception:
                # Any error is caught: without this thread every socket of the process would stand still for ever.
                logger.exception("unexpected error in the relay")
            time.sleep(retry_seconds * random.uniform(0.5, 1.0))  # noqa: S311 - spreads reconnects
            retry_seconds = min(LAST_RETRY_SECONDS, retry_seconds * 2)

    def _connected(self) -> Connection:
        # Not from the pool: its connections are replaced, and a pooler may give the session with our LISTEN to somebody
        # else.
        connection = connect_directly(application_name="queueops relay")
        try:
            if settings.QUEUEOPS.listen:  # else a pooler may hand the session to somebody else
                connection.execute(SESSION)
                connection.execute(f"LISTEN {Channel.READY}; LISTEN {Channel.CANCEL}".encode())
        except BaseException:
            connection.close()
            raise
        return connection

    def _resume(self, connection: Connection) -> None:
        """Take up where the last connection ended, or begin at the log's end."""
        self._horizon.forget_marks()
        place = _place(connection)
        if self._seen is None:
            self._begin(connection, place)
        elif self._is_another(place) or self._lacks_newest(connection):
            self._begin_anew(connection, place)
        elif _newest(connection)[0] - self._low.id > MAX_BACKLOG:
            self._begin(connection, place)
            self._call(self._lost)
        else:
            # The server may have crashed and reused transaction ids. The old snapshot may be wrong about them now:
            # everything after the cursor counts as unseen.
            self._seen = ""

    def _is_another(self, place: _Place) -> bool:
        """Whether the log is of another epoch, or its last id is lower than the newest id read."""
        return place.epoch != self._low.epoch or place.last_id < self._newest

    def _lacks_newest(self, connection: Connection) -> bool:
        """Whether another event has the newest id that was read: the log was put back, and reached that id again."""
        row = connection.execute(THAT_EVENT, [self._newest]).fetchone()
        return row is not None and self._newest_at is not None and row[0] != self._newest_at

    def _begin_anew(self, connection: Connection, place: _Place) -> None:
        if self._since is not None and (place.since is None or place.since <= self._since):
            logger.critical("%s Everything is paused.", PUT_BACK_REASON)
            try:
                declare_put_back(since=self._since, actor=ACTOR)
            finally:
                connections.close_all()  # Django's connections of this thread, which needs them for nothing else
            place = _place(connection)
        logger.warning("the database has begun a new epoch; the relay follows its log from its end")
        self._begin(connection, place)
        self._call(self._lost)

    def _begin(self, connection: Connection, place: _Place) -> None:
        newest, newest_at = _newest(connection)
        [(seen, *_)] = self._rows(connection, after=newest, until=None, most=0)
        # The last read comes first: a relay that lost its connection with half of this noted would tell nobody.
        self._horizon.begin_anew(place.epoch)
        self._low, self._since = Cursor(max(0, newest - LOOK_BACK), place.epoch), place.since
        self._newest, self._newest_at, self._seen = newest, newest_at, seen

    def _read(self, connection: Connection) -> None:
        """Hand over the events that became visible, page by page as of one snapshot."""
        place = _place(connection)
        if self._is_another(place):
            self._begin_anew(connection, place)
            return
        last_id = place.last_id
        if self._horizon.is_due(last_id):
            self._horizon.mark(last_id, _number(connection, TAKE_XID))
        if not self._groups:
            [(snapshot, oldest, *_)] = self._rows(connection, after=self._low.id, until=None, most=0)
            if self._groups:
                return  # do not move on: a watcher who came meanwhile may have read the data before that snapshot
            self._note(*_newest(connection))
            self._move_on(snapshot, oldest)
            return
        after, until = self._low.id, None
        while True:
            rows = self._rows(connection, after=after, until=until, most=RELAYED_AT_ONCE)
            if until is None:
                until, oldest = rows[0][0], rows[0][1]
            events = [Event(*row[2:]) for row in rows if row[2] is not None]
            if events:
                after = events[-1].id
                self._note(after, events[-1].at)
                self._busy_until = time.monotonic() + BUSY_FOR_SECONDS
                self._hand_over(events)
            if len(events) < RELAYED_AT_ONCE:
                break
        self._move_on(until, oldest)

    def _move_on(self, snapshot: str, oldest: int) -> None:
        self._seen = snapshot
        settled = self._horizon.settle(oldest, newest_id=self._newest)
        self._low = self._low._replace(id=max(self._low.id, settled))

    def _note(self, newest: int, at: datetime | None) -> None:
        if newest > self._newest:
            self._newest, self._newest_at = newest, at

    def _rows(self, connection: Connection, *, after: int, until: str | None, most: int) -> list[tuple[Any, ...]]:
        parameters = {"after": after, "seen": self._seen or None, "until": until, "most": most}
        statement = load_sql("jobs", "read_events").encode()
        return connection.execute(statement, parameters, prepare=settings.QUEUEOPS.listen).fetchall()

    def _hand_over(self, events: list[Event]) -> None:
        groups = self._groups
        watched = [event for event in events if any(group in groups for group in event.groups())]
        if watched:
            cursor = self._low
            self._call(lambda: self._deliver(watched, cursor))

    def _call(self, function: Callable[[], None]) -> None:
        """Have the event loop call a function, and wait: otherwise calls would pile up while the loop is busy."""
        done = threading.Event()

        def call() -> None:
            try:
                function()
            finally:
                done.set()

        if self._loop is None or self._loop.is_closed():
            raise _LoopEnded
        try:
            self._loop.call_soon_threadsafe(call)
        except RuntimeError as error:
            raise _LoopEnded from error
        if not done.wait(HANDED_OVER_SECONDS):
            logger.warning("the event loop has not taken events for %s seconds", HANDED_OVER_SECONDS)

    def _wait(self, connection: Connection) -> None:
        """Sleep until the next read is due, the database notifies, or somebody begins to watch."""
        time.sleep(MIN_SECONDS)
        seconds = IDLE_SECONDS
        if self._groups:
            seconds = BUSY_SECONDS if time.monotonic() < self._busy_until else QUIET_SECONDS
        with selectors.DefaultSelector() as selector:
            selector.register(self._ears, selectors.EVENT_READ)
            selector.register(connection.fileno(), selectors.EVENT_READ)
            ready = {key.fileobj for key, _ in selector.select(seconds - MIN_SECONDS)}
        if self._ears in ready:
            with suppress(BlockingIOError):
                while os.read(self._ears, 4096):
                    pass
        if connection.fileno() in ready:
            connection.pgconn.consume_input()
            while connection.pgconn.notifies():
                pass


class _LoopEnded(Exception):
    """The event loop has ended: the process is going down."""


def _place(connection: Connection) -> _Place:
    """
    Raises:
        ReadOnlyServer: The server is a standby.
    """
    [(last_id, epoch, since, is_standby)] = connection.execute(LAST_ID).fetchall()
    if is_standby:
        raise ReadOnlyServer(ReadOnlyServer.reason)
    return _Place(last_id, epoch or "", since)


def _newest(connection: Connection) -> tuple[int, datetime | None]:
    row = connection.execute(NEWEST_EVENT).fetchone()
    return (row[0], row[1]) if row else (0, None)


def _number(connection: Connection, statement: bytes) -> int:
    row = connection.execute(statement).fetchone()
    return int(row[0]) if row else 0
