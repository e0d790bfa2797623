"""All sockets and waiters of a web process: who watches what, and the rounds that keep them current."""

from __future__ import annotations

import asyncio
import logging
import sys
import time
from collections import ChainMap, Counter
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from functools import cache, partial
from typing import Any

from django.db import Error as DatabaseError

from jobs.services.explain.event_log import Cursor

from .events import Event, Group
from .messages import CloseCode, Kind
from .relay import Relay
from .socket import LiveSocket
from .strangers import Strangers
from .subjects import LiveSubject, Refused
from .threads import in_thread
from .viewer import Viewer, still_allowed_of
from .waiters import Waiters

logger = logging.getLogger(__name__)

MAX_SOCKETS = 1_000  # signed-in sockets of a process
MAX_OF_ONE = 400  # of one account, or of all keys and users of a project
MAX_OF_USER = 20  # of one end user: otherwise one user could take all sockets of the project
STATS_SECONDS = 1.0
ROUND_SECONDS = 0.1
WAITERS_SECONDS = 0.05  # waiting requests are answered within a quarter of a second
BEAT_SECONDS = 1.0
ACCESS_RECHECK_SECONDS = 4.0
REST_SHARE = 4.0  # reading states may take a fifth of one thread: 300 watched jobs must not take all of it
# Sending a message releases the interpreter's lock (GIL). A computing thread that takes the lock keeps it for this
# time. With Python's default of 5 ms, 2,000 events a second came half a second late.
SWITCH_SECONDS = 0.0005


class Watched:
    """A subject with its sockets."""

    def __init__(self, subject: LiveSubject) -> None:
        self.subject = subject
        self.sockets: set[LiveSocket] = set()
        self.is_dirty = False
        self.read_at = time.monotonic()
        self.newest: tuple[Cursor, str] | None = None
        self.reading = asyncio.Lock()

    def is_due(self, now: float) -> bool:
        age = now - self.read_at
        return age >= STATS_SECONDS and (
            self.is_dirty or age >= self.subject.every_seconds or any(socket.is_behind for socket in self.sockets)
        )


class Hub:
    """
    All sockets and waiters of this process. Its methods run on the event loop.

    Attributes:
        groups: The watched subjects, by the group of their events; the relay's thread reads it, too.
        strangers: Sockets that have not signed in yet.
        waiters: Requests that wait for the end of a job or batch.
    """

    def __init__(self) -> None:
        self.groups: dict[Group, dict[tuple[str, ...], Watched]] = {}
        self.strangers = Strangers()
        self.waiters = Waiters()
        self.relay = Relay(ChainMap[Group, Any](self.groups, self.waiters.groups), self._deliver, self._lost)
        self._sockets: Counter[str] = Counter()
        self._of_users: Counter[str] = Counter()
        self._epoch: str | None = None
        self._rounds: set[asyncio.Task[None]] = set()

    @property
    def clients(self) -> int:
        """How many sockets are open."""
        return self._sockets.total() + len(self.strangers)

    async def join(self, socket: LiveSocket) -> None:
        """
        Send the snapshot, and from then on the events that come.

        The socket already holds events back while the cursor and the data are read. Otherwise events that become
        visible after the data would be lost.

        Raises:
            Refused: There are too many sockets, of this viewer or at all, or the database does not answer.
            DatabaseError
        """
        self._count(socket.viewer)
        subject = socket.subject
        of_group = self.groups.setdefault(subject.group, {})
        watched = of_group.get(subject.key)
        if watched is None:
            watched = of_group[subject.key] = Watched(subject)
        watched.sockets.add(socket)
        try:
            if not await self.follows():
                raise Refused(CloseCode.UNAVAILABLE, "The database does not answer; try again.")  # noqa: TRY301
            await self._send_snapshot(watched, socket)
        except BaseException:
            self.leave(socket)
            raise

    async def follows(self) -> bool:
        """Make the relay follow the log; False: the database did not make it possible within a few seconds."""
        self._start()
        self.relay.hurry()
        return await self.relay.has_begun()

    def leave(self, socket: LiveSocket) -> None:
        """Remove a socket. Calling it again is harmless."""
        of_group = self.groups.get(socket.subject.group, {})
        watched = of_group.get(socket.subject.key)
        if watched is None or socket not in watched.sockets:
            return
        watched.sockets.discard(socket)
        self._sockets -= Counter([socket.viewer.counted_with])  # drops names whose count is zero
        self._of_users -= Counter([socket.viewer.identity])
        if not watched.sockets:
            del of_group[socket.subject.key]
            if not of_group:
                del self.groups[socket.subject.group]

    def _count(self, viewer: Viewer) -> None:
        """
        Raises:
            Refused
        """
        if self._sockets.total() >= MAX_SOCKETS:
            raise Refused(CloseCode.TOO_MANY, "This process has too many sockets; try again later.")
        of_user = viewer.expires_at is not None
        if self._sockets[viewer.counted_with] >= MAX_OF_ONE or (
            of_user and self._of_users[viewer.identity] >= MAX_OF_USER
        ):
            raise Refused(CloseCode.TOO_MANY, "You have too many sockets open.")
        self._sockets[viewer.counted_with] += 1
        self._of_users[viewer.identity] += of_user

    async def resume(self, socket: LiveSocket, since: int, epoch: str | None) -> None:
        """
        Send the events after a cursor. Send a fresh snapshot if they are too many, or the cursor has another epoch or
        no epoch.
        """
        socket.hold()
        cursor = self.relay.cursor
        missed = await in_thread(partial(socket.subject.missed, since)) if epoch == cursor.epoch else None
        if missed is not None:
            socket.replay(missed, since=since, cursor=cursor)
        elif (watched := self.groups.get(socket.subject.group, {}).get(socket.subject.key)) is not None:
            await self._send_snapshot(watched, socket)

    async def _send_snapshot(self, watched: Watched, socket: LiveSocket) -> None:
        """
        Raises:
            DatabaseError
        """
        async with watched.reading:
            # If the data is sent every second anyway, a snapshot that was read less than a second ago will do.
            is_fresh = watched.subject.every_seconds <= STATS_SECONDS > time.monotonic() - watched.read_at
            if watched.newest is None or not is_fresh:
                await self._read(watched)
            newest = watched.newest
        if newest is None:
            socket.close(CloseCode.NOT_FOUND, "It is not there any more.")
            return
        # Unfinished transactions keep the cursor back. Some events after the cursor were therefore delivered before
        # this socket joined: read those from the log.
        missed = None if watched.subject.is_sampled else await in_thread(partial(watched.subject.missed, newest[0].id))
        socket.release(Kind.SNAPSHOT, *newest, missed=missed or ())

    async def _read(self, watched: Watched) -> None:
        """Read the cursor and then the data: in the other order, events between the two reads would be lost."""
        watched.is_dirty = False
        watched.read_at = time.monotonic()
        cursor = self.relay.cursor
        data = await in_thread(partial(watched.subject.read, cursor))
        watched.newest = None if data is None else (cursor, data)

    def _deliver(self, events: Sequence[Event], cursor: Cursor) -> None:
        self.waiters.note(events)
        for event in events:
            for group in event.groups():
                for watched in self.groups.get(group, {}).values():
                    watched.is_dirty = True
                    for socket in watched.sockets:
                        socket.offer(event, cursor)

    def _lost(self) -> None:
        """Have every socket get the state anew: events were skipped, or the log is of another epoch."""
        epoch = self.relay.cursor.epoch
        is_anew, self._epoch = epoch != self._epoch, epoch
        self.waiters.lost()
        for watched in self._all():
            if is_anew:
                watched.newest = None
            for socket in watched.sockets:
                if is_anew:
                    socket.begin_anew(epoch)
                else:
                    socket.fall_behind()

    def _start(self) -> None:
        """Start the relay and the rounds, once."""
        if self._rounds:
            return
        sys.setswitchinterval(SWITCH_SECONDS)
        self.relay.start()
        for one, seconds in (
            (self._refresh, ROUND_SECONDS),
            (self.waiters.look, WAITERS_SECONDS),
            (self._beat, BEAT_SECONDS),
            (self._recheck, ACCESS_RECHECK_SECONDS),
        ):
            self._rounds.add(asyncio.get_running_loop().create_task(_again_and_again(one, seconds)))

    async def _refresh(self) -> None:
        """
        Send the newest state of subjects that changed, the most urgent first. Reading takes at most a fifth of the
        time.
        """
        now = time.monotonic()
        for watched in sorted((one for one in self._all() if one.is_due(now)), key=_urgency):
            begun = time.monotonic()
            await self._show(watched)
            await asyncio.sleep(REST_SHARE * (time.monotonic() - begun))
            if time.monotonic() - now > STATS_SECONDS:
                return  # subjects that are shown every second are due again

    async def _show(self, watched: Watched) -> None:
        recovering = [socket for socket in watched.sockets if socket.can_recover]
        for socket in recovering:
            socket.hold()
        try:
            async with watched.reading:
                await self._read(watched)
        except BaseException:
            watched.is_dirty = True
            for socket in recovering:
                socket.fall_behind()
            raise
        for socket in list(watched.sockets):
            if watched.newest is None:
                socket.close(CloseCode.NOT_FOUND, "It is not there any more.")
            elif socket in recovering:
                socket.release(Kind.STATE, *watched.newest)
            else:
                socket.show(*watched.newest)

    async def _beat(self) -> None:
        for watched in self._all():
            for socket in watched.sockets:
                socket.beat()

    async def _recheck(self) -> None:
        """Close the sockets of viewers who signed out, or lost their key or their permission."""
        sockets = [socket for watched in self._all() for socket in watched.sockets]
        viewers = {socket.viewer for socket in sockets}
        allowed = await in_thread(partial(still_allowed_of, viewers)) if viewers else set[Viewer]()
        for socket in sockets:
            if socket.viewer not in allowed:
                socket.close(CloseCode.NOT_SIGNED_IN, "Signed out, or the key or the permission was withdrawn.")

    def _all(self) -> list[Watched]:
        return [watched for of_group in self.groups.values() for watched in of_group.values()]


@cache
def the_hub() -> Hub:
    """Return this process's hub."""
    return Hub()


def _urgency(watched: Watched) -> tuple[bool, bool, float]:
    is_calm = not any(socket.is_behind for socket in watched.sockets)
    return watched.subject.every_seconds > STATS_SECONDS, is_calm, watched.read_at


async def _again_and_again(one: Callable[[], Awaitable[Any]], seconds: float) -> None:
    while True:
        try:
            await one()
        except DatabaseError as error:
            logger.warning("live data: the database does not answer: %s", str(error).strip())
            await asyncio.sleep(1.0)
        except Exception:
            # Any error is caught: all sockets depend on this round.
            logger.exception("live data: unexpected error")
            with suppress(asyncio.TimeoutError):
                await asyncio.sleep(1.0)
        await asyncio.sleep(seconds)
