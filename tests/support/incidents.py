"""Incidents as somebody on call meets them, struck against a real provider, and who was told of them when."""

from __future__ import annotations

import json
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from jobs.models import Batch, Executor
from jobs.services.operate.pauses import pause_scope
from jobs.services.submit.submit import submit_batch
from queueops.tenancy.models import Project
from ratelimits.models import AlertRoute
from ratelimits.services.tuning.limits import create_limit
from tests.factories import make_route
from tests.support.sandbox import Sandbox

PROJECT = "acme"
WINDOW_SECONDS = 10
FORGOTTEN_AFTER_SECONDS = 6  # an hour elsewhere


@dataclass(frozen=True)
class Incident:
    """
    Attributes:
        strike: Makes it happen.
        alert: The one kind of alert that tells of it.
        headline, reason: What the first line, and the batch's page, say.
        rows: What the rows are called that its jobs write. `jobs`: how many.
    """

    strike: Callable[[Sandbox], object]
    alert: str
    headline: str
    reason: str
    rows: str = "row"
    jobs: int = 60

    def begin(self, sandbox: Sandbox, *, name: str) -> Batch:
        """Strike, and submit work that meets it."""
        self.strike(sandbox)
        specs = (
            {
                "kind": "http.request",
                "payload": {"method": "PUT", "url": sandbox.row_url(PROJECT, f"{self.rows}-{number}"), "json": number},
            }
            for number in range(self.jobs)
        )
        return Batch.objects.get(pk=submit_batch(specs, project_id=PROJECT, actor="key:test", name=name).id)


def outage(mode: str) -> Callable[[Sandbox], object]:
    return lambda sandbox: sandbox.turn(outage={"seconds": 3600, "mode": mode})


def stop_an_executor(sandbox: Sandbox) -> None:
    """Let the provider be slow, and an executor stand still amid its jobs, as on a host that swaps."""
    sandbox.turn(latency={"mode": "fixed", "milliseconds": 4000})
    pid = Executor.objects.filter(role=Executor.Role.GENERAL).order_by("pid")[0].pid
    threading.Timer(2.0, os.kill, [pid, signal.SIGSTOP]).start()


def refuse_half(sandbox: Sandbox) -> None:
    """Let the provider allow half of what the limit says."""
    sandbox.turn(quota={"calls": 20, "window_seconds": WINDOW_SECONDS})
    figures = {"capacity": 40, "window_seconds": WINDOW_SECONDS, "scope": "project", "service": "http:127.0.0.1"}
    create_limit({"name": "twice-too-high", **figures}, actor="user:1")


INCIDENTS = {
    "a service answers 503": Incident(outage("503"), "outage", "does not answer", "does not answer"),
    "a service breaks connections": Incident(outage("close"), "outage", "does not answer", "does not answer"),
    "many jobs fail of one cause": Incident(
        lambda sandbox: sandbox.turn(row_errors=[{"pattern": "gone*", "status": 404}]),
        "dead_letters",
        "dead letters",
        "http_404",
        rows="gone",
    ),
    "an executor is stuck": Incident(stop_an_executor, "stuck_executor", "did not answer", ""),
    "a provider allows less than the limit says": Incident(
        refuse_half, "exceeded", "twice-too-high", "twice-too-high", jobs=240
    ),
    "a pause is forgotten": Incident(
        lambda _: pause_scope("project", PROJECT, actor="key:test", reason="a release"),
        "forgotten",
        "Paused: project acme",
        "project acme is paused: a release",
    ),
}
SETTINGS = {
    "QUEUEOPS_ALERT_PAUSED_MINUTES": str(FORGOTTEN_AFTER_SECONDS / 60),
    "QUEUEOPS_ALLOW_LOOPBACK_TARGETS": "on",
}


def continue_all() -> None:
    """Let executors that were stopped go on, so that their cluster can end them."""
    for pid in Executor.objects.values_list("pid", flat=True):
        os.kill(pid, signal.SIGCONT)


@dataclass
class Pager:
    """What a receiver of alerts was sent, with the time of each message on time.monotonic's clock."""

    messages: list[tuple[float, Mapping[str, Any]]] = field(default_factory=list)

    def opened(self) -> list[tuple[float, str]]:
        """When each message of a new alert came, and its kind."""
        return [(at, str(one["data"]["kind"])) for at, one in self.messages if one["type"].endswith("opened")]


@contextmanager
def paged() -> Iterator[Pager]:
    """Send alerts of every severity to a receiver in this process."""
    pager = Pager()

    class Receiver(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            pager.messages.append((time.monotonic(), body))
            self.send_response(204)
            self.end_headers()

        def log_message(self, *given: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Receiver)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    Project.objects.get_or_create(pk=PROJECT, defaults={"name": "Acme"})
    make_route(target=f"http://127.0.0.1:{server.server_port}/", least_severity="notice")
    try:
        yield pager
    finally:
        AlertRoute.objects.all().delete()
        server.shutdown()
        server.server_close()
