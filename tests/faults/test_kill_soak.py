"""R1: executors are killed at random while they work; what was done is judged from a ledger and from the log."""

import random
import statistics
import time
from bisect import bisect
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

import pytest

from jobs.models import DeadLetter, Executor, Job
from jobs.states import JobState
from tests.faults.clusters import Cluster, cluster, kill
from tests.faults.ledger import Ledger
from tests.faults.records import Crash, crashes, database_time, submit, wait_until_drained

KINDS = {"write": 6, "write_in_thread": 2, "write_at_second_try": 1, "write_once": 1}
MAX_WORK_SECONDS = 0.3
CHUNK_SECONDS = 0.25
FELT = timedelta(seconds=8)  # after a kill: until what the killed one had is rescued, and a new executor works
MAX_LATENCY = timedelta(seconds=1)  # of a job that is under way when a kill comes
STATEMENT_SECONDS = 0.5  # what a sweep itself may take on a busy machine


@dataclass(frozen=True, slots=True)
class Form:
    """How many jobs and kills; times in seconds. At first, `calm_seconds` long, nobody is killed."""

    jobs: int
    kills: int
    pause: tuple[float, float]
    seconds: float
    calm_seconds: float
    lease: float
    renewal: float
    sweep: float


SHORT_PROFILE = {"lease": 6.0, "renewal": 2.0, "sweep": 1.0}
SHORTER_PROFILE = {"lease": 3.0, "renewal": 0.9, "sweep": 0.5}
FORMS = [
    pytest.param(Form(jobs=400, kills=2, pause=(0.4, 0.8), seconds=2, calm_seconds=1, **SHORTER_PROFILE), id="short"),
    pytest.param(
        Form(jobs=100_000, kills=90, pause=(10, 20), seconds=1_500, calm_seconds=120, **SHORT_PROFILE),
        id="long",
        marks=pytest.mark.soak,
    ),
]


@pytest.mark.proves("R1")
@pytest.mark.usefixtures("quick_retries")
@pytest.mark.parametrize("form", FORMS)
def test_killing_random_executors_loses_nothing_and_repeats_only_what_the_killed_ran(form, ledger: Ledger, figures):
    dice = random.Random(1)  # noqa: S311 - draws victims
    leases: dict[str, Any] = {"lease_seconds": form.lease, "renew_seconds": form.renewal, "sweep_seconds": form.sweep}
    with cluster(ledger, executors=4, **leases) as running:
        kills = _feed_and_kill(form, running, dice)
        wait_until_drained()
    assert Job.objects.count() >= form.jobs
    assert len(kills) >= form.kills

    charged = crashes()
    assert {crash.executor for crash in charged} <= kills.keys(), "a job was charged with a crash that was none"
    repeated = _check_effects(ledger, charged, killed_pids={pid for pid, _ in kills.values()})
    _check_dead_letters(charged)
    rescues = [crash.at - kills[crash.executor][1] for crash in charged]
    figures(
        f"{Job.objects.count():,} jobs, {len(kills)} kills, {len(charged)} jobs rescued, {repeated} effects repeated, "
        f"all by jobs of the killed; 0 lost; rescued after {_seconds(rescues)}"
    )
    if form.seconds > 60:  # in less a machine that stands still leaves no job apart from the kills, or none amid them
        calm, rough = _median_seconds_apart_from_kills([at for _, at in kills.values()])
        figures(f"median latency {calm * 1000:.0f} ms apart from the kills, {rough * 1000:.0f} ms of all")
        assert max(rescues) <= timedelta(seconds=form.lease + 2 * form.sweep + STATEMENT_SECONDS)
        assert rough <= 1.05 * calm


def _feed_and_kill(form: Form, running: Cluster, dice: random.Random) -> dict[UUID, tuple[int, datetime]]:
    """Submit at a steady rate and kill meanwhile; by executor killed: its pid, and when."""
    kills: dict[UUID, tuple[int, datetime]] = {}
    submitted = 0
    begun = time.monotonic()
    next_kill = begun + form.calm_seconds
    while submitted < form.jobs or len(kills) < form.kills:
        now = time.monotonic()
        due = min(form.jobs, int(form.jobs * (now - begun + CHUNK_SECONDS) / form.seconds))
        if due > submitted:
            submit(_mixed_work(due - submitted, dice))
            submitted = due
        if now >= next_kill and (victims := running.executors()):
            victim: Executor = dice.choice(victims)
            kill(victim)
            kills[victim.pk] = (victim.pid, database_time())
            next_kill = now + dice.uniform(*form.pause)
        time.sleep(CHUNK_SECONDS / 5)  # the pace of the load
    return kills


def _mixed_work(count: int, dice: random.Random) -> Iterator[dict[str, Any]]:
    kinds = dice.choices(list(KINDS), weights=list(KINDS.values()), k=count)
    for kind in kinds:
        yield {"kind": f"faults.{kind}", "payload": {"seconds": dice.uniform(0, MAX_WORK_SECONDS)}}


def _check_effects(ledger: Ledger, charged: list[Crash], killed_pids: set[int]) -> int:
    """Every completed job has its effect, and only what a killed process did was repeated; how many repetitions."""
    effects = ledger.by_job()
    crash_counts = Counter(crash.job for crash in charged)
    repeated = 0
    for job_id, kind, status in Job.objects.values_list("id", "kind", "status"):
        pids = [entry.pid for entry in effects.get(job_id, ())]
        found = len(pids)
        if status == JobState.COMPLETED:
            assert found >= 1, f"{kind} {job_id} is completed, and nobody did it"
        if kind == "faults.write_once":
            assert found <= 1, f"{kind} {job_id} was done {found} times"
        assert found <= 1 + crash_counts[job_id], f"{kind} {job_id} was done {found} times for no reason"
        assert set(pids[:-1]) <= killed_pids, f"{kind} {job_id} was repeated although its process lived"
        repeated += max(0, found - 1)
    return repeated


def _check_dead_letters(charged: list[Crash]) -> None:
    """Only what may not be repeated is given up, and what died three times."""
    charged_jobs = {crash.job for crash in charged}
    letters = list(DeadLetter.objects.values_list("job_id", "kind", "error_code", "crash_count"))
    assert len(letters) == Job.objects.filter(status=JobState.FAILED).count()
    for job_id, kind, code, crash_count in letters:
        assert job_id in charged_jobs
        assert (kind, code) == ("faults.write_once", "outcome_unknown") or (code, crash_count) == ("poison", 3)


def _median_seconds_apart_from_kills(kills: list[datetime]) -> tuple[float, float]:
    """
    From submission to the end: of the jobs submitted while nothing of a kill could be felt, and of all since the first.

    Both are spread over the whole run, or a machine that gets busier meanwhile would look like the doing of the kills.
    """
    done = Job.objects.filter(status=JobState.COMPLETED).values_list("created_at", "finished_at")
    waits = [(at, (finished - at).total_seconds()) for at, finished in done if finished]
    kills = sorted(kills)

    def is_calm(at: datetime) -> bool:
        before = bisect(kills, at)
        is_over = not before or at - kills[before - 1] > FELT
        return is_over and (before == len(kills) or kills[before] - at > MAX_LATENCY)

    calm = [wait for at, wait in waits if is_calm(at)]
    return statistics.median(calm), statistics.median(wait for at, wait in waits if at >= kills[0])


def _seconds(times: list[timedelta]) -> str:
    return f"{min(times).total_seconds():.1f}-{max(times).total_seconds():.1f} s" if times else "-"
