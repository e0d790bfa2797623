"""An executor without threads: for tests that roll back, whose rows no other connection sees."""

from __future__ import annotations

import asyncio
import logging
import math
import os
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from contextvars import copy_context
from functools import partial
from typing import Any

from django.db import connection, transaction
from psycopg.pq import TransactionStatus

from jobs.handlers.registry import close_handlers
from jobs.models import DutyLease
from jobs.services.claim.lanes import LaneGate
from jobs.services.finish.claimed import ClaimedJob

from .attempt_log import KEEPER
from .loop import CANCELLED, HandlerLoop, Opened
from .pump import ExecutorPump


class InlineEventLoop(asyncio.SelectorEventLoop):
    """
    Runs on its caller's thread, and runs there all calls that ask for another thread, too.

    A function meant for a thread runs while the loop pauses. As no loop runs then, Django lets the function use the
    database, on the caller's connection.
    """

    def __init__(self) -> None:
        super().__init__()
        self._calls: deque[tuple[Future[Any], Callable[[], Any]]] = deque()

    def submit(self, function: Callable[..., Any], /, *args: Any) -> Future[Any]:
        """Take a function meant for a handler's thread; see concurrent.futures.Executor."""
        call: Future[Any] = Future()
        self._calls.append((call, partial(function, *args)))
        self.stop()
        return call

    def run_in_executor(self, executor: Any, func: Callable[..., Any], *args: Any) -> asyncio.Future[Any]:  # type: ignore[override]
        return asyncio.wrap_future(self.submit(func, *args), loop=self)

    def run_while(self, goes_on: Callable[[], bool]) -> None:
        """Run while `goes_on` returns true; code that makes it false calls `stop`."""
        while goes_on():
            self.run_forever()
            while self._calls:
                call, function = self._calls.popleft()
                if call.set_running_or_notify_cancel():
                    try:
                        call.set_result(_apart(function))
                    except BaseException as error:  # noqa: BLE001 - the handler gets the error
                        call.set_exception(error)

    def finish(self) -> None:
        """Let handlers close their open resources, and close the loop."""
        closing = self.create_task(close_handlers())
        closing.add_done_callback(lambda _: self.stop())
        self.run_while(lambda: not closing.done())
        closing.result()
        self.close()


class InlineLoop(HandlerLoop):
    """Carries jobs out on the caller's thread: `run` returns when each job has an outcome."""

    def begin_on(self, loop: InlineEventLoop) -> None:
        logging.getLogger().addHandler(KEEPER)
        self._loop.close()
        self._loop = self._inline = loop
        self.wake = loop.stop
        self._threads = loop  # type: ignore[assignment]

    def carry_out(self, jobs: Sequence[ClaimedJob], credentials: Mapping[str, Opened] | None = None) -> None:
        copy_context().run(self._begin, jobs, credentials or {})

    def cancel(self, jobs: Sequence[ClaimedJob], *, reason: str = CANCELLED) -> None:
        self._interrupt(jobs, reason)

    def run(self) -> None:
        self._inline.run_while(lambda: self.active > 0)

    def stop(self) -> None:
        if self._results is not None:
            self._results.stop()


class InlinePump(ExecutorPump):
    """Does a pump's work when it is told to, on its caller's connection."""

    loop_class = InlineLoop
    looks_for_trouble = False  # looking for alerts takes a hundred statements; a test calls tend_alerts for it
    loop: InlineLoop

    def begin_on(self, loop: InlineEventLoop) -> None:
        """Use this loop, and register the executor."""
        self.loop.begin_on(loop)
        if self._spans:
            self._spans.start()
        self._connect()

    def take_turn(self, *, is_idle: bool) -> bool:
        """
        Write outcomes, claim jobs, and carry them out to the end.

        Args:
            is_idle: No job was left to claim: do the shared duties, and read each lane anew.

        Returns:
            Whether any job was carried out.
        """
        due = self._next if is_idle else ("claim", "promote", "progress")
        self._next = dict.fromkeys(self._next, math.inf) | dict.fromkeys(due, 0.0)
        self._hint = True
        if is_idle:
            self._gate = LaneGate(self.settings.pool)
        self._cycle()
        if is_idle:
            # Put the alert duty off for good: otherwise the clock would make it due again every few seconds of a drain.
            self._duties.put_off_alerts(math.inf)
        end_commit()
        is_busy = self.loop.active > 0
        self.loop.run()
        return is_busy

    def _bear(self, error: Exception, what: str) -> None:
        raise error  # the test is to see it

    def leave(self) -> None:
        """Close the loop, deregister the executor, and free its duties."""
        self._close_loop()
        self._sign_off()
        DutyLease.objects.filter(holder=self.id).delete()  # no term ends by itself while the test's transaction lasts
        os.close(self._ears)
        os.close(self._mouth)


def end_commit() -> None:
    """Run the on-commit functions, as if all earlier work were committed: the test's transaction never commits."""
    while connection.run_on_commit:
        connection.run_on_commit.pop(0)[1]()


@contextmanager
def kept_open() -> Iterator[None]:
    """Keep handlers from closing the connection as they do in a thread: closing it would end the test's transaction."""
    connection.close_if_unusable_or_obsolete = lambda: None  # type: ignore[method-assign]
    try:
        yield
    finally:
        del connection.close_if_unusable_or_obsolete


def _apart(function: Callable[[], Any]) -> Any:
    """Call a function in a savepoint: a failed statement in it does not abort the transaction around it."""
    before = transaction.savepoint()
    try:
        return function()
    finally:
        if connection.connection.info.transaction_status == TransactionStatus.INERROR:
            transaction.savepoint_rollback(before)
        else:
            transaction.savepoint_commit(before)
            end_commit()
