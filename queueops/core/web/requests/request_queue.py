"""The queue that chooses a web process's next request: it is bounded, and askers take turns in it."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from queueops.core.errors import QueueOpsError
from queueops.core.web.asking import ClientLeft

REASONS = ("full", "late", "left")

MAX_WAITING = 200  # each may keep 100 kB of its body in memory: IN_MEMORY_BYTES of spool.py
WAIT_SECONDS = 4.0  # with POOL_SECONDS for a connection, less than the ten seconds after which clients ask again
HEAVY_COST = 3.0  # the cost of a page of 100 rows; a larger page is heavy
HEAVY_AT_ONCE = 2  # heavy requests hold the interpreter's lock most of the time, so more of them only slow each other
UNKNOWN_SHARE = 5  # all unknown askers together get one in five threads, and one in five places of the queue
KEPT_FOR_OTHERS = 1  # threads that stay free when one asker and the unknown ones have filled their shares


class Overloaded(QueueOpsError):
    """More is asked of this process than it can carry out now. Nothing was done; try again."""

    code = "overloaded"
    status = 503
    detail_fields = ("retry_after",)


@dataclass(slots=True, eq=False)
class _Asker:
    """
    Attributes:
        due: Virtual start time of the asker's next request, in cost. The asker with the lowest is next.
        is_known: Whether the asker has a valid credential. Others are addresses, and share a part of the threads.
    """

    due: float
    is_known: bool
    waiting: list[_Place] = field(default_factory=list)
    running: int = 0


@dataclass(slots=True, eq=False)
class _Place:
    """
    Attributes:
        called: Result True: the request may run. False: it made room for an asker with fewer requests waiting.
    """

    asker: str
    cost: float
    called: asyncio.Future[bool]

    @property
    def is_heavy(self) -> bool:
        return self.cost > HEAVY_COST


class RequestQueue:
    """
    Start-time fair queueing (Goyal, Vin and Cheng, 1996) over the askers; used from one event loop.

    An asker who wants more than others waits for its own requests, and others do not wait for it. It can fill
    neither all threads nor the queue: when the queue is full, the asker with most requests waiting loses one. A costly
    request counts as many. All unknown askers share one part of the threads and one of the queue, because addresses
    cost nothing.

    Attributes:
        dropped: How many requests were not carried out, by REASONS: no room, no turn in time, client gone.
    """

    def __init__(self, at_once: int, *, most_waiting: int = MAX_WAITING, wait_seconds: float = WAIT_SECONDS) -> None:
        self.dropped: Counter[str] = Counter()
        self.waiting = 0
        self._free = at_once
        self._unknown_free = max(1, at_once // UNKNOWN_SHARE)
        self._share = max(1, at_once - self._unknown_free - KEPT_FOR_OTHERS)
        self._heavy_free = min(HEAVY_AT_ONCE, self._share)
        self._most_waiting = most_waiting
        self._unknown_waiting = 0
        self._most_unknown = max(1, most_waiting // UNKNOWN_SHARE)
        self._wait_seconds = wait_seconds
        self._askers: dict[str, _Asker] = {}
        self._now = 0.0

    async def turn(
        self, asker: str, cost: float, client_leaves: Callable[[], Awaitable[Any]], *, is_known: bool = True
    ) -> Callable[[], None]:
        """
        Wait for the turn to run; return a function to call, once and on the event loop, when the request is over.

        Args:
            cost: The request's cost, in small requests.
            client_leaves: Returns when the client has gone.
            is_known: Whether the asker has a valid credential. Others are addresses; anybody can have many of those.

        Raises:
            Overloaded: There is no room to wait, or its turn did not come within a few seconds.
            ClientLeft
        """
        place = _Place(asker, cost, asyncio.get_running_loop().create_future())
        self._join(place, is_known=is_known)
        if not place.called.done():
            await self._wait(place, client_leaves)
        return lambda: self._leave(place)

    async def _wait(self, place: _Place, client_leaves: Callable[[], Awaitable[Any]]) -> None:
        left = asyncio.ensure_future(client_leaves())
        goes_on = False
        try:
            waited: set[asyncio.Future[Any]] = {place.called, left}
            await asyncio.wait(waited, timeout=self._wait_seconds, return_when=asyncio.FIRST_COMPLETED)
            if left.done():
                self.dropped["left"] += 1
                raise ClientLeft
            if not place.called.done():
                raise self._refusal("late")
            if not place.called.result():
                raise self._refusal("full")
            goes_on = True
        finally:
            left.cancel()
            if not goes_on:
                self._give_up(place)

    def _join(self, place: _Place, *, is_known: bool) -> None:
        asker = self._askers.setdefault(place.asker, _Asker(self._now, is_known))
        if not asker.waiting and not asker.running:
            asker.due = self._now
        asker.waiting.append(place)
        self.waiting += 1
        self._unknown_waiting += not asker.is_known
        self._call_next()
        if self._unknown_waiting > self._most_unknown:
            self._make_room(place, [one for one in self._askers.values() if not one.is_known])
        elif self.waiting > self._most_waiting:
            self._make_room(place, list(self._askers.values()))

    def _make_room(self, place: _Place, askers: Sequence[_Asker]) -> None:
        """
        Raises:
            Overloaded: There is no room for this request.
        """
        longest = max(askers, key=lambda one: len(one.waiting))
        # If no asker has more requests waiting, this request is refused: no other asker loses one to it.
        own = self._askers[place.asker]
        loser = place if len(longest.waiting) <= len(own.waiting) else longest.waiting[-1]
        self._take_out(loser)
        if loser is place:
            raise self._refusal("full")
        loser.called.set_result(False)

    def _call_next(self) -> None:
        while self._free and (place := self._next()):
            asker = self._askers[place.asker]
            self._now = asker.due
            asker.due += place.cost
            asker.running += 1
            self._free -= 1
            self._heavy_free -= place.is_heavy
            self._unknown_free -= not asker.is_known
            self._remove(place, asker)
            place.called.set_result(True)

    def _next(self) -> _Place | None:
        found, due = None, float("inf")
        for asker in self._askers.values():
            if asker.due < due and asker.running < self._share and (asker.is_known or self._unknown_free):
                first = next((one for one in asker.waiting if self._heavy_free or not one.is_heavy), None)
                if first:
                    found, due = first, asker.due
        return found

    def _give_up(self, place: _Place) -> None:
        if not place.called.done():
            self._take_out(place)
        elif place.called.result():
            self._leave(place)

    def _leave(self, place: _Place) -> None:
        asker = self._askers[place.asker]
        asker.running -= 1
        self._unknown_free += not asker.is_known
        self._free += 1
        self._heavy_free += place.is_heavy
        self._forget_idle(place.asker)
        self._call_next()

    def _take_out(self, place: _Place) -> None:
        self._remove(place, self._askers[place.asker])
        self._forget_idle(place.asker)

    def _remove(self, place: _Place, asker: _Asker) -> None:
        asker.waiting.remove(place)
        self.waiting -= 1
        self._unknown_waiting -= not asker.is_known

    def _forget_idle(self, name: str) -> None:
        asker = self._askers[name]
        if not asker.waiting and not asker.running:
            del self._askers[name]

    def _refusal(self, reason: str) -> Overloaded:
        self.dropped[reason] += 1
        return come_back()


def come_back() -> Overloaded:
    """Return a refusal with a random pause: clients that are refused together must not come back together."""
    return Overloaded(retry_after=random.randint(1, 5))  # noqa: S311
