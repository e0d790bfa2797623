"""Requests that wait for the end of a job or batch: the log of events tells it, or the database in doubt."""

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

MAX_WAITERS = 10_000  # of a process, beside its sockets
MAX_WAITERS_OF_ONE = MAX_WAITERS // 2  # of one project, or one account


class Waiter:
    """
    Attributes:
        woken: What it waits for seems to have ended.
        has_news: Something has happened to it.
    """

    def __init__(self, group: Group) -> None:
        self.group = group
        self.woken = asyncio.Event()
        self.has_news = False


class Waiters:
    """
    Lives on the event loop.

    Attributes:
        groups: What is waited for.
    """

    def __init__(self) -> None:
        self.groups: dict[Group, set[Waiter]] = {}
        self._of: Counter[str] = Counter()
        self._in_doubt: set[Group] = set()  # may have ended

    def __len__(self) -> int:
        """How many are held."""
        return self._of.total()

    def enter(self, group: Group) -> Waiter:
        """Hear of it from here on: whoever looks at it afterwards misses no end."""
        waiter = Waiter(group)
        self.groups.setdefault(group, set()).add(waiter)
        return waiter

    def leave(self, waiter: Waiter) -> None:
        """Repeating it is harmless."""
        others = self.groups.get(waiter.group, set())
        others.discard(waiter)
        if not others:
            self.groups.pop(waiter.group, None)

    @contextmanager
    def place(self, who: str | None) -> Iterator[bool]:
        """A place among those who are held; False: there is none, as for those of whom nobody knows who they are."""
        if who is None or LEAVING.is_set() or self._of.total() >= MAX_WAITERS or self._of[who] >= MAX_WAITERS_OF_ONE:
            yield False
            return
        self._of[who] += 1
        try:
            yield True
        finally:
            self._of -= Counter([who])  # forgets those that are zero

    def note(self, events: Sequence[Event]) -> None:
        """A batch gets many events, and few of them end it: it is looked up in the next round."""
        for event in events:
            for group in event.groups():
                waiters = self.groups.get(group, ())
                for waiter in waiters:
                    waiter.has_news = True
                if waiters and event.to_status in TERMINAL:
                    self._in_doubt.add(group)

    def lost(self) -> None:
        """Events were skipped."""
        for group, waiters in self.groups.items():
            self._in_doubt.add(group)
            for waiter in waiters:
                waiter.has_news = True

    async def look(self) -> None:
        """
        Raises:
            DatabaseError: They stay in doubt.
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
    """Return those that have ended, or are not there any more: asking again tells which. For a thread."""
    jobs = [UUID(pk) for kind, pk in groups if kind == "job"]
    going = Job.objects.filter(pk__in=jobs, status__in=UNFINISHED).values_list("pk", flat=True) if jobs else []
    batches = [UUID(pk) for kind, pk in groups if kind == "batch"]
    unfinished = [pk for pk, counts in batch_counts(batches).items() if any(counts[state] for state in UNFINISHED)]
    still = {("job", str(pk)) for pk in going} | {("batch", str(pk)) for pk in unfinished}
    return [group for group in groups if group not in still]
