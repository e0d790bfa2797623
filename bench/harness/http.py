"""A producer over HTTP."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from http import HTTPStatus

import aiohttp


async def post_batch(address: str, key: str, body: bytes) -> float:
    """Submit one NDJSON batch; return the seconds until its answer."""
    headers = {"Authorization": f"Bearer {key}", "Content-Type": "application/x-ndjson"}
    async with aiohttp.ClientSession(headers=headers, timeout=aiohttp.ClientTimeout(total=120)) as session:
        begun = time.monotonic()
        async with session.post(f"{address}/api/v1/batches/", data=body) as response:
            await _expect_created(response)
        return time.monotonic() - begun


async def post_jobs(address: str, key: str, *, requests: int, concurrency: int) -> tuple[float, list[float]]:
    """Submit single jobs over kept connections; return the seconds of all requests together, and of each."""
    headers = {"Authorization": f"Bearer {key}", "Content-Type": "application/json"}
    taken: list[float] = []
    left = iter(range(requests))

    async def client(session: aiohttp.ClientSession) -> None:
        for number in left:
            body = b'{"kind": "bench.noop", "payload": {"row": %d, "text": "a value of ordinary length"}}' % number
            begun = time.monotonic()
            async with session.post(f"{address}/api/v1/jobs/", data=body) as response:
                await _expect_created(response)
            taken.append(time.monotonic() - begun)

    async with aiohttp.ClientSession(headers=headers) as session:
        begun = time.monotonic()
        async with asyncio.TaskGroup() as clients:
            for _ in range(concurrency):
                clients.create_task(client(session))
        return time.monotonic() - begun, taken


async def post_usage(address: str, key: str, bodies: Sequence[bytes], *, concurrency: int) -> float:
    """Report batches of usage events over kept connections; return the seconds of all together."""
    headers = {"Authorization": f"Bearer {key}", "Content-Type": "application/json"}
    left = iter(bodies)

    async def client(session: aiohttp.ClientSession) -> None:
        for body in left:
            async with session.post(f"{address}/api/v1/usage/ingest/", data=body) as response:
                await _expect(HTTPStatus.OK, response)

    async with aiohttp.ClientSession(headers=headers) as session:
        begun = time.monotonic()
        async with asyncio.TaskGroup() as clients:
            for _ in range(concurrency):
                clients.create_task(client(session))
        return time.monotonic() - begun


async def _expect_created(response: aiohttp.ClientResponse) -> None:
    await _expect(HTTPStatus.CREATED, response)


async def _expect(status: HTTPStatus, response: aiohttp.ClientResponse) -> None:
    text = await response.text()
    if response.status != status:
        raise SystemExit(f"the API answered {response.status}: {text[:500]}")
