"""
The cost of webhooks that get messages about ended jobs, for projects without such webhooks and with some.

Drains take turns: without a webhook, with another project's, and with one for every job. The log's reader is
measured for each part of the log, and messages are counted for many ended jobs.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from functools import partial

from django.db import connection, transaction

from bench.harness.processes import cluster, cpu_seconds, wait_until_finished
from bench.harness.seeding import PROJECT, one_batch
from bench.harness.session import Session, run
from jobs.features.webhooks.tell import WebhooksDuty, note_ended_jobs
from jobs.models import JobEvent, Webhook, WebhookDelivery, WebhookJob
from jobs.services.operate.pauses import pause_scope, resume_scope
from queueops.tenancy.models import Project

JOBS = 20_000
TOLD = 10_000
PROCESSES = 2
ROUNDS = 2
FULL_ROUNDS = 6
PROBES = 1000
HEARERS = (1, 10)
WAYS = {"no webhook": "", "another project's": "other", "one that hears of all": PROJECT}


def measure(session: Session) -> None:
    rates: dict[str, list[float]] = {way: [] for way in WAYS}
    costs: dict[str, list[float]] = {way: [] for way in WAYS}
    for _ in range(FULL_ROUNDS if session.full else ROUNDS):
        for way, project in WAYS.items():
            with session.databases.copy(f"batch_{JOBS}", partial(one_batch, JOBS)) as url:
                rate, cost = _drain(session, url, project)
                rates[way].append(rate)
                costs[way].append(cost)
                if project == PROJECT:
                    _read(session)
    for way in WAYS:
        spread = ", ".join(f"{rate:,.0f}" for rate in rates[way])
        session.report.figure(f"{way}, jobs/s", f"{statistics.median(rates[way]):,.0f}", f"rounds: {spread}")
        figure = f"{statistics.median(costs[way]) * 1e6 / JOBS:,.0f} us"
        session.report.figure(f"{way}, CPU a job in PostgreSQL", figure)


def _drain(session: Session, url: str, project: str) -> tuple[float, float]:
    if project:
        _hear(project)
    pause_scope("global", "", actor="bench")
    # No message is sent meanwhile: the messages' jobs would be drained, too.
    with cluster(url, executors=PROCESSES, environ={"QUEUEOPS_ALLOW_LOOPBACK_TARGETS": "1"}):
        postgres, begun = cpu_seconds(session.postmaster), time.monotonic()
        resume_scope("global", "", actor="bench")
        seconds = wait_until_finished(JOBS, seconds=300) - begun
        postgres = cpu_seconds(session.postmaster) - postgres
    return JOBS / seconds, postgres


def _read(session: Session) -> None:
    """Measure the time added to reading the whole log of a drain, and the messages for many ended jobs."""
    newest = JobEvent.objects.order_by("-id").values_list("id", flat=True)[0]
    session.report.figure("a part of the log, no webhook", f"{_probe(newest):.0f} us", "one look for one")
    for hearers in HEARERS:
        Webhook.objects.all().delete()
        for _ in range(hearers):
            _hear(PROJECT)
        seconds = _taken(lambda: note_ended_jobs(0, newest))
        name = f"noting {JOBS:,} ended jobs for {hearers}"
        session.report.figure(name, f"{seconds:.2f} s", f"{seconds * 1e6 / JOBS / hearers:.0f} us each")
    Webhook.objects.all().delete()
    _hear(PROJECT)
    with transaction.atomic():
        note_ended_jobs(0, newest)
    kept = list(WebhookJob.objects.order_by("id").values_list("pk", flat=True)[:TOLD])
    WebhookJob.objects.exclude(pk__in=kept).delete()
    begun = time.monotonic()
    while WebhookJob.objects.filter(delivery_id=None).exists():
        WebhooksDuty().do()
        WebhookDelivery.objects.update(is_open=False)  # as if each message had arrived at once
    seconds = time.monotonic() - begun
    session.report.figure(
        f"{TOLD:,} ended jobs leave in", f"{WebhookDelivery.objects.count()} messages", f"{seconds:.2f} s"
    )


def _hear(project: str) -> None:
    Project.objects.get_or_create(pk=project, defaults={"name": project})
    Webhook.objects.create(
        project_id=project, url="http://127.0.0.1:9/", secret=b"", hears_batches=False, hears_jobs=True,
        jobs_since="2020-01-01T00:00:00Z",
    )  # fmt: skip


def _probe(newest: int) -> float:
    Webhook.objects.all().delete()
    taken = []
    for _ in range(PROBES):
        begun = time.perf_counter()
        note_ended_jobs(0, newest)
        taken.append(time.perf_counter() - begun)
    return statistics.median(taken) * 1e6


def _taken(act: Callable[[], object]) -> float:
    with connection.cursor() as cursor:
        cursor.execute("TRUNCATE jobs_webhookjob")
    with transaction.atomic():
        begun = time.monotonic()
        act()
    return time.monotonic() - begun


if __name__ == "__main__":
    run("webhooks", measure)
