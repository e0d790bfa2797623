"""An outage that clients answer by asking again and again: what they left behind must not keep the web process busy."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http import HTTPStatus

import aiohttp
import pytest

from jobs.models import Job
from queueops.core.embedded.cluster import EmbeddedServer
from queueops.tenancy.models import ProducerKey
from tests.factories import make_project
from tests.faults.records import PROJECT
from tests.support.own_server import bring_back
from tests.support.processes import RunningProcess, free_port, manage, wait_for

pytestmark = pytest.mark.proves("P2", "R14")


@dataclass(slots=True)
class Storm:
    """
    A client that submits at a rate, leaves after a time-out and asks again after a pause.

    Attributes:
        accepted: When each acknowledgement came (monotonic).
        answers: How many of each status.
        left: Names of the jobs whose request the client gave up.
        was_sent_away: Whether the line before the threads had no room.
    """

    address: str
    key: str
    timeout_seconds: float
    retry_seconds: float = 0.5
    accepted: list[float] = field(default_factory=list)
    answers: dict[int, int] = field(default_factory=dict)
    left: list[str] = field(default_factory=list)
    was_sent_away: asyncio.Event = field(default_factory=asyncio.Event)

    async def submit(self, session: aiohttp.ClientSession, name: str, *, tries: int | None = None) -> None:
        number = 0
        while tries is None or number < tries:
            number += 1
            key = f"{name}-{number}"
            body = {"kind": "faults.write", "payload": {}, "idempotency_key": key}
            try:
                async with session.post(
                    f"{self.address}/api/v1/jobs/",
                    json=body,
                    headers={"Authorization": f"Bearer {self.key}"},
                    timeout=aiohttp.ClientTimeout(total=self.timeout_seconds),
                ) as answer:
                    if b'"overloaded"' in await answer.read():
                        self.was_sent_away.set()
            except TimeoutError:
                self.left.append(key)
            except aiohttp.ClientError:
                pass
            else:
                self.answers[answer.status] = self.answers.get(answer.status, 0) + 1
                if answer.status == HTTPStatus.CREATED:
                    self.accepted.append(time.monotonic())
                    return
            await asyncio.sleep(self.retry_seconds)


@contextmanager
def web(server: EmbeddedServer) -> Iterator[tuple[str, str, RunningProcess]]:
    _, key = ProducerKey.issue(make_project(PROJECT), name="producer")
    port = free_port()
    address = f"http://127.0.0.1:{port}"
    environ = {"QUEUEOPS_PORT": str(port), "QUEUEOPS_EXTRA_APPS": "tests.faults.app", "FAULTS_DIR": str(server.cluster)}
    with manage("web", environ=environ) as process:
        storm = Storm(address, key, timeout_seconds=5)
        wait_for(lambda: _asked(storm, ["first"], tries=1).accepted, seconds=60, what="the web process")
        yield address, key, process


def _asked(storm: Storm, names: list[str], *, tries: int | None) -> Storm:
    async def run() -> None:
        connector = aiohttp.TCPConnector(limit=0)
        async with aiohttp.ClientSession(connector=connector) as session:
            await asyncio.gather(*[storm.submit(session, name, tries=tries) for name in names])

    asyncio.run(run())
    return storm


async def _crowd_that_leaves(crowd: Storm) -> None:
    """More than may wait ask at once, and leave as soon as one of them was told so."""
    connector = aiohttp.TCPConnector(limit=0)
    async with aiohttp.ClientSession(connector=connector) as session:
        asking = [asyncio.create_task(crowd.submit(session, f"crowd{number}", tries=1)) for number in range(300)]
        async with asyncio.timeout(60):
            await crowd.was_sent_away.wait()
        async with session.get(f"{crowd.address}/healthz") as answer:
            assert answer.status == HTTPStatus.OK
        for one in asking:
            one.cancel()
        await asyncio.gather(*asking, return_exceptions=True)


def _get(address: str, path: str) -> int:
    async def run() -> int:
        async with (
            aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=60)) as session,
            session.get(f"{address}{path}") as answer,
        ):
            return answer.status

    return asyncio.run(run())


def test_what_clients_left_behind_in_an_outage_is_not_carried_out_after_it(server: EmbeddedServer):
    with web(server) as (address, key, process):
        server.stop("immediate")
        asyncio.run(_crowd_that_leaves(Storm(address, key, timeout_seconds=600)))
        assert _get(address, "/readyz") == HTTPStatus.SERVICE_UNAVAILABLE
        bring_back(server)
        assert _asked(Storm(address, key, timeout_seconds=60), ["later"], tries=None).accepted
        stored = set(Job.objects.filter(idempotency_key__startswith="crowd").values_list("idempotency_key", flat=True))
        assert len(stored) <= 10, "requests were carried out for clients that had left"
        assert "Traceback" not in process.output
        assert _get(address, "/readyz") == HTTPStatus.OK


@pytest.mark.soak
def test_a_retry_storm_ends_with_the_outage(server: EmbeddedServer, figures):
    """Ten submissions a second, clients that leave after 15 s and ask again after 0.5 s, 20 s without the database."""
    rate, before, away, after = 10, 10, 20, 60
    with web(server) as (address, key, _):
        storm = Storm(address, key, timeout_seconds=15)

        async def run() -> tuple[float, float]:
            begun = time.monotonic()
            connector = aiohttp.TCPConnector(limit=0)
            async with aiohttp.ClientSession(connector=connector) as session, asyncio.TaskGroup() as group:
                stopped = asyncio.create_task(_outage(server, before, away))
                for number in range(rate * (before + away + after)):
                    await asyncio.sleep(max(0.0, begun + number / rate - time.monotonic()))
                    group.create_task(storm.submit(session, f"storm{number}"))
                back = await stopped
            return begun, back

        begun, back = asyncio.run(run())
    steady = [moment for moment in storm.accepted if moment < begun + before]
    halves = [
        at for at in range(after) if sum(back + at <= one < back + at + 1 for one in storm.accepted) >= rate * 0.5
    ]
    figures(
        f"{len(steady) / before:.1f} accepted/s before; at half of that again {halves[0] if halves else '-'} s after "
        f"the database's return; answers {storm.answers}, {len(storm.left)} time-outs"
    )
    assert halves
    assert halves[0] <= 10
    assert len(storm.accepted) == rate * (before + away + after)


async def _outage(server: EmbeddedServer, before: float, away: float) -> float:
    await asyncio.sleep(before)
    await asyncio.to_thread(server.stop, "immediate")
    await asyncio.sleep(away)
    await asyncio.to_thread(server.ensure_running)
    return time.monotonic()
