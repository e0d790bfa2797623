"""One socket's side of the stream: the messages that it is sent, and the events that it misses when it is slow."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from jobs.services.explain.event_log import Cursor
from queueops.core.values.rate import Rate

from . import messages
from .events import Event, EventFilter
from .messages import CloseCode, Kind
from .subjects import LiveSubject
from .viewer import Viewer

# Daphne keeps all messages in memory until the client reads them. Therefore unacknowledged messages are bounded here.
MESSAGE_WINDOW = 500
WINDOW_BYTES = 1_000_000
MAX_STATES = 10  # states sent to a socket beyond its window, until it acknowledges a message
PING_SECONDS = 20.0
SILENT_SECONDS = 30.0  # a socket that owes an answer and says nothing for so long is closed
SLOW_SOCKET_SECONDS = 60.0  # a socket that stays behind for so long is closed
# The most of a gap between two beats that counts against a client. Beats come each second, so a longer gap is the
# process's fault.
MAX_OF_A_BEAT_SECONDS = 2.0


@dataclass(slots=True)
class _Sent:
    cursor: int
    size: int
    at: float


class LiveSocket:
    """
    One socket's state. Its messages wait until the consumer fetches them with `take`.

    Within its window the socket gets every event. Beyond the window, events are dropped and the socket gets the newest
    state instead, now and then, until it has acknowledged half of the window.
    """

    def __init__(self, viewer: Viewer, subject: LiveSubject) -> None:
        self.viewer = viewer
        self.subject = subject
        self.filter = EventFilter()
        self.wake = asyncio.Event()
        self.closing: CloseCode | None = None
        now = time.monotonic()
        self._queue: deque[str] = deque()
        self._sent: deque[_Sent] = deque()
        self._bytes = 0
        self._newest_cursor = 0
        self._epoch: str | None = None  # None: the epoch has not changed since the socket joined
        self._is_anew = False
        self._held: list[tuple[Event, Cursor]] | None = []
        self._behind_since: float | None = None
        self._states = 0
        self._replayed: set[int] = set()
        most = subject.events_per_second
        self._rate = None if most is None else Rate(most, window_seconds=1)
        self._skipped = 0
        self._heard_at = now
        self._beat_at = now
        self._pinged_at = now
        self._pong_owed_since: float | None = None

    @property
    def can_recover(self) -> bool:
        return (
            self._behind_since is not None
            and len(self._sent) <= MESSAGE_WINDOW // 2
            and self._bytes <= WINDOW_BYTES // 2
        )

    @property
    def is_behind(self) -> bool:
        return self._behind_since is not None

    def hold(self) -> None:
        """Keep events back from here on: data that is read now is sent before them."""
        self._held = self._held or []

    def release(self, kind: Kind, cursor: Cursor, data: str, *, missed: Sequence[Event] = ()) -> None:
        """
        Send the whole state, read after `hold` was called, and then the events that were held back meanwhile.

        Args:
            missed: Events after the cursor that were visible before `hold`; they are sent before the held events.
        """
        if self._is_of_the_past(cursor):
            self.fall_behind()
            return
        self._behind_since = None
        self._states = 0
        held, self._held = self._held or [], None
        self._push(messages.whole(Kind.SNAPSHOT if self._is_anew else kind, cursor, data), cursor)
        self._is_anew = False
        self._replayed = {event.id for event in missed}
        for event in missed:
            if self.filter.lets_through(event):
                self._push(messages.event(cursor, self._body(event)), cursor)
        self._offer_all(held)

    def replay(self, missed: Sequence[Event], *, since: int, cursor: Cursor) -> None:
        """
        Send the missed events that the filter lets through, read after `hold` was called, and then the events that were
        held back meanwhile.

        Args:
            since: The cursor before the missed events. All but the last carry it: a client that leaves halfway resumes
                there.
            cursor: The cursor that the last sent event carries, which stands for the left out events after it, too.
        """
        if self._is_of_the_past(cursor):
            self.fall_behind()
            return
        held, self._held = self._held or [], None
        self._replayed = {event.id for event in missed}
        before = cursor._replace(id=since)
        wanted = [event for event in missed if self.filter.lets_through(event)]
        for event in wanted:
            self._push(messages.event(cursor if event is wanted[-1] else before, self._body(event)), cursor)
        self._offer_all(held)

    def fall_behind(self) -> None:
        """Note that events were lost to the socket: it gets the state as soon as there is room."""
        self._held = None
        if self._behind_since is None:
            self._behind_since = time.monotonic()
            self._states = 0

    def begin_anew(self, epoch: str) -> None:
        """Forget what was sent in another epoch. The socket gets a snapshot, and from then on the events that come."""
        self._epoch = epoch
        self._is_anew = True
        self._sent.clear()
        self._bytes = 0
        self._replayed = set()
        self.fall_behind()

    def _is_of_the_past(self, cursor: Cursor) -> bool:
        return self._epoch is not None and cursor.epoch != self._epoch

    def offer(self, event: Event, cursor: Cursor) -> None:
        """Take an event: send it, hold it, count it as skipped, or drop it where the state is sent instead."""
        if not self.filter.lets_through(event):
            return
        if self._held is not None:
            if len(self._held) >= MESSAGE_WINDOW:
                self.fall_behind()
            else:
                self._held.append((event, cursor))
            return
        if self._behind_since is not None or event.id in self._replayed:
            return
        if len(self._sent) >= MESSAGE_WINDOW or self._bytes >= WINDOW_BYTES:
            self.fall_behind()
            return
        if self._rate and self._rate.take():
            self._skipped += 1
            return
        self._push(messages.event(cursor, self._body(event), skipped=self._skipped), cursor)
        self._skipped = 0

    def show(self, cursor: Cursor, data: str) -> None:
        """Take the newest state."""
        if self._held is not None or self._is_anew:
            return  # a newer state will be sent
        if self._behind_since is None:
            if len(self._sent) < MESSAGE_WINDOW and self._bytes < WINDOW_BYTES:
                self._push(messages.whole(Kind.STATS, cursor, data), cursor)
            else:
                self.fall_behind()
        elif self._states < MAX_STATES:
            self._states += 1
            self._push(messages.whole(Kind.STATE, cursor, data), cursor)

    def hear(self) -> None:
        """Note that a message came from the client."""
        self._heard_at = time.monotonic()
        self._pong_owed_since = None

    def acknowledge(self, cursor: int, epoch: str | None = None) -> bool:
        """
        Free the window up to the cursor; False: no message has had this cursor yet.

        Args:
            epoch: The cursor's epoch. A cursor of an earlier epoch, on its way when the epoch changed, frees nothing.
                None: the client did not say.
        """
        if cursor > self._newest_cursor:
            return False
        if self._epoch is not None and epoch not in (None, self._epoch):
            return True
        while self._sent and self._sent[0].cursor <= cursor:
            self._bytes -= self._sent.popleft().size
            self._states = 0
        return True

    def beat(self) -> None:
        """
        Ping the client, and close the socket if it does not answer. Called once a second.

        Time in which the process stood still does not count, because clients' messages from that time are still unread.
        Otherwise every socket would be closed for the process's own silence.
        """
        now = time.monotonic()
        if self.closing is not None:
            return
        stood_still, self._beat_at = max(0.0, now - self._beat_at - MAX_OF_A_BEAT_SECONDS), now
        self._heard_at = min(now, self._heard_at + stood_still)
        if self._behind_since is not None:
            self._behind_since = min(now, self._behind_since + stood_still)
        owed_since = min(self._sent[0].at if self._sent else now, self._pong_owed_since or now)
        if now - max(owed_since, self._heard_at) > SILENT_SECONDS:
            self.close(CloseCode.SILENT, "Nothing was acknowledged.")
        elif self._behind_since is not None and now - self._behind_since > SLOW_SOCKET_SECONDS:
            self.close(CloseCode.TOO_SLOW, "Acknowledged too little for too long.")
        elif now - self._pinged_at >= PING_SECONDS:
            self._pinged_at = now
            if self._pong_owed_since is None:  # otherwise each later ping would put the close off
                self._pong_owed_since = now
            self._write(messages.PING)

    def close(self, refusal: CloseCode, detail: str) -> None:
        """Say why, and close; waiting messages are not sent any more."""
        if self.closing is None:
            self.closing = refusal
            self._queue.clear()
            self._write(messages.error(refusal, detail))

    def take(self) -> Iterator[str]:
        while self._queue:
            yield self._queue.popleft()

    def _body(self, event: Event) -> str:
        if self.subject.is_masked:
            return event.outline
        return event.masked_body if self.subject.hides_secrets else event.body

    def _offer_all(self, held: list[tuple[Event, Cursor]]) -> None:
        for event, cursor in held:
            self.offer(event, cursor)

    def _push(self, text: str, cursor: Cursor) -> None:
        if self.closing is None:
            self._newest_cursor = max(self._newest_cursor, cursor.id)
            self._sent.append(_Sent(cursor.id, len(text), time.monotonic()))
            self._bytes += len(text)
            self._write(text)

    def _write(self, text: str) -> None:
        self._queue.append(text)
        self.wake.set()
