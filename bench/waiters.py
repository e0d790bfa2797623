"""How soon 10,000 simultaneous requests with `?wait=` get their answer after a job's end, and what they cost."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from uuid import UUID

import aiohttp
from asgiref.sync import sync_to_async

from bench.harness.processes import cpu_seconds, memory_mb, web
from bench.harness.report import percentile
from bench.harness.seeding import PROJECT, issue_key, one_project
from bench.harness.session import Session, run
from jobs.models import Job
from jobs.services.operate.job_actions import cancel_jobs
from jobs.services.submit.submit import submit_batch
from queueops.tenancy.models import ProducerKey, Project

WAITERS = 2_000
FULL_WAITERS = 10_000
OTHER = "other"
WAIT_SECONDS = 60
ENDS = 200  # ends of jobs that each have a waiter, one after the other
EVERY_SECONDS = 0.1
OPENING = 50  # requests a second while the waiters come
REQUESTS_PER_MINUTE = "1000000"  # all requests come from one machine


@dataclass(slots=True)
class Notices:
    """
    Attributes:
        at: When each waiter had its answer, by job or batch, in time.monotonic.
    """

    at: dict[str, list[float]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Delays:
    """The milliseconds from just before an end's commit to the answer, and what the waiters cost the web process."""

    single: list[float]
    many: list[float]
    grown_mb: float
    cpu: float
    opened_seconds: float


def measure(session: Session) -> None:
    report = session.report
    half = (FULL_WAITERS if session.full else WAITERS) // 2
    with session.databases.copy("project", one_project) as url:
        other = Project.objects.create(id=OTHER, name=OTHER)
        (_, jobs), (batch, [last]) = _submit(PROJECT, half), _submit(OTHER, 1)
        keys = {"jobs": issue_key(), "batches": ProducerKey.issue(other, name="bench")[1]}
        with web(url, environ={"QUEUEOPS_REQUESTS_PER_MINUTE": REQUESTS_PER_MINUTE}) as (address, pid):
            found = asyncio.run(_measured(address, pid, jobs=jobs, batch=batch, last=last, keys=keys))
    told = f"{half:,} wait for a job each, and {ENDS} of these end, one in {EVERY_SECONDS * 1000:.0f} ms"
    report.metric("p50_ms", percentile(found.single, 0.5), "end of a job to its waiter, p50", told, unit="ms")
    report.metric("p99_ms", percentile(found.single, 0.99), "the same, p99", "target: at most 250 ms", unit="ms")
    many = f"{half:,} wait for one batch"
    report.metric("batch_p99_ms", percentile(found.many, 0.99), "end of a batch to its waiters, p99", many, unit="ms")
    report.metric("rss_growth_mb", found.grown_mb, "web process, growth", f"for {2 * half:,} waiters", unit="MiB")
    report.figure("web process, CPU", f"{found.cpu:.0%}", f"of one core; each asks again after {WAIT_SECONDS} s")
    report.figure("asked", f"{2 * half / found.opened_seconds:,.0f} /s", "requests that began to wait")


def _submit(project: str, count: int) -> tuple[UUID, list[UUID]]:
    """Submit a batch; return it and its jobs."""
    lines = [b'{"kind": "bench.noop", "payload": {"row": 1}}'] * count
    batch = submit_batch(lines, project_id=project, actor="bench").id
    return batch, list(Job.objects.filter(batch_id=batch).values_list("pk", flat=True))


async def _measured(
    address: str, pid: int, *, jobs: Sequence[UUID], batch: UUID, last: UUID, keys: dict[str, str]
) -> Delays:
    told, before = Notices(), memory_mb(pid)[0]
    wanted = [("jobs", str(pk)) for pk in jobs] + [("batches", str(batch))] * len(jobs)
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as http:
        turns, began = asyncio.Semaphore(OPENING), time.monotonic()
        tasks = [
            asyncio.create_task(_wait(http, f"{address}/api/v1/{kind}/{pk}/", keys[kind], told=told, turns=turns))
            for kind, pk in wanted
        ]
        while await _held(http, address) < 0.98 * len(wanted):  # noqa: ASYNC110 (another process)
            await asyncio.sleep(5.0)  # reading the page of metrics costs more than a waiter
        opened = time.monotonic() - began
        grown, used, began = memory_mb(pid)[0] - before, cpu_seconds(pid), time.monotonic()
        single = []
        for pk in jobs[:ENDS]:
            single.append((str(pk), await _end(pk)))
            await asyncio.sleep(EVERY_SECONDS)
        cpu = (cpu_seconds(pid) - used) / (time.monotonic() - began)
        ended = await _end(last)
        await asyncio.gather(*tasks[len(jobs) :])
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    return Delays(
        single=[(told.at[pk][0] - at) * 1000 for pk, at in single],
        many=[(at - ended) * 1000 for at in told.at[str(batch)]],
        grown_mb=grown,
        cpu=cpu,
        opened_seconds=opened,
    )


async def _wait(http: aiohttp.ClientSession, url: str, key: str, *, told: Notices, turns: asyncio.Semaphore) -> None:
    """Wait as a client does: request the end, and repeat the request when its time is over."""
    async with turns:
        asking = asyncio.create_task(_ask(http, url, key))
        await asyncio.wait([asking], timeout=1.0)  # the request is held by now
    while not await asking:
        asking = asyncio.create_task(_ask(http, url, key))
    told.at.setdefault(url.split("/")[-2], []).append(time.monotonic())


async def _ask(http: aiohttp.ClientSession, url: str, key: str) -> bool:
    """Return whether the job or batch has ended."""
    headers = {"Authorization": f"Bearer {key}"}
    timeout = aiohttp.ClientTimeout(total=None)
    async with http.get(url, params={"wait": WAIT_SECONDS}, headers=headers, timeout=timeout) as answer:
        body = await answer.read()
        if answer.status == 503:  # noqa: PLR2004 (overloaded)
            await asyncio.sleep(float(answer.headers["retry-after"]))
            return False
        if answer.status != 200:  # noqa: PLR2004 (HTTP's OK)
            sys.exit(f"HTTP {answer.status}: {body[:300]!r}")
        return "retry-after" not in answer.headers


async def _held(http: aiohttp.ClientSession, address: str) -> float:
    async with http.get(f"{address}/metrics") as answer:
        lines = (await answer.text()).splitlines()
    return next(float(line.split()[1]) for line in lines if line.startswith("queueops_waiting_requests "))


@sync_to_async
def _end(pk: UUID) -> float:
    """End a job; return when that began."""
    began = time.monotonic()
    cancel_jobs([pk], actor="bench", reason="measured")
    return began


if __name__ == "__main__":
    run("waiters", measure)
