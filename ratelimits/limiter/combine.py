"""
Requests of one process that come together are carried out together, in one transaction.

On a hot counter transactions queue at its lock, and each pays for its own commit. Here the requests queue in memory
instead. A request that finds no leader at work becomes the leader: it takes all waiting requests along, and carries out
one transaction for the group. Requests that come meanwhile form the next group.
"""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

from django.db import InterfaceError, OperationalError

Asked = TypeVar("Asked")
Answer = TypeVar("Answer")

UNREACHABLE = (OperationalError, InterfaceError)
"""The database does not answer, or answers too late; the request itself is not at fault."""


class _Entry(Generic[Asked, Answer]):
    """One request and, later, its outcome."""

    __slots__ = ("answer", "asked", "error", "size", "woken")

    def __init__(self, asked: Asked, size: int) -> None:
        self.asked = asked
        self.size = size
        self.woken = threading.Lock()  # held until the entry has an outcome or must lead; cheaper than an Event
        self.woken.acquire()
        self.answer: list[Answer] = []
        self.error: BaseException | None = None

    @property
    def ended(self) -> bool:
        return bool(self.answer) or self.error is not None

    def outcome(self) -> Answer:
        if self.error is not None:
            raise self.error
        return self.answer[0]


class Combiner(Generic[Asked, Answer]):
    """
    Combines the requests of this process's threads.

    A leader serves only the group with its own request, then leaves the lead to the first in line. It never waits for
    more requests to come.
    """

    _lock: threading.Lock
    _waiting: deque[_Entry[Asked, Answer]]
    _led: bool

    def __init__(self, carry_out: Callable[[Sequence[Asked]], Sequence[Answer]], *, most: int) -> None:
        """
        Args:
            carry_out: Returns one answer for each request, in order, after its transaction was committed.
            most: The largest sum of sizes in a group of more than one request.
        """
        self._carry_out = carry_out
        self._most = most
        self._start_anew()
        os.register_at_fork(after_in_child=self._start_anew)  # the leader's thread is not in the child

    def _start_anew(self) -> None:
        self._lock = threading.Lock()
        self._waiting = deque()
        self._led = False

    def ask(self, asked: Asked, *, size: int = 1) -> Answer:
        """
        Carry out one request, with others that wait, in this thread or another's.

        Raises:
            OperationalError, InterfaceError: The group's transaction failed, for all of its requests.
            Exception: Whatever `carry_out` raised for this request alone.
        """
        entry: _Entry[Asked, Answer] = _Entry(asked, size)
        with self._lock:
            self._waiting.append(entry)
            leads, self._led = not self._led, True
        if not leads:
            entry.woken.acquire()
        if not entry.ended:
            self._lead()
        return entry.outcome()

    def _lead(self) -> None:
        """Serve the first request in line, which is the leader's own, and the next ones; then pass the lead on."""
        group = self._next_group()
        try:
            self._serve(group)
        except BaseException as error:  # this thread is ending: no other thread may go on waiting for it
            _fail(group, error)
            raise
        finally:
            with self._lock:
                successor = self._waiting[0] if self._waiting else None
                self._led = successor is not None
            # Wake the next leader first: the threads of this group take their answers while the next transaction runs.
            if successor is not None:
                successor.woken.release()
            for entry in group[1:]:
                entry.woken.release()

    def _next_group(self) -> list[_Entry[Asked, Answer]]:
        with self._lock:
            group = [self._waiting.popleft()]
            size = group[0].size
            while self._waiting and size + self._waiting[0].size <= self._most:
                group.append(self._waiting.popleft())
                size += group[-1].size
        return group

    def _serve(self, group: Sequence[_Entry[Asked, Answer]]) -> None:
        try:
            answers = self._carry_out([entry.asked for entry in group])
        except UNREACHABLE as error:
            _fail(group, error)
        except Exception as error:  # noqa: BLE001 (it is raised in the thread that asked)
            if len(group) == 1:
                _fail(group, error)
                return
            # One request must not make the others fail; nothing of the group was committed.
            for entry in group:
                self._serve([entry])
        else:
            for entry, answer in zip(group, answers, strict=True):
                entry.answer.append(answer)


def _fail(group: Sequence[_Entry[Asked, Answer]], error: BaseException) -> None:
    for entry in group:
        if not entry.ended:
            entry.error = error
