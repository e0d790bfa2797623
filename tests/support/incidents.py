"""Incidents and a healthy day as somebody on call meets them, at a real provider, and who was told of what when."""

from __future__ import annotations

import json
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from uuid import UUID

from django.utils import timezone

from jobs.models import Batch, Executor
from jobs.services.explain.snapshots import batch_snapshot
from jobs.services.operate.pauses import pause_scope
from jobs.services.submit.submit import submit_batch
from queueops.tenancy.models import Credential, Project
from queueops.tenancy.secrets.credentials import seal
from ratelimits.alerts.alerts import acknowledge_alerts
from ratelimits.models import AlertRoute, QuotaAlert
from ratelimits.tuning.limits import create_limit
from tests.factories import make_route
from tests.support.sandbox import Sandbox
from tests.support.saturation import Account, Quota, cell_write, open_accounts, set_limits, set_quota

PROJECT = "acme"
WINDOW_SECONDS = 10
FORGOTTEN_AFTER_SECONDS = 6  # an hour elsewhere


@dataclass(frozen=True)
class Incident:
    """
    Attributes:
        strike: Makes it happen.
        alert: The one kind of alert that tells of it; empty: nothing is to be told.
        headline, reason: What the first line, and the batch's page, say.
        rows: What the rows are called that its jobs write. `jobs`: how many.
        spec: Makes a job by its number, where it is another than such a write.
        options: Of the batch.
    """

    strike: Callable[[Sandbox], object]
    alert: str
    headline: str
    reason: str
    rows: str = "row"
    jobs: int = 60
    spec: Callable[[int], dict[str, Any]] | None = None
    options: Mapping[str, Any] = field(default_factory=dict)

    def begin(self, sandbox: Sandbox, *, name: str) -> Batch:
        """Strike, and submit work that meets it."""
        self.strike(sandbox)

        def write(number: int) -> dict[str, Any]:
            url = sandbox.row_url(PROJECT, f"{self.rows}-{number}")
            return {"kind": "http.request", "payload": {"method": "PUT", "url": url, "json": number}}

        specs = map(self.spec or write, range(self.jobs))
        made = submit_batch(specs, project_id=PROJECT, actor="key:test", name=name, **self.options)
        return Batch.objects.get(pk=made.id)


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


def count_in_shadow(_: Sandbox) -> None:
    """Try a limit out that is far too low: it counts, and holds nothing."""
    figures = {"capacity": 5, "window_seconds": WINDOW_SECONDS, "scope": "project", "service": "http:127.0.0.1"}
    create_limit({"name": "tried-out", "shadow": True, **figures}, actor="user:1")


HALVED = Account(PROJECT, "u1")


def halve_quota(sandbox: Sandbox) -> None:
    """Let the provider allow a user half of what it did, and say so when it refuses."""
    allowed = Quota("aligned", WINDOW_SECONDS * 6)
    set_limits(allowed)
    set_quota(sandbox, replace(allowed, per_user=allowed.per_user // 2))
    open_accounts([HALVED], url=sandbox.url)


def cell(number: int) -> dict[str, Any]:
    return cell_write(HALVED, spreadsheet=f"halved-{number}")


def revoke_key(sandbox: Sandbox) -> None:
    """Let the provider take the only key no more."""
    key = Credential.objects.create(
        name="lone-key",
        service="openai",
        secret=seal({"api_key": f"project:{PROJECT}/user:robot"}),
        base_url=sandbox.url,
    )
    key.projects.add(Project.objects.get(pk=PROJECT))
    no_quota = {"requests_per_minute": None, "tokens_per_minute": None}
    sandbox.turn(error_rates={401: 1.0}, faulty_providers=["openai"], openai=no_quota)


def question(number: int) -> dict[str, Any]:
    asked = {"provider": "openai", "credential": "lone-key", "model": "small-1", "prompt": f"Question {number}"}
    return {"kind": "llm.generate", "payload": asked}


def end_of_process(number: int) -> dict[str, Any]:
    """The first ends the process that carries it out, whenever it is tried."""
    return {"kind": "faults.exit" if number == 0 else "faults.write", "payload": {}}


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
    "a limit that is tried out is over its cap": Incident(count_in_shadow, "", "", ""),
    "the provider halves a quota": Incident(
        halve_quota, "exceeded", "allows 30", "google-sheets refused", jobs=240, spec=cell
    ),
    "the only key is revoked": Incident(
        revoke_key, "credential_refused", "have stopped", "lone-key", jobs=200, spec=question
    ),
    "all payloads are wrong": Incident(
        lambda sandbox: sandbox.turn(row_errors=[{"pattern": "wrong*", "status": 400}]),
        "guard",
        "has stopped itself",
        "of its first",
        rows="wrong",
        jobs=2_000,
        options={"guard_percent": 20},
    ),
}
# Only where the handlers of tests.faults.app are: the benchmark's cluster has none that dies.
OF_FAULTS = {
    "a job kills its worker": Incident(lambda _: None, "worker_died", "worker", "", spec=end_of_process),
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
    Project.objects.get_or_create(pk=PROJECT, defaults={"name": "Acme", "guard_percent": 0})
    make_route(target=f"http://127.0.0.1:{server.server_port}/", least_severity="notice")
    try:
        yield pager
    finally:
        AlertRoute.objects.all().delete()
        server.shutdown()
        server.server_close()


# Causes of one night, one after the other: who meets it, what its rows are called, and what the provider answers.
NIGHT = (
    ("acme", "gone", 404),
    ("globex", "gone", 404),  # the same, elsewhere
    ("acme", "closed", 403),
    ("initech", "wrong", 400),
)
NIGHT_JOBS = 40  # of each cause: the burst is on while the next begins
ACKNOWLEDGED_AFTER_SECONDS = 60.0  # at the latest the message is there


def live_through_night(sandbox: Sandbox, pager: Pager) -> list[str]:
    """
    Let five causes strike, each after somebody has acknowledged what was told of those before it; the last is a pause
    that is forgotten. The first goes on all night.

    Returns:
        What each message of a new alert said.
    """
    sandbox.turn(row_errors=[{"pattern": f"{rows}*", "status": status} for _, rows, status in NIGHT])
    for project in {project for project, _, _ in NIGHT}:
        Project.objects.get_or_create(pk=project, defaults={"name": project})
    for number, (project, rows, _) in enumerate(NIGHT, start=1):
        _fail(sandbox, project, f"{rows}-{number}", NIGHT_JOBS)
        _acknowledge(pager, number)
        _fail(sandbox, "acme", f"gone-again-{number}", 5)
    pause_scope("project", "initech", actor="key:test", reason="a release")
    _fail(sandbox, "initech", "row", 3)
    _acknowledge(pager, len(NIGHT) + 1)
    time.sleep(EVERY_SECONDS)
    return [str(one["data"]["message"]) for _, one in pager.messages if one["type"].endswith("opened")]


def _fail(sandbox: Sandbox, project: str, rows: str, count: int) -> None:
    specs = (
        {
            "kind": "http.request",
            "payload": {"method": "PUT", "url": sandbox.row_url(project, f"{rows}-{number}"), "json": number},
        }
        for number in range(count)
    )
    submit_batch(specs, project_id=project, actor="key:test", name=rows)


def _acknowledge(pager: Pager, number: int) -> None:
    """Wait until so many messages of new alerts have come, and look after all that is open."""
    until = time.monotonic() + ACKNOWLEDGED_AFTER_SECONDS
    while len(pager.opened()) < number and time.monotonic() < until:
        time.sleep(0.2)
    acknowledge_alerts(list(QuotaAlert.objects.filter(resolved_at=None).values_list("pk", flat=True)), actor="user:1")


USERS = [Account(PROJECT, f"u{number}") for number in range(5)]  # who fill the project's quota together
HEALTHY_QUOTA = Quota("aligned", 60)
EVERY_SECONDS = 5.0
KNOWN_AFTER, UNTIL_BEFORE = timedelta(seconds=20), timedelta(seconds=30)  # forecasts that are judged


@dataclass(frozen=True, slots=True)
class Foretold:
    """At `at`, that a batch would end between two times."""

    batch: UUID
    at: datetime
    earliest: datetime
    latest: datetime

    def error(self, end: datetime) -> float:
        """How far the end was from what was told, as a share of the time that was left."""
        return max(self.earliest - end, end - self.latest, timedelta()) / (end - self.at)


def prepare_healthy_day(sandbox: Sandbox) -> None:
    """Set the quotas of Google Sheets, at the provider and as limits, and open the users' accounts."""
    set_quota(sandbox, HEALTHY_QUOTA)
    set_limits(HEALTHY_QUOTA)
    open_accounts(USERS, url=sandbox.url)


def live_through_healthy_day(calls: int) -> list[tuple[Foretold, float]]:
    """
    Submit a batch of so many calls for each user, and wait for their ends.

    Returns:
        What was foretold from KNOWN_AFTER on until UNTIL_BEFORE the end, and how wrong it was.
    """
    for user in USERS:
        lines = [cell_write(user, spreadsheet=f"{user.user}-{number}") for number in range(calls)]
        submit_batch(lines, project_id=user.project, actor="key:test", name=user.user)
    foretold = []
    while Batch.objects.filter(finished_at=None).exists():
        foretold += _forecasts()
        time.sleep(EVERY_SECONDS)
    ends = {batch.pk: batch.finished_at for batch in Batch.objects.all() if batch.finished_at}
    return [(one, one.error(ends[one.batch])) for one in foretold if ends[one.batch] - one.at > UNTIL_BEFORE]


def _forecasts() -> list[Foretold]:
    now, found = timezone.now(), []
    for batch in Batch.objects.filter(finished_at=None):
        told = batch_snapshot(batch)
        if told.eta and now - batch.created_at > KNOWN_AFTER:
            found.append(Foretold(batch.pk, now, told.eta_earliest or told.eta, told.eta))
    return found
