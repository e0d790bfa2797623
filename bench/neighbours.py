"""The effect of one project's readers of large pages on another project's small reads in the same web process."""

from __future__ import annotations

import asyncio
import time
from http import HTTPStatus

import aiohttp

from bench.harness.processes import web
from bench.harness.report import percentile
from bench.harness.seeding import PROJECT, issue_key, noop_lines, one_project
from bench.harness.session import Session, run
from jobs.services.submit.submit import submit_batch
from queueops.tenancy.models import ProducerKey, Project

JOBS = 5_000
READERS = 20
READS = 40
FULL_READS = 200
WARM_UP_SECONDS = 3.0
QUIET = "quiet"


def measure(session: Session) -> None:
    report = session.report
    reads = FULL_READS if session.full else READS
    with session.databases.copy("neighbours", _seed) as url:
        loud = issue_key()
        quiet = ProducerKey.issue(Project.objects.get(pk=QUIET), name="benchmark")[1]
        with web(url) as (address, _):
            alone, _ = asyncio.run(_small_reads(address, quiet, loud, reads=reads, readers=0))
            beside, pages = asyncio.run(_small_reads(address, quiet, loud, reads=reads, readers=READERS))
    note = f"{READERS} readers of page_size=500 of another project"
    report.metric("small_read_p50_ms", percentile(beside, 0.5) * 1000, "small reads, p50", note, unit="ms")
    report.metric("small_read_p99_ms", percentile(beside, 0.99) * 1000, "small reads, p99", note, unit="ms")
    report.figure("small reads alone, p50", f"{percentile(alone, 0.5) * 1000:.1f} ms", "for reference")
    report.figure("large pages meanwhile", f"{pages:.1f} /s", "those that were answered")


def _seed() -> None:
    one_project()
    submit_batch(noop_lines(JOBS), project_id=PROJECT, actor="bench")
    Project.objects.get_or_create(pk=QUIET, defaults={"name": "The quiet one"})
    submit_batch(noop_lines(10), project_id=QUIET, actor="bench")


async def _small_reads(address: str, quiet: str, loud: str, *, reads: int, readers: int) -> tuple[list[float], float]:
    """Return the seconds of each small read, made one after the other, and the large pages a second meanwhile."""
    pages = 0
    over = asyncio.Event()

    async def page_through(session: aiohttp.ClientSession) -> None:
        nonlocal pages
        while not over.is_set():
            pages += await _read(session, f"{address}/api/v1/jobs/?page_size=500", loud) == HTTPStatus.OK

    connector = aiohttp.TCPConnector(limit=0)
    async with aiohttp.ClientSession(connector=connector) as session, asyncio.TaskGroup() as group:
        for _ in range(readers):
            group.create_task(page_through(session))
        await asyncio.sleep(WARM_UP_SECONDS if readers else 0)
        pages, begun, taken = 0, time.monotonic(), []
        for _ in range(reads):
            started = time.monotonic()
            if await _read(session, f"{address}/api/v1/jobs/?page_size=10", quiet) != HTTPStatus.OK:
                raise SystemExit("a small read was refused")
            taken.append(time.monotonic() - started)
        seconds = time.monotonic() - begun
        over.set()
    return taken, pages / seconds


async def _read(session: aiohttp.ClientSession, url: str, key: str) -> int:
    async with session.get(url, headers={"Authorization": f"Bearer {key}"}) as response:
        await response.read()
        return response.status


if __name__ == "__main__":
    run("neighbours", measure)
