"""Whether the same work is as fast by OpenAI's door as by the native API, and what a large file costs in memory."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import httpx
import psutil
from openai import OpenAI

from bench.harness.processes import cluster, web
from bench.harness.seeding import PROJECT, issue_key, one_project
from bench.harness.session import Session, run
from jobs.door.routes import save_route
from jobs.models import Batch
from queueops.tenancy.models import Credential, Project
from queueops.tenancy.secrets.credentials import seal
from ratelimits.tuning.limits import create_limit
from tests.support.processes import wait_for
from tests.support.sandbox import Sandbox, running_sandbox

MODEL = "small-1"
CHAT: Any = "/v1/chat/completions"
BY_BATCH, FULL_BY_BATCH = 5_000, 50_000
LIVE, FULL_LIVE = 900, 3_000
WINDOW_SECONDS, REQUESTS = 10, 200
LARGE_MB = 200
LARGE_LINES = 2_000
SETTINGS = {
    "QUEUEOPS_ALLOW_LOOPBACK_TARGETS": "on",
    "QUEUEOPS_BATCH_COLLECT_SECONDS": "2",
    "QUEUEOPS_BATCH_POLL_SECONDS": "2",
}
Submit = Callable[[str, str, list[dict[str, Any]], str], None]


def measure(session: Session) -> None:
    _compare(session, "by batch", FULL_BY_BATCH if session.full else BY_BATCH, "24h", limited=False)
    _compare(session, "live, by a quota of requests", FULL_LIVE if session.full else LIVE, "10m", limited=True)
    _large_file(session)


def _compare(session: Session, what: str, count: int, window: str, *, limited: bool) -> None:
    """Measure the seconds from the request's first byte to the end of the last job, by both ways in turn."""
    taken: dict[str, list[float]] = {"native": [], "door": []}
    for _ in range(3 if session.full else 2):
        for name, submit in (("native", _native), ("door", _door)):
            taken[name].append(_once(session, submit, count, window, limited=limited))
    native, door = min(taken["native"]), min(taken["door"])
    for name, seconds in taken.items():
        runs = ", ".join(f"{one:.1f}" for one in seconds)
        session.report.figure(f"{what}, {name}", f"{min(seconds):.1f} s", f"{count:,} lines; each run: {runs}")
    key = f"{'live' if limited else 'batch'}_door_ratio"
    session.report.metric(key, door / native, f"{what}, door to native", "target: at most 1.1")


def _once(session: Session, submit: Submit, count: int, window: str, *, limited: bool) -> float:
    with ExitStack() as stack:
        provider = stack.enter_context(running_sandbox())
        url = stack.enter_context(session.databases.copy("door", one_project))
        _open(provider)
        if limited:
            provider.turn(openai={"window_seconds": WINDOW_SECONDS, "requests_per_minute": REQUESTS})
            figures = {"service": "openai", "scope": "project", "algorithm": "sliding_window", "unit": "requests"}
            bound = {"window_seconds": WINDOW_SECONDS, "capacity": REQUESTS}
            create_limit({**figures, **bound, "name": "openai-requests"}, actor="bench")
        key = issue_key()
        stack.enter_context(cluster(url, environ=SETTINGS))
        address, _ = stack.enter_context(web(url))
        bodies: list[dict[str, Any]] = [
            {"model": MODEL, "messages": [{"role": "user", "content": f"Row {number}"}]} for number in range(count)
        ]
        began = time.monotonic()
        submit(address, key, bodies, window)
        ended = Batch.objects.exclude(finished_at=None)
        wait_for(ended.exists, seconds=1_800, what="the end of the batch")
        return time.monotonic() - began


def _open(provider: Sandbox) -> None:
    secret = seal({"api_key": f"project:{PROJECT}/user:robot"})
    credential = Credential.objects.create(name="key", service="openai", secret=secret, base_url=provider.url)
    credential.projects.add(Project.objects.get(pk=PROJECT))
    save_route(None, {"pattern": "*", "provider": "openai", "credential": "key"}, project_id=PROJECT, actor="bench")


def _native(address: str, key: str, bodies: list[dict[str, Any]], window: str) -> None:
    way = "batch" if window == "24h" else "live"
    fixed = {"provider": "openai", "endpoint": CHAT, "credential": "key"}
    lines = (
        json.dumps({"kind": "llm.call", "via": way, "idempotency_key": str(number), "payload": {**fixed, "body": body}})
        for number, body in enumerate(bodies)
    )
    headers = {"Authorization": f"Bearer {key}", "Content-Type": "application/x-ndjson"}
    content = "\n".join(lines).encode()
    httpx.post(f"{address}/api/v1/batches/", content=content, headers=headers, timeout=600).raise_for_status()


def _door(address: str, key: str, bodies: list[dict[str, Any]], window: str) -> None:
    lines = (
        json.dumps({"custom_id": str(number), "method": "POST", "url": CHAT, "body": body})
        for number, body in enumerate(bodies)
    )
    with OpenAI(base_url=f"{address}/openai/v1", api_key=key, timeout=600) as client:
        file = client.files.create(file=("in.jsonl", "\n".join(lines).encode()), purpose="batch")
        made: Any = client.batches.create(
            input_file_id=file.id,
            endpoint=CHAT,
            completion_window=window,  # type: ignore[arg-type]
        )
        if made.status == "failed":
            raise SystemExit(made.errors)


def _large_file(session: Session) -> None:
    """Send a file of LARGE_MB, and report by how much the web process's memory grew at most."""
    with (
        TemporaryDirectory() as folder,
        running_sandbox() as provider,
        session.databases.copy("door", one_project) as url,
        web(url) as (address, pid),
    ):
        _open(provider)
        path = Path(folder) / "large.jsonl"
        with path.open("w") as file:
            for number in range(LARGE_LINES):
                text = "x" * (LARGE_MB * 1_000_000 // LARGE_LINES - 300)
                body = {"model": MODEL, "messages": [{"role": "user", "content": text}]}
                file.write(json.dumps({"custom_id": str(number), "method": "POST", "url": CHAT, "body": body}) + "\n")
        process = psutil.Process(pid)
        before = process.memory_info().rss
        with (
            OpenAI(base_url=f"{address}/openai/v1", api_key=issue_key(), timeout=600) as client,
            _peak(process) as peak,
        ):
            began = time.monotonic()
            with path.open("rb") as file:
                name = client.files.create(file=file, purpose="batch").id
            stored = time.monotonic()
            made = client.batches.create(input_file_id=name, endpoint=CHAT, completion_window="24h")
            submitted = time.monotonic()
            with client.files.with_streaming_response.content(name) as answer:
                size = sum(len(piece) for piece in answer.iter_bytes())
            read = time.monotonic()
    if made.status != "in_progress" or size < 0.95 * LARGE_MB * 1_000_000:
        raise SystemExit(f"{made.status}, {size:,} bytes")
    report = session.report
    report.metric("large_file_memory_mb", (peak[0] - before) / 1e6, f"a file of {size / 1e6:.0f} MB, memory", unit="MB")
    seconds = f"{stored - began:.1f} s, {submitted - stored:.1f} s, {read - submitted:.1f} s"
    report.figure("stored, made a batch, read again", seconds)


@contextmanager
def _peak(process: psutil.Process) -> Iterator[list[int]]:
    """Record the most memory of a process, in bytes, sampled 50 times a second."""
    found, over = [process.memory_info().rss], threading.Event()

    def look() -> None:
        while not over.wait(0.02):
            found[0] = max(found[0], process.memory_info().rss)

    thread = threading.Thread(target=look)
    thread.start()
    try:
        yield found
    finally:
        over.set()
        thread.join()


if __name__ == "__main__":
    run("door", measure)
