"""R19: hours of a load that is well below what the machine bears, with pruning: nothing grows."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any

import psutil
import pytest
from django.db import connection, connections
from django.db.models.functions import Now

from jobs.models import Job
from jobs.services.upkeep.retention import apply_retention
from jobs.states import TERMINAL
from tests.faults.clusters import cluster
from tests.faults.ledger import Ledger
from tests.faults.records import submit_work
from tests.support.processes import wait_for

pytestmark = [pytest.mark.usefixtures("transactional_db"), pytest.mark.proves("R19")]

# The indexes have the size that they keep after some four minutes: a shorter run would take that for growth.
MINUTES = float(os.environ.get("SOAK_MINUTES", "12"))
SIZES = """
SELECT pg_stat_get_dead_tuples('jobs_job'::regclass), pg_indexes_size('jobs_job'),
       (SELECT count(*) FROM pg_stat_activity
         WHERE datname = current_database() AND backend_type = 'client backend'),
       (SELECT count(*) FROM jobs_job)
"""
DAY = 86_400
MIN_LOOKS = 8  # of which some are of the second half, also where a machine stood still for all of the time


@dataclass(frozen=True, slots=True)
class Form:
    """`kept_seconds`: for how long a finished job is kept; `spare_seconds`: until it is finished, and then deleted."""

    seconds: float
    kept_seconds: float
    jobs_a_second: int
    spare_seconds: float


@dataclass(frozen=True, slots=True)
class Sizes:
    """Of one moment; bytes where it is a size. `overdue`: jobs that the pruning just before was to delete."""

    dead_rows: int
    indexes: int
    connections: int
    jobs: int
    overdue: int
    memory: int


@pytest.mark.parametrize(
    "form",
    [
        pytest.param(Form(seconds=3, kept_seconds=0.5, jobs_a_second=40, spare_seconds=2.5), id="short"),
        pytest.param(
            Form(MINUTES * 60, kept_seconds=20, jobs_a_second=60, spare_seconds=5), id="long", marks=pytest.mark.soak
        ),
    ],
)
def test_a_steady_load_with_pruning_makes_nothing_grow(form: Form, ledger: Ledger, settings: Any, figures: Any):
    days = form.kept_seconds / DAY
    settings.QUEUEOPS = replace(settings.QUEUEOPS, retention_days=days, batch_retention_days=days)
    with cluster(ledger, executors=2) as running:
        processes = [psutil.Process(executor.pid) for executor in running.executors()]
        with submitting(form.jobs_a_second):
            seen = list(watch(form, processes))
        assert {executor.pid for executor in running.executors()} == {process.pid for process in processes}
        unfinished = Job.objects.exclude(status__in=TERMINAL)
        wait_for(lambda: not unfinished.exists(), what="the end of every job")
    first, last = seen[len(seen) // 4 : len(seen) // 2 + 1], seen[len(seen) // 2 + 1 :]
    figures(
        f"{form.seconds:.0f} s, most in the second quarter and in the second half: "
        + ", ".join(f"{name} {most(name, first):,} and {most(name, last):,}" for name in Sizes.__slots__)
    )
    assert most("overdue", seen) == 0, "pruning does not keep up"
    assert most("connections", last) <= most("connections", first) + 2
    if form.seconds > 60:
        assert most("jobs", last) <= form.jobs_a_second * (form.kept_seconds + form.spare_seconds)
        for name in ("dead_rows", "indexes", "memory"):
            assert most(name, last) <= 1.25 * most(name, first), f"{name} grows"


def watch(form: Form, processes: list[psutil.Process]) -> Iterator[Sizes]:
    """Prune, and say how large everything is, ten times a second at first and every second in the long run."""
    kept, until, looks = timedelta(seconds=form.kept_seconds), time.monotonic() + form.seconds, 0
    while looks < MIN_LOOKS or time.monotonic() < until:
        looks += 1
        due = list(Job.objects.filter(finished_at__lt=Now() - kept).values_list("pk", flat=True))
        apply_retention(seconds=0.5, share=1.0)
        overdue = Job.objects.filter(pk__in=due).count()
        with connection.cursor() as cursor:
            cursor.execute(SIZES)
            dead, indexes, sessions, jobs = cursor.fetchone()
        yield Sizes(dead, indexes, sessions, jobs, overdue, sum(process.memory_info().rss for process in processes))
        time.sleep(min(1.0, form.seconds / 60))


@contextmanager
def submitting(jobs_a_second: int) -> Iterator[None]:
    over = threading.Event()

    def submit() -> None:
        while not over.wait(0.5):
            submit_work(jobs_a_second // 2, "write")
        connections.close_all()

    thread = threading.Thread(target=submit)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
    assert Job.objects.exists()


def most(name: str, seen: list[Sizes]) -> int:
    found: list[int] = [getattr(sizes, name) for sizes in seen]
    return max(found)
