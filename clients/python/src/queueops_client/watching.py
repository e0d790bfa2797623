"""
Watches a job or batch until it ends, over a websocket if one can be opened, and otherwise by polling.

Only the answer to a GET counts as the true state. The client sends a GET first, and again whenever a socket is lost:
neither the end nor an error is missed, however the connection fails. The socket only makes updates come at once.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Literal

from queueops_client.calls import Calls, Subject, Target
from queueops_client.errors import InvalidRequest, ServerError, TooManyRequests, Unreachable, WaitTimeout
from queueops_client.exchange import Emit, Pause, Steps
from queueops_client.line import OPEN_SECONDS, AnyLine, LineLost
from queueops_client.records import Batch, Event, Operation
from queueops_client.retry import NEVER, Retry
from queueops_client.transport import DEFAULT_TIMEOUT_SECONDS, AsyncTransport, Transport
from queueops_client.usage.identity import is_key

HEAR_SECONDS = 5.0
ACK_MESSAGES = 50
ACK_SECONDS = 0.5
SILENT_SECONDS = 50.0  # the server pings every 20
LOOK_SECONDS = 60.0  # a GET is sent after so long even while a socket is open
MIN_TIMEOUT_SECONDS = 1.0  # the least for a GET, even if it ends after the deadline: a busy server needs so long
LONG_POLL_SECONDS = 20.0  # proxies give a request up after 60
MIN_POLL_SECONDS = 0.5
MAX_POLL_SECONDS = 15.0
MAX_FAILURES = 4
SOCKET_AGAIN_SECONDS = 60.0  # after so long a new socket is tried, if sockets are refused
PATIENCE_SECONDS = 600.0
REMEMBERED_EVENTS = 2_000
REFUSALS = frozenset({"bad_message", "not_signed_in", "forbidden", "too_many"})
RETURNING = Retry(cap_seconds=5.0)  # spreads the clients of a restarted server over some seconds


@dataclass(frozen=True, slots=True)
class Update:
    """
    One update on the watched job, batch or operation.

    Attributes:
        kind: `state`: the subject as it is now. `event`: something happened to one of its jobs, and the subject is as
            it was last known. `lost`: the server is not reached for the moment.
        is_live: Whether it came over a socket.
        problem: Why the server is not reached.
    """

    kind: Literal["state", "event", "lost"]
    subject: Subject
    event: Event | None = None
    is_live: bool = False
    problem: str = ""


def watch_of(
    transport: Transport | AsyncTransport,
    line: AnyLine,
    *,
    timeout: float | None,
    events: bool,
    patience_seconds: float,
) -> Watch:
    """Return a Watch over this transport; the caller closes the line in the end."""
    return Watch(
        calls=Calls(NEVER),
        line=line,
        base_url=transport.base_url,
        token=transport.token,
        deadline=None if timeout is None else time.monotonic() + timeout,
        first_seconds=min(transport.retry.budget_seconds, patience_seconds),
        patience_seconds=patience_seconds,
        events=events,
    )


@dataclass(kw_only=True)
class Watch:
    """
    Attributes:
        calls: Calls that never repeat by themselves, so that the loss of the server is reported at once.
        base_url: The installation's address.
        token: A step that returns the key.
        deadline: A time of time.monotonic; None: there is no deadline.
        first_seconds: How long the server may be unreachable before its first answer.
        patience_seconds: How long the server may be unreachable after its first answer.
        events: Whether to emit the events of single jobs, too.
    """

    calls: Calls
    line: AnyLine
    base_url: str
    token: Callable[[], Any]
    deadline: float | None
    first_seconds: float
    patience_seconds: float
    events: bool
    subject: Subject | None = None
    cursor: int = 0  # every event up to this id was received
    epoch: str = ""  # of the cursor: a restored database begins a new epoch, which uses ids again
    has_listened: bool = False
    failures: int = 0  # sockets in a row that brought no message
    socket_at: float = 0.0  # when to try a socket next
    takes_wait: bool = True  # whether the server accepts `wait`: an older one refuses it
    told: dict[int, None] = field(default_factory=dict)  # ids of emitted events, the newest last

    def follow(self, given: Target) -> Steps[None]:
        """
        Emit Updates until the subject has ended; the last one shows it ended.

        Raises:
            ApiError: The subject does not exist, or may not be read.
            Unreachable: The server was unreachable for too long, see `first_seconds` and `patience_seconds`.
            WaitTimeout: The subject has not ended at the deadline.
        """
        yield from self._look(given)
        while not self._has_ended():
            self._check_deadline()
            if isinstance(self.subject, Operation) or time.monotonic() < self.socket_at:
                yield from self._poll()
                continue
            try:
                yield from self._listen()
            except LineLost as lost:
                yield from self._after(lost)
            if not self._has_ended():
                yield from self._look(given)

    def _poll(self) -> Steps[None]:
        """Send a GET: after a while, or at once if the server holds its answer back until the subject ends."""
        if not self.events and self.takes_wait and not isinstance(self.subject, Operation):
            began, wait = time.monotonic(), self._bounded(LONG_POLL_SECONDS)
            try:
                yield from self._look(self._known(), wait=wait)
            except InvalidRequest as error:
                if error.code != "invalid_query":
                    raise
                self.takes_wait = False
            if self._has_ended() or time.monotonic() - began > wait / 2:
                return  # otherwise the answer came early: the server has no room for more requests that wait
        yield Pause(self._bounded(self._poll_seconds()))
        yield from self._look(self._known())

    def _look(self, given: Target, *, wait: float = 0.0) -> Steps[None]:
        """
        Read the subject's state with a GET, repeated for as long as patience and deadline allow.

        Args:
            wait: Seconds that the server may wait for the subject's end.
        """
        began = time.monotonic()
        repeat = 0
        patience_seconds = self.patience_seconds if self.subject else self.first_seconds
        while True:
            if wait or self.deadline is not None:
                self.calls.timeout = max(MIN_TIMEOUT_SECONDS + wait, self._bounded(DEFAULT_TIMEOUT_SECONDS))
            try:
                subject = yield from self.calls.subject(self.subject or given, wait=wait)
            except (Unreachable, ServerError, TooManyRequests) as error:
                repeat += 1
                pause = RETURNING.backoff_seconds(repeat) + (getattr(error, "retry_after", None) or 0.0)
                resumes_at = time.monotonic() + pause
                if self.deadline is not None and resumes_at >= self.deadline:
                    raise self._too_late() from error
                if resumes_at > began + patience_seconds:
                    raise
                if self.subject is not None:
                    yield Emit(Update("lost", self.subject, problem=str(error)))
                yield Pause(pause)
            else:
                yield from self._show(subject, is_live=False)
                return

    def _listen(self) -> Steps[None]:
        """
        Emit a socket's updates until the subject has ended, the deadline is over, or the next GET is due.

        Raises:
            LineLost
        """
        yield self.line.close
        yield partial(self.line.open, self._socket_url(), self._bounded(OPEN_SECONDS))
        token = yield self.token
        yield partial(self.line.say, {"auth": {"key" if is_key(token) else "token": token}})
        silent_seconds, unacknowledged, ack_at, newest = 0.0, 0, 0.0, 0
        look_at = time.monotonic() + LOOK_SECONDS
        is_first = True
        while not self._has_ended() and time.monotonic() < min(look_at, self.deadline or look_at):
            if unacknowledged >= ACK_MESSAGES or (unacknowledged and time.monotonic() >= ack_at):
                yield partial(self.line.say, {"ack": newest, "epoch": self.epoch})
                unacknowledged, ack_at = 0, time.monotonic() + ACK_SECONDS
            seconds = self._bounded(ACK_SECONDS if unacknowledged else HEAR_SECONDS)
            message = yield partial(self.line.hear, seconds)
            if message is None:
                silent_seconds += seconds
                if silent_seconds > SILENT_SECONDS:
                    raise LineLost("The socket has gone silent.")
                continue
            silent_seconds = 0.0
            match message.get("type"):
                case "ping":
                    yield partial(self.line.say, {"pong": True})
                case "error":
                    raise LineLost(str(message.get("detail")), refused=message.get("code") in REFUSALS)
                case "event" | "snapshot" | "stats" | "state" as kind:
                    unacknowledged += 1
                    if self._is_anew(message):
                        newest = 0
                    newest = max(newest, message["cursor"])
                    yield from self._hear(kind, message, is_first=is_first)
                    is_first = False

    def _is_anew(self, message: dict[str, Any]) -> bool:
        """Whether a message is of a new epoch; then the cursor and the emitted ids are reset."""
        epoch = message.get("epoch", "")
        if epoch == self.epoch:
            return False
        self.epoch, self.cursor, self.has_listened = epoch, 0, False
        self.told.clear()
        return True

    def _hear(self, kind: str, message: dict[str, Any], *, is_first: bool) -> Steps[None]:
        self.failures = 0
        cursor = message["cursor"]
        if kind == "event":
            self.cursor = max(self.cursor, cursor)
            yield from self._tell(Event.of({**message["event"], "skipped": message.get("skipped", 0)}))
            return
        if is_first and self.events and (self.has_listened or 0 < self.cursor < cursor):
            # Ask for the events between the last received one and this snapshot; until they come, keep the cursor.
            # After a lost socket ask from the same cursor, too: it lags behind the events that were emitted.
            yield partial(self.line.say, {"resume": self.cursor, "epoch": self.epoch})
        elif kind != "stats":
            self.cursor = max(self.cursor, cursor)
        self.has_listened = True
        yield from self._show(type(self._known()).of(message["data"]), is_live=True)

    def _tell(self, event: Event) -> Steps[None]:
        if not self.events or event.id in self.told:
            return
        self.told[event.id] = None
        if len(self.told) > REMEMBERED_EVENTS:
            del self.told[next(iter(self.told))]
        yield Emit(Update("event", self._known(), event, is_live=True))

    def _show(self, subject: Subject, *, is_live: bool) -> Steps[None]:
        if self.subject is None and not isinstance(subject, Operation):
            self.cursor, self.epoch = subject.cursor, subject.epoch
        self.subject = subject
        yield Emit(Update("state", subject, is_live=is_live))

    def _after(self, lost: LineLost) -> Steps[None]:
        self.failures += 1
        if lost.refused or self.failures >= MAX_FAILURES:
            self.socket_at = time.monotonic() + SOCKET_AGAIN_SECONDS
        else:
            yield Pause(self._bounded(RETURNING.backoff_seconds(self.failures)))

    def _known(self) -> Subject:
        if self.subject is None:
            raise AssertionError("nothing is told before the first look")
        return self.subject

    def _has_ended(self) -> bool:
        return self.subject is not None and self.subject.has_ended

    def _check_deadline(self) -> None:
        if self.deadline is not None and time.monotonic() >= self.deadline:
            raise self._too_late()

    def _too_late(self) -> WaitTimeout:
        known = "It has not ended in time; it goes on." if self.subject else "The server was not reached in time."
        return WaitTimeout(known, latest=self.subject)

    def _bounded(self, seconds: float) -> float:
        """Return the seconds, cut off at the deadline."""
        return seconds if self.deadline is None else max(0.0, min(seconds, self.deadline - time.monotonic()))

    def _poll_seconds(self) -> float:
        asked = getattr(self.subject, "recheck_after_seconds", None) or 1.0
        return min(max(asked, MIN_POLL_SECONDS), MAX_POLL_SECONDS) * random.uniform(0.8, 1.0)  # noqa: S311 (spreads)

    def _socket_url(self) -> str:
        kind = "batches" if isinstance(self.subject, Batch) else "jobs"
        return f"ws{self.base_url.removeprefix('http')}/ws/v1/{kind}/{self._known().id}"
