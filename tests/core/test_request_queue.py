"""Turns between those who ask, without threads or a database: what runs is a function's business."""

import asyncio
from collections.abc import Callable

import pytest

from queueops.core.web.asking import ClientLeft
from queueops.core.web.requests.request_queue import HEAVY_AT_ONCE, Overloaded, RequestQueue
from tests.support.played import played

pytestmark = pytest.mark.proves("R14")

HEAVY = 11.0  # page_size=500


class Requests:
    """Sends requests into a queue; `order`: who was called, in that order."""

    def __init__(self, queue: RequestQueue) -> None:
        self.queue = queue
        self.order: list[str] = []
        self.refused: list[tuple[str, Exception]] = []
        self.sent_away = asyncio.Event()
        self._over: dict[str, Callable[[], None]] = {}
        self._tasks: list[asyncio.Task[None]] = []

    async def send(self, *names: str, cost: float = 1.0, leaves: asyncio.Event | None = None) -> None:
        """Each name's first letter is its asker; capitals are nobody that is known."""
        for name in names:
            self._tasks.append(asyncio.create_task(self._one(name, cost, leaves or asyncio.Event())))
        await settle()

    async def end(self, name: str) -> None:
        self._over.pop(name)()
        await settle()

    async def run_all(self) -> None:
        while self._over:
            await self.end(next(iter(self._over)))
        await asyncio.gather(*self._tasks)

    @property
    def running(self) -> set[str]:
        return set(self._over)

    async def _one(self, name: str, cost: float, leaves: asyncio.Event) -> None:
        async def until_left() -> None:
            await leaves.wait()

        try:
            self._over[name] = await self.queue.turn(name[0], cost, until_left, is_known=name.islower())
        except (Overloaded, ClientLeft) as error:
            self.refused.append((name, error))
            self.sent_away.set()
        else:
            self.order.append(name)


async def settle() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


@played
async def test_askers_take_turns_however_many_requests_one_has():
    requests = Requests(RequestQueue(1))
    await requests.send(*[f"a{number}" for number in range(6)])
    await requests.send("b0", "b1", "c0")
    await requests.run_all()
    assert requests.order[0] == "a0"
    assert [name[0] for name in requests.order[1:6]].count("a") == 2
    assert requests.order.index("c0") < requests.order.index("a3")
    assert requests.queue.waiting == 0


@played
async def test_a_costly_request_counts_as_many():
    requests = Requests(RequestQueue(1))
    await requests.send("x0")
    await requests.send("a0", "a1", cost=4.0)
    await requests.send(*[f"b{number}" for number in range(6)])
    await requests.run_all()
    assert requests.order.index("a1") - requests.order.index("a0") > 4


@played
async def test_an_asker_alone_leaves_places_to_others():
    requests = Requests(RequestQueue(5))
    await requests.send(*[f"a{number}" for number in range(9)])
    assert requests.running == {"a0", "a1", "a2"}
    await requests.send("b0")
    assert "b0" in requests.running
    await requests.run_all()
    assert len(requests.order) == 10


@played
async def test_all_whom_nobody_knows_have_one_small_part_and_one_project_leaves_a_place_beside_them():
    requests = Requests(RequestQueue(10, most_waiting=50))
    strangers = [f"{letter}0" for letter in "ABCDEFGHIJKLMN"]
    await requests.send(*strangers)
    assert requests.running == {"A0", "B0"}
    assert [name for name, _ in requests.refused] == ["M0", "N0"], "a fifth of the line is theirs"
    await requests.send(*[f"p{number}" for number in range(40)])
    assert len([name for name in requests.running if name[0] == "p"]) == 7
    await requests.send("q0")
    assert "q0" in requests.running, "nobody else has a place"
    await requests.send("B1")
    assert requests.refused[-1][0] == "B1"
    await requests.run_all()
    assert [name for name, _ in requests.refused] == ["M0", "N0", "B1"]
    assert [name for name in requests.order if name.isupper()] == strangers[:12]
    assert requests.queue.waiting == 0


@played
async def test_heavy_requests_are_bounded_at_once_and_light_ones_pass_them():
    requests = Requests(RequestQueue(8))
    await requests.send("a0", "a1", "b0", "b1", cost=HEAVY)
    assert len(requests.running) == HEAVY_AT_ONCE
    await requests.send("a2", "b2")
    assert {"a2", "b2"} <= requests.running
    await requests.run_all()
    assert len(requests.order) == 6


@played
async def test_beyond_the_bound_the_longest_line_gives_up_its_newest():
    requests = Requests(RequestQueue(1, most_waiting=3))
    await requests.send("a0", "a1", "a2", "a3", "a4")
    assert [name for name, _ in requests.refused] == ["a4"]
    await requests.send("b0")
    assert [name for name, _ in requests.refused] == ["a4", "a3"]
    error = requests.refused[0][1]
    assert isinstance(error, Overloaded)
    assert 1 <= error.details["retry_after"] <= 5
    await requests.run_all()
    assert set(requests.order) == {"a0", "a1", "a2", "b0"}
    assert requests.queue.dropped == {"full": 2}


@played
async def test_who_has_left_is_never_called():
    requests, leaves = Requests(RequestQueue(1)), asyncio.Event()
    await requests.send("a0")
    await requests.send("a1", "b0", leaves=leaves)
    leaves.set()
    await settle()
    assert [name for name, _ in requests.refused] == ["a1", "b0"]
    await requests.run_all()
    assert requests.order == ["a0"]
    assert requests.queue.dropped == {"left": 2}


@played
async def test_who_has_waited_too_long_is_sent_away_and_never_called():
    requests = Requests(RequestQueue(1, wait_seconds=0.01))
    await requests.send("a0", "b0")
    await requests.sent_away.wait()
    await requests.run_all()
    assert requests.order == ["a0"]
    assert requests.queue.dropped == {"late": 1}


@played
async def test_a_wait_that_is_cancelled_gives_its_place_back():
    queue = RequestQueue(1)
    over = await queue.turn("a", 1.0, asyncio.Event().wait)
    waiting = asyncio.create_task(queue.turn("b", 1.0, asyncio.Event().wait))
    await settle()
    over()  # calls b
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    await asyncio.wait_for(queue.turn("c", 1.0, asyncio.Event().wait), 5)
