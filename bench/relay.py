"""How soon browsers see a commit, with clients that each watch a job, operators' sockets, and a steady stream."""

from __future__ import annotations

import asyncio
import json
import sys
import time
from contextlib import suppress
from dataclasses import dataclass
from subprocess import PIPE
from typing import Any

import aiohttp
from django.contrib.auth.models import User
from django.test import Client

from bench.harness.processes import cpu_seconds, memory_mb, web
from bench.harness.report import ROOT, commit_milliseconds, percentile
from bench.harness.seeding import PROJECT, issue_key, one_project
from bench.harness.session import Session, run
from jobs.models import Job
from jobs.services.submit.submit import submit_batch

CLIENTS = 290
OPERATORS = 10
EVENTS_PER_SECOND = 2_000
SECONDS = 20
FULL_SECONDS = 300
WARM_UP_SECONDS = 5
LAST_SECONDS = 2  # for events that are still on their way when the stream ends
OPEN_SECONDS = 60
ACK_SECONDS = 1.0
ACK_MESSAGES = 100


class Browser:
    """Reads its socket, acknowledges messages as clients do, and notes the age of each event that comes."""

    def __init__(self, url: str, origin: str, *, key: str = "", cookie: str = "") -> None:
        self.url = url
        self.headers = {"Origin": origin, **({"Cookie": cookie} if cookie else {})}
        self.key = key
        self.delays: list[tuple[float, float]] = []
        self.whole = 0
        self.opened = asyncio.Event()

    async def watch(self, session: aiohttp.ClientSession) -> None:
        async with session.ws_connect(self.url, headers=self.headers, max_msg_size=0) as socket:
            if self.key:
                await socket.send_str(json.dumps({"auth": {"key": self.key}}))
            unacknowledged, acknowledged_at = 0, time.monotonic()
            async for frame in socket:
                message: dict[str, Any] = json.loads(frame.data)
                self._take(message)
                unacknowledged += 1
                now = time.monotonic()
                if unacknowledged >= ACK_MESSAGES or now - acknowledged_at >= ACK_SECONDS:
                    await socket.send_str(
                        json.dumps({"ack": message["cursor"]} if "cursor" in message else {"pong": True})
                    )
                    unacknowledged, acknowledged_at = 0, now

    def _take(self, message: dict[str, Any]) -> None:
        if message["type"] == "event":
            # The event's time is taken before its commit, so the commit's duration is part of the delay.
            with suppress(ValueError):
                written_at = float(message["event"]["message"])
                self.delays.append((written_at, (time.time() - written_at) * 1000))
        elif message["type"] == "error":
            raise SystemExit(f"a socket was closed: {message}")
        else:
            self.whole += 1
            self.opened.set()


@dataclass(frozen=True, slots=True)
class WatchedStream:
    """
    The outcome of the stream, after the warm-up.

    Attributes:
        delays: Milliseconds of each event to the client that watches its job.
        feed: Milliseconds of each event in the sample that the operators' sockets get.
        missing: Events that no client received.
        grown_mb: By how much the web process's resident memory grew.
        cpu: The web process's share of a core.
        whole: How many snapshots and stats were sent.
    """

    delays: list[float]
    feed: list[float]
    missing: int
    grown_mb: float
    cpu: float
    whole: int


def measure(session: Session) -> None:
    report = session.report
    with session.databases.copy("project", one_project) as url:
        lines = [b'{"kind": "bench.noop", "payload": {"row": 1}}'] * CLIENTS
        submit_batch(lines, project_id=PROJECT, actor="bench")
        jobs = [str(pk) for pk in Job.objects.values_list("pk", flat=True)]
        key, cookie = issue_key(), _operator()
        commits = commit_milliseconds(url)
        with web(url) as (address, pid):
            browsers = _browsers(address, jobs, key=key)
            feeds = [Browser(f"{_sockets(address)}/ops", address, cookie=cookie) for _ in range(OPERATORS)]
            seconds = FULL_SECONDS if session.full else SECONDS
            watched = asyncio.run(_watch(browsers, feeds, pid, url=url, seconds=seconds))
    delays = watched.delays
    report.metric("p50_ms", percentile(delays, 0.5), "commit to client, p50", "target: at most 50 ms", unit="ms")
    report.metric("p99_ms", percentile(delays, 0.99), "commit to client, p99", "target: at most 250 ms", unit="ms")
    report.metric("rss_growth_mb", watched.grown_mb, "web process, growth", "resident; target: flat", unit="MiB")
    report.figure("events", f"{len(delays):,}", f"received by {CLIENTS} clients that watch a job each, 0 missed")
    sampled = f"the sample that {OPERATORS} operators' sockets get"
    report.figure("operators' feed, p99", f"{percentile(watched.feed, 0.99):.0f} ms", sampled)
    report.figure("whole states sent", f"{watched.whole:,}", "snapshots and stats")
    report.figure("web process, CPU", f"{watched.cpu:.0%}", f"of one core, at {EVENTS_PER_SECOND:,} events/s")
    report.figure("a durable commit, p50", f"{percentile(commits, 0.5):.2f} ms", "for reference")
    if watched.missing:
        raise SystemExit(f"{watched.missing:,} events did not come")


def _sockets(address: str) -> str:
    return address.replace("http", "ws") + "/ws/v1"


def _browsers(address: str, jobs: list[str], *, key: str) -> list[Browser]:
    return [Browser(f"{_sockets(address)}/jobs/{job}", address, key=key) for job in jobs]


async def _watch(browsers: list[Browser], feeds: list[Browser], pid: int, *, url: str, seconds: int) -> WatchedStream:
    everybody = [*browsers, *feeds]
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as http:
        tasks = [asyncio.create_task(browser.watch(http)) for browser in everybody]
        await asyncio.gather(*[asyncio.wait_for(browser.opened.wait(), OPEN_SECONDS) for browser in everybody])
        command = [sys.executable, "-m", "bench.harness.event_writer", url, str(EVENTS_PER_SECOND)]
        writer = await asyncio.create_subprocess_exec(*command, str(seconds + WARM_UP_SECONDS), cwd=ROOT, stdout=PIPE)
        await asyncio.sleep(WARM_UP_SECONDS)
        measured_from = time.time()
        resident, used = memory_mb(pid)[0], cpu_seconds(pid)
        printed, _ = await writer.communicate()
        cpu = (cpu_seconds(pid) - used) / (time.time() - measured_from)
        grown = memory_mb(pid)[0] - resident
        await asyncio.sleep(LAST_SECONDS)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    return WatchedStream(
        delays=[delay for browser in browsers for at, delay in browser.delays if at >= measured_from],
        feed=[delay for browser in feeds for at, delay in browser.delays if at >= measured_from],
        missing=int(printed) - sum(len(browser.delays) for browser in browsers),
        grown_mb=grown,
        cpu=cpu,
        whole=sum(browser.whole for browser in everybody),
    )


def _operator() -> str:
    """Return the cookie of somebody who may see everything."""
    client = Client()
    client.force_login(User.objects.create_superuser("bench", "", "a password for benchmarks"))
    return f"sessionid={client.session.session_key}"


if __name__ == "__main__":
    run("relay", measure)
