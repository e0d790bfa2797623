"""R14: one project asks for far more than the web process can do, beside two that ask now and then."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any

import aiohttp
import psutil
import pytest

from queueops.tenancy.models import ProducerKey
from tests.dashboards.live.conftest import web_process
from tests.factories import make_project

pytestmark = [pytest.mark.usefixtures("transactional_db"), pytest.mark.proves("R14")]

JOB = {"kind": "http.request", "payload": {"method": "GET", "url": "http://127.0.0.1:9/"}}
AT_CAPACITY, OVERLOAD = 16, 300  # greedy clients at once: as many as are served, and more than may wait
GROWTH_BYTES = 50_000_000


@dataclass
class Asked:
    """What became of the requests of some clients; `unmarked`: refusals without a time to come back."""

    statuses: Counter[int] = field(default_factory=Counter)
    seconds: list[float] = field(default_factory=list)
    unmarked: int = 0

    async def ask(self, http: aiohttp.ClientSession, address: str, key: str) -> None:
        begun = time.monotonic()
        headers = {"Authorization": f"Bearer {key}"}
        async with http.post(f"{address}/api/v1/jobs/", json=JOB, headers=headers) as answer:
            await answer.read()
        self.seconds.append(time.monotonic() - begun)
        self.statuses[answer.status] += 1
        refused = answer.status in (HTTPStatus.TOO_MANY_REQUESTS, HTTPStatus.SERVICE_UNAVAILABLE)
        self.unmarked += refused and "Retry-After" not in answer.headers

    @property
    def most_seconds(self) -> float:
        """What all but one of a hundred requests took at most."""
        return sorted(self.seconds)[int(len(self.seconds) * 0.99) - 1]


async def load(address: str, keys: list[str], *, greedy: int, seconds: float) -> tuple[Asked, Asked]:
    """So many greedy clients of the first project and one polite client of each other; greedy's and the polites'."""
    flood, polite = Asked(), Asked()
    until = time.monotonic() + seconds
    connector = aiohttp.TCPConnector(limit=0)
    async with aiohttp.ClientSession(connector=connector) as http, asyncio.TaskGroup() as group:

        async def keep_asking(asked: Asked, key: str, pause: float) -> None:
            while time.monotonic() < until:
                await asked.ask(http, address, key)
                await asyncio.sleep(pause)

        for _ in range(greedy):
            group.create_task(keep_asking(flood, keys[0], 0.0))
        for key in keys[1:]:
            group.create_task(keep_asking(polite, key, 0.05))
    return flood, polite


@pytest.mark.parametrize(
    "seconds", [pytest.param(1.0, id="short"), pytest.param(30.0, id="long", marks=pytest.mark.soak)]
)
def test_a_greedy_project_is_refused_with_a_time_to_come_back_and_others_are_served(seconds: float, figures: Any):
    keys = [ProducerKey.issue(make_project(name), name="producer")[1] for name in ("greedy", "polite", "modest")]
    with web_process(QUEUEOPS_REQUESTS_PER_MINUTE="1000000") as (address, process):
        asyncio.run(load(address, keys, greedy=AT_CAPACITY, seconds=1))
        _, alone = asyncio.run(load(address, keys, greedy=0, seconds=seconds))
        peak, _ = asyncio.run(load(address, keys, greedy=AT_CAPACITY, seconds=seconds))
        resident = psutil.Process(process.pid).memory_info().rss
        flood, polite = asyncio.run(load(address, keys, greedy=OVERLOAD, seconds=seconds))
        grown = psutil.Process(process.pid).memory_info().rss - resident
        assert process.runs
    goodput = flood.statuses[HTTPStatus.CREATED] / peak.statuses[HTTPStatus.CREATED]
    figures(
        f"{OVERLOAD} greedy clients: {dict(flood.statuses)}, goodput {goodput:.0%} of that of {AT_CAPACITY}; "
        f"the polite p99 {alone.most_seconds * 1000:.0f} ms alone, {polite.most_seconds * 1000:.0f} ms beside; "
        f"resident memory {grown / 2**20:+.0f} MiB"
    )
    assert set(polite.statuses) == {HTTPStatus.CREATED}, "somebody polite was refused"
    assert flood.statuses[HTTPStatus.SERVICE_UNAVAILABLE], "it was no overload"
    assert set(flood.statuses) <= {HTTPStatus.CREATED, HTTPStatus.TOO_MANY_REQUESTS, HTTPStatus.SERVICE_UNAVAILABLE}
    assert flood.unmarked == 0
    assert grown < GROWTH_BYTES
