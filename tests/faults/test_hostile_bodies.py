"""R14: bodies that are made to cost much, beside somebody who asks as always."""

from __future__ import annotations

import asyncio
import gzip
import json
from collections import Counter
from http import HTTPStatus
from typing import Any

import aiohttp
import pytest

from queueops.core.values.numbers import MEGABYTE
from queueops.tenancy.models import ProducerKey
from tests.dashboards.live.conftest import web_process
from tests.factories import make_project
from tests.faults.asking import JOB, Asked
from tests.support.issuers import make_issuer, shared_token

pytestmark = [pytest.mark.usefixtures("transactional_db"), pytest.mark.proves("R14")]

ATTACKERS = 12  # more than places
REQUESTS = 100
BLANK = 200 * MEGABYTE


def test_blank_lines_by_two_keys_and_made_up_tokens_keep_nobody_else_from_a_place(figures: Any):
    attacked = make_project("attacker")
    keys = [ProducerKey.issue(attacked, name=name)[1] for name in ("a", "b")]
    make_issuer(project="attacker")
    other = ProducerKey.issue(make_project("other"), name="producer")[1]
    body = gzip.compress(b"\n" * BLANK)
    attacks: Counter[int | str] = Counter()

    async def attack(http: aiohttp.ClientSession, address: str, number: int) -> None:
        while True:
            attacks["begun"] += 1
            key = [*keys, shared_token(f"user-{attacks['begun']}"), f"qo_made_up_{attacks['begun']}"][number % 4]
            headers = {"Authorization": f"Bearer {key}", "Content-Encoding": "gzip"}
            headers["Content-Type"] = "application/x-ndjson"
            async with http.post(f"{address}/api/v1/batches/", data=body, headers=headers) as answer:
                await answer.read()
            attacks[answer.status] += 1

    async def beside(address: str) -> Asked:
        asked = Asked()
        async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as http:
            tasks = [asyncio.ensure_future(attack(http, address, number)) for number in range(ATTACKERS)]
            while attacks["begun"] < 2 * ATTACKERS:
                await asyncio.wait(tasks, timeout=0.1)
            for _ in range(REQUESTS):
                await asked.ask(http, address, other)
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        return asked

    with web_process(QUEUEOPS_REQUESTS_PER_MINUTE="1000000") as (address, process):
        asked = asyncio.run(beside(address))
        assert process.runs, process.output
    figures(f"{dict(asked.statuses)}, p99 {asked.most_seconds * 1000:.0f} ms, beside {dict(attacks)}")
    assert asked.statuses == {HTTPStatus.CREATED: REQUESTS}


def test_large_bodies_of_strangers_and_of_one_project_leave_room_to_others(figures: Any):
    hoarder = [ProducerKey.issue(make_project("hoarder"), name=name)[1] for name in "ab"]
    other = ProducerKey.issue(make_project("other"), name="producer")[1]
    lines = json.dumps(JOB).encode() + b"\n" * (20 * MEGABYTE)

    async def begin(address: str, key: str, length: int) -> tuple[asyncio.StreamWriter, asyncio.Task[bytes]]:
        """Announce a body, and send none of it; the answer's first line, if it has one."""
        reader, writer = await asyncio.open_connection("127.0.0.1", int(address.rpartition(":")[2]))
        head = (
            "POST /api/v1/batches/ HTTP/1.1",
            "Host: 127.0.0.1",
            f"Authorization: Bearer {key}",
            f"Content-Length: {length}",
        )
        writer.write("\r\n".join([*head, "", ""]).encode())
        return writer, asyncio.ensure_future(reader.readline())

    async def beside(address: str) -> tuple[list[bytes], int]:
        keys = [*hoarder * 3, *(f"qo_made_up_{number}" for number in range(6))]
        held = [await begin(address, key, 150 * MEGABYTE) for key in keys]
        answers = await asyncio.gather(*[answer for number, (_, answer) in enumerate(held) if number])
        async with aiohttp.ClientSession() as http:
            headers = {"Authorization": f"Bearer {other}", "Content-Type": "application/x-ndjson"}
            async with http.post(f"{address}/api/v1/batches/", data=lines, headers=headers) as answer:
                await answer.read()
        assert not held[0][1].done()
        for writer, _ in held:
            writer.close()
        await asyncio.gather(held[0][1], return_exceptions=True)
        return answers, answer.status

    with web_process() as (address, process):
        answers, status = asyncio.run(beside(address))
        assert process.runs, process.output
    told = Counter(int(line.split()[1]) for line in answers)
    figures(f"of 12 bodies of 150 MB one may come, the others {dict(told)}; somebody else's 20 MB: {status}")
    assert told == {503: 5, 401: 6}
    assert status == HTTPStatus.CREATED
