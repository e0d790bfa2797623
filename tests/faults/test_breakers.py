"""Outage breakers at real executors and two real sandboxes: three projects, of which none can stop another."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial

import pytest

from jobs.features.outages.breaker import MIN_CALLS, SECONDING, THRESHOLD
from jobs.features.outages.outages import probe_now
from jobs.features.watches import watch
from jobs.models import DeadLetter, Job, JobEvent, RetryPolicy, ServiceBreaker
from jobs.services.submit.submit import submit_batch
from jobs.states import TERMINAL, JobState
from ratelimits.models import QuotaAlert
from tests.factories import make_project
from tests.faults.clusters import cluster
from tests.faults.ledger import Ledger
from tests.support.processes import free_port, wait_for
from tests.support.sandbox import Sandbox, running_sandbox

PROJECTS = ("ada", "bob", "eve")
PROBE_SECONDS = 0.2
EACH = 8  # jobs of a project

pytestmark = pytest.mark.usefixtures("transactional_db")


@pytest.fixture
def hasty() -> RetryPolicy:
    return RetryPolicy.objects.create(
        name="hasty", initial_seconds=0.05, multiplier=1, max_delay_seconds=0.1, max_retries=3, jitter="none"
    )


@pytest.fixture
def sandboxes() -> Iterator[tuple[Sandbox, Sandbox]]:
    with ExitStack() as running:
        yield running.enter_context(running_sandbox()), running.enter_context(running_sandbox())


def put(project: str, urls: list[str], *, policy: str | None = None, timeout: float = 5.0) -> None:
    make_project(project)
    specs = [
        {
            "kind": "http.request",
            "retry_policy": policy,
            "payload": {"method": "PUT", "url": url, "json": 1, "timeout_seconds": timeout},
        }
        for url in urls
    ]
    submit_batch(specs, project_id=project, actor="key:test")


def rows(sandbox: Sandbox, project: str, name: str = "row", count: int = EACH) -> list[str]:
    return [sandbox.row_url(project, f"{name}-{number}") for number in range(count)]


def wait_until_ended(project: str, *, seconds: float = 90.0) -> None:
    unfinished = Job.objects.filter(project_id=project).exclude(status__in=TERMINAL)
    wait_for(lambda: not unfinished.exists(), seconds=seconds, what=f"the end of {project}'s jobs")


def parked(project: str) -> int:
    return JobEvent.objects.filter(project_id=project, to_status=JobState.RATE_LIMITED).count()


def test_whoever_always_fails_ends_in_the_dead_letters_and_holds_up_nobody(
    ledger: Ledger, sandboxes: tuple[Sandbox, Sandbox], hasty: RetryPolicy
):
    sandbox, _ = sandboxes
    sandbox.turn(row_errors=[{"pattern": "broken*", "status": 500}])
    dead = f"http://127.0.0.1:{free_port()}"
    sent = 0
    with cluster(ledger, faults_probe_seconds=PROBE_SECONDS):
        put("eve", rows(sandbox, "eve", "broken", 2 * THRESHOLD), policy=hasty.name)
        put("eve", [sandbox.row_url("eve", "broken")] * THRESHOLD, policy=hasty.name)
        put("eve", [f"{dead}/{number}" for number in range(MIN_CALLS)], policy=hasty.name)
        while Job.objects.filter(project_id="eve").exclude(status__in=TERMINAL).exists():
            for project in ("ada", "bob"):
                put(project, rows(sandbox, project, f"row-{sent}", 3))
                wait_until_ended(project)
            sent += 3
            assert sent < 3000, "eve's jobs never end"
    assert set(Job.objects.filter(project_id="eve").values_list("status", "retry_count")) == {("failed", 3)}
    assert DeadLetter.objects.count() == Job.objects.filter(project_id="eve").count()
    healthy = Job.objects.exclude(project_id="eve")
    assert set(healthy.values_list("status", "retry_count")) == {("completed", 0)}
    assert parked("ada") == parked("bob") == 0, "one project's failures held up another's work"


OUTAGES: dict[str, Callable[[Sandbox], object]] = {
    "answers 503": lambda sandbox: sandbox.turn(outage={"seconds": 3600, "mode": "503"}),
    "breaks connections": lambda sandbox: sandbox.turn(outage={"seconds": 3600, "mode": "close"}),
    "hangs": lambda sandbox: sandbox.turn(latency={"mode": "fixed", "milliseconds": 60_000}),
}


def has_opened(breakers: int) -> bool:
    return ServiceBreaker.objects.exclude(opened_at=None).count() == breakers


@pytest.mark.parametrize(
    "outage", ["answers 503", *(pytest.param(one, marks=pytest.mark.soak) for one in ("breaks connections", "hangs"))]
)
def test_an_outage_is_one_address_s_spends_no_attempts_beyond_its_probes_and_is_told_once(
    ledger: Ledger, sandboxes: tuple[Sandbox, Sandbox], outage
):
    healthy, silent = sandboxes
    OUTAGES[outage](silent)
    with cluster(ledger, faults_probe_seconds=PROBE_SECONDS):
        open_breakers = ServiceBreaker.objects.exclude(opened_at=None)
        for number, project in enumerate(PROJECTS, start=1):  # one by one, or each may see it for the first time
            put(project, rows(silent, project, count=THRESHOLD + 2), timeout=0.5)
            wait_for(partial(has_opened, number), seconds=60, what="the project's breaker")
        wait_for(lambda: min(open_breakers.values_list("probes", flat=True)) > 0, seconds=60, what="a probe of each")
        watch.watch_outages()
        for project in PROJECTS:
            put(project, rows(healthy, project))
        at_healthy = Job.objects.filter(target=healthy.url)
        wait_for(lambda: at_healthy.filter(status="completed").count() == EACH * len(PROJECTS), seconds=60)
        assert not JobEvent.objects.filter(job_id__in=at_healthy.values("pk"), to_status="rate_limited").exists()
        assert {one.target for one in open_breakers} == {silent.url}
        spent = sum(Job.objects.values_list("retry_count", flat=True))
        probes = sum(open_breakers.values_list("probes", flat=True))
        silent.turn(outage=None, latency=None)
        probe_now(list(open_breakers.values_list("pk", flat=True)), actor="user:test")
        for project in PROJECTS:
            wait_until_ended(project)
        assert set(Job.objects.values_list("status", flat=True)) == {"completed"}
        before = THRESHOLD + SECONDING * (len(PROJECTS) - 1)  # what it takes to see the outage
        assert spent <= before + probes
        wait_for(lambda: not ServiceBreaker.objects.exists(), seconds=60, what="the breakers' end")
    watch.watch_outages()
    told = QuotaAlert.objects.filter(kind="outage")
    assert [one.figures["projects"] for one in told] == [sorted(PROJECTS)]
    assert told.get().resolved_at is not None


def test_a_bad_path_of_a_project_holds_up_its_good_ones_for_one_probe(
    ledger: Ledger, sandboxes: tuple[Sandbox, Sandbox], hasty: RetryPolicy
):
    sandbox, _ = sandboxes
    sandbox.turn(row_errors=[{"pattern": "broken*", "status": 500}])
    with cluster(ledger, faults_probe_seconds=PROBE_SECONDS):
        put("eve", [sandbox.row_url("eve", "broken")] * 5 * THRESHOLD, policy=hasty.name)
        wait_for(lambda: ServiceBreaker.objects.exclude(opened_at=None).exists(), what="the breaker's opening")
        put("eve", rows(sandbox, "eve"))
        good = Job.objects.exclude(path=Job.objects.order_by("pk").values_list("path", flat=True)[0])
        wait_for(lambda: good.filter(status="completed").count() == EACH, seconds=60, what="the good path's jobs")
        assert Job.objects.filter(status="failed").count() < 5 * THRESHOLD, "they waited for the bad ones' end"
        wait_until_ended("eve")
    assert Job.objects.filter(status="failed", retry_count=3).count() == 5 * THRESHOLD
    assert sum(good.values_list("retry_count", flat=True)) == 0
