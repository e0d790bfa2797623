"""
A rehearsal carries out the jobs of a file against the sandbox, under given limits.

It runs in one transaction that is rolled back: no worker sees its rows, and no row is left.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
import urllib.request
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import islice
from typing import Any
from urllib.parse import urlsplit

from django.conf import settings
from django.core import serializers
from django.db import transaction

from jobs.features.forecast.submission import SubmissionForecast, forecast_submission
from jobs.models import DeadLetter, Executor, Job, JobEvent
from jobs.services.submit.submit import submit_batch
from jobs.states import JobState
from jobs.testing import StillUnfinished, drain
from queueops.core.errors import QueueOpsError
from queueops.tenancy.models import Credential, Project
from queueops.tenancy.secrets.credentials import seal
from ratelimits.limits import catalogue
from ratelimits.models import Limit, LimitOverride

ACTOR = "system:rehearse"
PROJECT = "rehearsal"
SHIPPED = ("http.request", "llm.", "google_sheets.")  # kinds that call the sandbox if their address says so


class CannotRehearse(QueueOpsError):
    """This cannot be rehearsed here."""

    code = "cannot_rehearse"
    status = 409


@dataclass(frozen=True, slots=True)
class Rehearsed:
    """
    Attributes:
        ended: How many jobs ended in each state.
        failures: Dead letters by error code.
        accepted, refused: Calls that the sandbox accepted, and that it refused because of its quotas.
        deferred: How often a job was put back because of each limit.
        forecast: The forecast of the whole file, under the same limits.
    """

    jobs: int
    seconds: float
    ended: Mapping[str, int]
    failures: Mapping[str, int]
    accepted: int
    refused: int
    deferred: Mapping[str, int]
    forecast: SubmissionForecast


def written_limits() -> str:
    """Return this installation's limits in the form that `rehearse` reads elsewhere, without counters and secrets."""
    rows = [*Limit.objects.order_by("pk"), *LimitOverride.objects.order_by("pk")]
    return str(serializers.serialize("json", rows, indent=1))


def rehearse(
    lines: Sequence[Mapping[str, Any]], *, limits: str | None, most: int, seconds: float, knobs: Mapping[str, Any]
) -> Rehearsed:
    """
    Args:
        lines: Jobs, in the form in which a batch is submitted.
        limits: The limits to use, as `written_limits` returns them; None: this installation's limits.
        most: How many of the jobs are carried out, from the first on.
        seconds: The longest time of the rehearsal, which includes waiting for limits.
        knobs: Settings of the sandbox, such as its quotas.

    Raises:
        CannotRehearse: The jobs cannot be rehearsed here; nothing was begun.
    """
    foreign = sorted({str(line.get("kind")) for line in lines if not str(line.get("kind")).startswith(SHIPPED)})
    if foreign:
        raise CannotRehearse(
            f"{', '.join(foreign)}: the sandbox stands for no service of theirs, which they would call."
        )
    if Job.objects.unfinished().exists():
        raise CannotRehearse("Jobs wait here, and would be carried out. Rehearse where there are none.")
    with sandbox() as address:
        _ask(address, "PATCH", "/_sandbox/knobs", knobs)
        try:
            with _rolled_back():
                if limits is not None:
                    _put_limits(limits)
                return _carry_out([_to_sandbox(one, address) for one in lines], address, most=most, seconds=seconds)
        finally:
            catalogue.forget()


@contextmanager
def _rolled_back() -> Iterator[None]:
    block: Any = transaction.Atomic(using=None, savepoint=True, durable=False)
    block._from_testcase = True  # noqa: SLF001 - otherwise services' durable blocks would raise an error in this one
    with block:
        try:
            yield
        finally:
            transaction.set_rollback(True)


@contextmanager
def sandbox() -> Iterator[str]:
    """Start a sandbox for this rehearsal at a free port; yields its address."""
    with subprocess.Popen([sys.executable, "-m", "sandbox", "--port", "0"], stdout=subprocess.PIPE, text=True) as run:
        try:
            said = run.stdout.readline() if run.stdout else ""
            if "listening on" not in said:
                raise CannotRehearse("The sandbox does not start; it is part of a checkout, not of an image.")
            yield said.rpartition(" ")[2].strip()
        finally:
            run.terminate()


def _put_limits(limits: str) -> None:
    LimitOverride.objects.all().delete()
    Limit.objects.all().delete()
    for row in serializers.deserialize("json", limits):
        row.save()
    catalogue.forget()


def _carry_out(lines: Sequence[Mapping[str, Any]], address: str, *, most: int, seconds: float) -> Rehearsed:
    project = Project.objects.get_or_create(pk=PROJECT)[0]
    for name, service in _credentials(lines):
        _put_credential(project, name, service, address)
    forecast = _foresee(lines)
    begun = time.monotonic()
    chosen = [dict(line) for line in islice(lines, most)]
    submit_batch(chosen, project_id=PROJECT, actor=ACTOR, name="rehearsal", partial=True)
    with suppress(StillUnfinished):  # `ended` shows what is unfinished
        drain(seconds=seconds)
    counters = _ask(address, "GET", "/_sandbox/ledger?limit=1")["counters"]
    events = JobEvent.objects.filter(project_id=PROJECT, event_type="scheduling", data__has_key="binding_limit")
    states = Job.objects.filter(project_id=PROJECT).values_list("status", flat=True)
    return Rehearsed(
        jobs=len(chosen),
        seconds=time.monotonic() - begun,
        ended=Counter(str(JobState(state).label).lower() for state in states),
        failures=Counter(DeadLetter.objects.filter(project_id=PROJECT).values_list("error_code", flat=True)),
        accepted=counters["accepted"],
        refused=counters["rejected"],
        deferred=Counter(events.values_list("data__binding_limit", flat=True)),
        forecast=forecast,
    )


def _foresee(lines: Iterable[Mapping[str, Any]]) -> SubmissionForecast:
    """Forecast the whole file, with as many slots as this installation's workers have, whether they run or not."""
    slots = settings.QUEUEOPS.workers * settings.QUEUEOPS.executor_slots
    own = {"host": PROJECT, "pid": 0, "process_started_at": 0.0, "cluster_pid": 0}
    worker = Executor.objects.create(slots=slots, **own)
    try:
        return forecast_submission([dict(line) for line in lines], project_id=PROJECT)
    finally:
        worker.delete()


def _credentials(lines: Iterable[Mapping[str, Any]]) -> set[tuple[str, str]]:
    found = set()
    for line in lines:
        payload = line.get("payload") or {}
        if name := payload.get("credential"):
            sheets = str(line["kind"]).startswith("google_sheets.")
            service = "google-sheets" if sheets else payload.get("service") or payload.get("provider") or ""
            found.add((str(name), str(service)))
    return found


def _put_credential(project: Project, name: str, service: str, address: str) -> None:
    key = f"project:{PROJECT}/user:robot"
    secret = {"access_token": key} if service == "google-sheets" else {"api_key": key}
    figures = {"service": service, "secret": seal(secret), "quota_project": PROJECT, "quota_user": "robot"}
    credential = Credential.objects.update_or_create(name=name, defaults={**figures, "base_url": address})[0]
    credential.projects.set([project])


def _to_sandbox(line: Mapping[str, Any], address: str) -> dict[str, Any]:
    """Return the job; if it is an http.request, with the sandbox's address in its URL."""
    payload = dict(line.get("payload") or {})
    if line["kind"] == "http.request":
        path = urlsplit(str(payload.get("url", ""))).path.strip("/") or "root"
        payload["url"] = f"{address}/plain/status/200?{path}"
    kept = {name: value for name, value in line.items() if name not in ("idempotency_key", "after", "unique_key")}
    return {**kept, "payload": payload}


def _ask(address: str, method: str, path: str, body: Any = None) -> dict[str, Any]:
    content = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(address + path, content, method=method)  # noqa: S310 - our own address
    with urllib.request.urlopen(request, timeout=30) as answer:  # noqa: S310
        found: dict[str, Any] = json.load(answer)
        return found
