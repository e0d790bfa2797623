"""Requests that wait for the end of a job or batch. Events hint at the end, and a look at the database confirms it."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from uuid import UUID

from jobs.models import Job
from jobs.services.explain.snapshots import batch_counts
from jobs.states import TERMINAL, UNFINISHED
from queueops.core.web.leaving import LEAVING

from .events import Event, Group
from .threads import in_thread

MAX_WAITERS = 10_000  # of a process, besides its sockets
MAX_WAITERS_OF_ONE = MAX_WAITERS // 2  # of one project, or one account


class Waiter:
    """
    Attributes:
        woken: Set when its job or batch seems to have ended.
        has_news: Whether events of its job or batch came, or may have been skipped.
    """

    def __init__(self, group: Group) -> None:
        self.group = group
        self.woken = asyncio.Event()
        self.has_news = False


class Waiters:
    """
    All waiters of a process. Its methods run on the event loop.

    Attributes:
        groups: The waiters, by the job or batch that they wait for.
    """

    def __init__(self) -> None:
        self.groups: dict[Group, set[Waiter]] = {}
        self._of: Counter[str] = Counter()
        self._in_doubt: set[Group] = set()  # jobs and batches that may have ended

    def __len__(self) -> int:
        """How many requests are held."""
        return self._of.total()

    def enter(self, group: Group) -> Waiter:
        """Add a waiter for a job or batch. Look at the job or batch only afterwards: then no end is missed."""
        waiter = Waiter(group)
        self.groups.setdefault(group, set()).add(waiter)
        return waiter

    def leave(self, waiter: Waiter) -> None:
        """Remove a waiter. Calling it again is harmless."""
        others = self.groups.get(waiter.group, set())
        others.discard(waiter)
        if not others:
            self.groups.pop(waiter.group, None)

    @contextmanager
    def place(self, who: str | None) -> Iterator[bool]:
        """Reserve one of the places for held requests; False: none is free, or the caller is unknown."""
        if who is None or LEAVING.is_set() or self._of.total() >= MAX_WAITERS or self._of[who] >= MAX_WAITERS_OF_ONE:
            yield False
            return
        self._of[who] += 1
        try:
            yield True
        finally:
            self._of -= Counter([who])  # drops names whose count is zero

    def note(self, events: Sequence[Event]) -> None:
        """Note events. Few of a batch's many events end it: `look` asks the database in the next round."""
        for event in events:
            for group in event.groups():
                waiters = self.groups.get(group, ())
                for waiter in waiters:
                    waiter.has_news = True
                if waiters and event.to_status in TERMINAL:
                    self._in_doubt.add(group)

    def lost(self) -> None:
        """Note that events were skipped: anything may have ended."""
        for group, waiters in self.groups.items():
            self._in_doubt.add(group)
            for waiter in waiters:
                waiter.has_news = True

    async def look(self) -> None:
        """
        Wake the waiters whose job or batch has ended.

        Raises:
            DatabaseError: The next round looks again.
        """
        if LEAVING.is_set():
            self._wake(list(self.groups))
        in_doubt = self._in_doubt & self.groups.keys()
        if not in_doubt:
            self._in_doubt.clear()
            return
        self._in_doubt = set()
        try:
            self._wake(await in_thread(partial(_ended, in_doubt)))
        except BaseException:
            self._in_doubt |= in_doubt
            raise

    def _wake(self, groups: Collection[Group]) -> None:
        for group in groups:
            for waiter in self.groups.get(group, ()):
                waiter.woken.set()


def _ended(groups: Collection[Group]) -> list[Group]:
    """Return the groups that have ended or were deleted; a new request tells which. Call it in a thread."""
    jobs = [UUID(pk) for kind, pk in groups if kind == "job"]
    going = Job.objects.filter(pk__in=jobs, status__in=UNFINISHED).values_list("pk", flat=True) if jobs else []
    batches = [UUID(pk) for kind, pk in groups if kind == "batch"]
    unfinished = [pk for pk, counts in batch_counts(batches).items() if any(counts[state] for state in UNFINISHED)]
    still = {("job", str(pk)) for pk in going} | {("batch", str(pk)) for pk in unfinished}
    return [group for group in groups if group not in still]
