"""The blocking tracker."""

from __future__ import annotations

import atexit
import os
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Self, TypeVar
from uuid import UUID

from queueops_client.errors import ClientError
from queueops_client.exchange import Pause
from queueops_client.retry import NEVER
from queueops_client.transport import DEFAULT_TIMEOUT_SECONDS, Token, Transport, resumed
from queueops_client.usage.cache import View
from queueops_client.usage.desk import Standing, Usage
from queueops_client.usage.errors import TrackerClosed
from queueops_client.usage.flush import Flushed, Idle
from queueops_client.usage.opening import open_desk
from queueops_client.usage.outbox import MAX_ROWS
from queueops_client.usage.policies import NEAR, Amount, Policy
from queueops_client.usage.report import Report, report

Value = TypeVar("Value")

GATHER_SECONDS = 0.5
CLOSE_SECONDS = 5.0
OTHERS_SECONDS = 0.05  # between looks at rows that another process is sending


class Use:
    """The result of `UsageTracker.use`: `with` begins the use and writes down how it ended."""

    def __init__(self, tracker: UsageTracker, usage: Usage) -> None:
        self._tracker = tracker
        self._usage = usage

    def __enter__(self) -> Usage:
        self._tracker.begin(self._usage)
        return self._usage

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._tracker.finish(self._usage, self._usage.taken(failed=kind is not None))


class UsageTracker:
    """
    Counts the uses of an allowance; any number of threads may share one.

    Args:
        base_url: The installation's address, such as `https://queue.example.org`.
        token: An end user's JWT or a producer key, or a function that returns one.
        user_id: The user of the uses; by default the JWT's user. With a key, `use` may name others.
        path: The outbox's file, on a local disk; processes may share it. By default one for each installation,
            among this person's lasting data.
        policy: `hybrid`, `optimistic` or `strict`.
        threshold: With less than this left, `hybrid` reserves first: units, or a share of the quota (0.1).
        credit: The most units used by `hybrid` and not yet reported to the server; by default as much as `threshold`.
        background: Whether a thread sends what was used, every `gather_seconds`; else `flush` and `close` do.
        max_rows: How many rows may be unsent; with so many, a use is refused before its call.

    Raises:
        BadConfiguration
        OutboxFailed: The file cannot be used.
    """

    def __init__(
        self,
        base_url: str,
        token: Token,
        *,
        user_id: UUID | str | None = None,
        path: Path | str | None = None,
        policy: Policy | str = Policy.HYBRID,
        threshold: Amount = NEAR,
        credit: Amount | None = None,
        background: bool = True,
        gather_seconds: float = GATHER_SECONDS,
        max_rows: int = MAX_ROWS,
        timeout: float = DEFAULT_TIMEOUT_SECONDS,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._connect: Callable[[], Transport] = lambda: Transport(base_url, token, timeout=timeout, retry=NEVER)
        self._desk = open_desk(
            base_url,
            token() if callable(token) else token,
            user_id=user_id,
            path=path,
            policy=policy,
            threshold=threshold,
            credit=credit,
            max_rows=max_rows,
            clock=clock,
        )
        self._sends = background
        self._gather_seconds = gather_seconds
        self._closed = False
        self._start()
        atexit.register(self.close)

    def use(self, estimate: int | None = None, *, service: str = "", user_id: UUID | str | None = None) -> Use:
        """
        `with tracker.use(estimate=800, service="gemini") as usage: ...; usage.tokens = n`.

        When the block ends, the tokens that the call took are on disk. After an exception nothing is counted, unless
        `usage.tokens` was set before. Without `usage.tokens` the estimate counts, with a warning.

        Args:
            estimate: Tokens that the call takes at most. Not needed if the allowance is in requests.
            user_id: With a key: the user of this use.

        Raises:
            QuotaExceeded: Raised by `with`: the allowance has no room for the use.
            QuotaUnavailable: The server has to be asked, and does not answer.
            OutboxFull, OutboxFailed, ApiError
        """
        return Use(self, self._desk.usage(estimate=estimate, service=service, user_id=user_id))

    def begin(self, usage: Usage) -> None:
        """Begin a use without `with`. Each begin needs its `finish`."""
        self._check()
        try:
            self._transport.run(self._desk.admit(usage))
        except BaseException as error:
            if not isinstance(error, Exception):  # an interruption; it is unknown how far the steps got
                self._desk.finish(usage, None)
            raise

    def finish(self, usage: Usage, tokens: int | None) -> None:
        """
        Args:
            tokens: None: the call took nothing.
        """
        self._start()
        self._desk.finish(usage, tokens)
        self._wake.set()

    def standing(self, user_id: UUID | str | None = None) -> Standing:
        """Ask the server for the user's allowance; later uses need not ask first."""
        self._check()
        return self._transport.run(self._desk.standing(self._desk.user(user_id)))

    def known(self, user_id: UUID | str | None = None) -> View | None:
        """Return what is known without asking, less what this outbox has used since; None: nothing is known."""
        return self._desk.outbox.view(self._desk.user(user_id))

    def flush(self, timeout: float | None = None) -> Flushed:
        """
        Send the waiting rows now, even if a pause after a failure is not over.

        Args:
            timeout: Seconds to wait for rows that another process is sending; None: do not.

        Raises:
            ApiError, Unreachable: Some rows could not be sent; they are kept.
        """
        self._check()
        deadline = time.monotonic() + (timeout or 0.0)
        sent = rejected = 0
        while True:
            done = self._transport.run(self._desk.flusher.flush())
            sent, rejected = sent + done.sent, rejected + done.rejected
            if not done.pending or time.monotonic() > deadline:
                return Flushed(sent, rejected, done.pending)
            time.sleep(OTHERS_SECONDS)

    def report(self) -> Report:
        """Return a report of the rows that wait, that crashes left, and that were rejected."""
        return report(self._desk.outbox, self._desk.clock, self._desk.flusher.pace)

    def resolve(self, event_id: UUID | str, *, tokens: int | None) -> bool:
        """
        Settle a use that a crash cut off, or that was rejected.

        Args:
            tokens: The tokens that it took; None: it did not happen, or shall not be counted.

        Returns:
            False if there is no such row.
        """
        done = self._desk.resolve(event_id, tokens)
        self._wake.set()
        return done

    def retry_rejected(self) -> int:
        """Send rejected rows again, once the cause is removed; return how many."""
        count = self._desk.outbox.retry_rejected()
        self._wake.set()
        return count

    def close(self, timeout: float = CLOSE_SECONDS) -> None:
        """
        Send the rows that can be sent, and close the file. Other rows stay in it for the next start.

        Args:
            timeout: About how many seconds this may take.
        """
        if self._closed:
            return
        self._closed = True
        atexit.unregister(self.close)
        deadline = time.monotonic() + timeout
        self._stop.set()
        self._wake.set()
        if self._thread is not None:
            self._thread.join(timeout)
        with suppress(ClientError):
            self._send_until(deadline)
        self._transport.close()
        self._desk.outbox.close()

    def _check(self) -> None:
        if self._closed:
            raise TrackerClosed("The tracker was closed.")
        self._start()

    def _start(self) -> None:
        """Begin in this process, or anew in a forked one, which inherits neither threads nor connections."""
        if getattr(self, "_pid", None) == os.getpid():
            return
        self._pid = os.getpid()
        self._stop = threading.Event()
        self._wake = threading.Event()
        self._transport = self._connect()
        self._thread: threading.Thread | None = None
        if self._sends and not self._closed:
            self._thread = threading.Thread(target=self._send_for_ever, name="queueops-usage", daemon=True)
            self._thread.start()

    def _send_for_ever(self) -> None:
        stop, wake, transport = self._stop, self._wake, self._transport
        steps = self._desk.flusher.keep_flushing(every_seconds=self._gather_seconds)
        try:
            step = next(steps)
            while not stop.is_set():
                outcome = None
                if isinstance(step, Idle):
                    wake.wait(step.seconds)
                    wake.clear()
                elif isinstance(step, Pause):
                    stop.wait(step.seconds)
                else:
                    outcome = transport.take(step)
                step = resumed(steps, outcome)
        finally:
            steps.close()
            if self._closed:
                self._desk.outbox.close()

    def _send_until(self, deadline: float) -> None:
        steps = self._desk.flusher.flush()
        with suppress(StopIteration):
            step = next(steps)
            while (left := deadline - time.monotonic()) > 0:
                step = resumed(steps, self._transport.take(replace(step, timeout=left)))
        steps.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()
