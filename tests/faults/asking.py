"""Clients that submit jobs over HTTP and count what becomes of it, without Django: for processes of their own."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from http import HTTPStatus

import aiohttp

JOB = {"kind": "http.request", "payload": {"method": "GET", "url": "http://127.0.0.1:9/"}}


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


def ask_for(seconds: float, address: str, keys: Sequence[str], *, pause: float) -> Asked:
    """One client for each key, which asks again so long after each answer."""
    return asyncio.run(_ask_for(seconds, address, keys, pause))


def ask_at(rate: float, seconds: float, address: str, key: str) -> Asked:
    """So many requests a second, whether or not those before were answered."""
    return asyncio.run(_ask_at(rate, seconds, address, key))


async def _ask_for(seconds: float, address: str, keys: Sequence[str], pause: float) -> Asked:
    asked, until = Asked(), time.monotonic() + seconds

    async def keep_asking(key: str) -> None:
        is_over = False  # at least once, also where the machine stood still for all of the time
        while not is_over:
            await asked.ask(http, address, key)
            await asyncio.sleep(pause)
            is_over = time.monotonic() >= until

    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as http, asyncio.TaskGroup() as group:
        for key in keys:
            group.create_task(keep_asking(key))
    return asked


async def _ask_at(rate: float, seconds: float, address: str, key: str) -> Asked:
    asked, begun = Asked(), time.monotonic()
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as http, asyncio.TaskGroup() as group:
        for number in range(int(rate * seconds)):
            await asyncio.sleep(max(0.0, begun + number / rate - time.monotonic()))
            group.create_task(asked.ask(http, address, key))
    return asked
