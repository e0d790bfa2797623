"""Counts by state: kept by the moves, never counted, and always right."""

from __future__ import annotations

import threading
from collections import Counter
from random import Random
from uuid import UUID, uuid4

import pytest
from django.db import connections

from jobs.models import WHOLE_PROJECT, Batch, DeadLetter, Job, JobCount
from jobs.services.claim.claim import claim_jobs, promote_due
from jobs.services.claim.fair_share import ClassTurns
from jobs.services.explain.snapshots import batch_counts, project_counts
from jobs.services.finish.claimed import ClaimedJob
from jobs.services.finish.finish import record_outcomes
from jobs.services.finish.outcomes import Failed, GivenBack, Outcome, Succeeded
from jobs.services.operate.dead_letters import requeue_dead_letters
from jobs.services.operate.job_actions import cancel_jobs, reset_to_pending
from jobs.services.upkeep import retention
from jobs.states import RUNNING, TRANSITIONS, WAITING, JobState
from jobs.transitions import Move, move_jobs
from queueops.core.sql import run_sql
from tests.factories import make_batch, make_job, make_jobs, make_project
from tests.support.cases import every_case
from tests.support.finishing import BROKEN, NOT_FOUND, STEADY
from tests.support.processes import wait_for

PROJECTS = ("acme", "globex")


def real_counts(**conditions: object) -> Counter[str]:
    """By looking at every row; a requeued item counts as its latest job."""
    rows = Job.objects.filter(**conditions).exclude(dead_letter__resolution="requeued")
    return Counter(rows.values_list("status", flat=True))


def assert_counts_are_real() -> None:
    for project in PROJECTS:
        assert +Counter(project_counts(project)) == real_counts(project=project)
    for batch_id, counts in batch_counts(Batch.objects.values_list("pk", flat=True)).items():
        assert +Counter(counts) == real_counts(batch=batch_id)


def end_of(job: ClaimedJob, random: Random) -> Outcome:
    match random.randrange(5):
        case 0 | 1:
            return Succeeded(job, "http", None, 1.0)
        case 2:
            return GivenBack(job, "stop")
        case _:
            repeatable, failure = random.choice([(True, BROKEN), (False, BROKEN), (True, NOT_FOUND)])
            return Failed(job, "http", "moderate", repeatable, failure, 1.0)


def act(random: Random, batches: list[Batch | None]) -> None:
    """One of the things that move jobs."""
    project = random.choice(PROJECTS)
    ids = list(Job.objects.filter(status__in=WAITING | RUNNING).values_list("pk", flat=True)[:50])
    few = random.sample(ids, min(len(ids), 3))
    match random.randrange(8):
        case 0 | 1:
            batch = random.choice([one for one in batches if one is None or one.project_id == project])
            make_jobs(random.randint(1, 4), project=project, batch=batch, delay_seconds=random.choice([None, 0, 60]))
        case 2 | 3:
            jobs = claim_jobs(uuid4(), wanted=random.randint(1, 6), lease_seconds=30, turns=ClassTurns())
            record_outcomes([end_of(job, random) for job in jobs][1:], policies=STEADY)
        case 4:
            cancel_jobs(few[:1], actor="user:1", reason="x")
            reset_to_pending(few[1:], actor="user:1")
        case 5:
            move_jobs("park", [Move(job_id, delay_seconds=random.choice([None, 0.0])) for job_id in few])
            move_jobs("release", [Move(job_id) for job_id in random.sample(few, len(few) // 2)])
        case 6:
            promote_due(most=3)
        case 7:
            letters = DeadLetter.objects.open().ids()
            requeue_dead_letters(random.sample(letters, min(len(letters), 2)), actor="user:1")


@pytest.mark.django_db
@pytest.mark.parametrize("seed", range(6))
def test_counts_are_those_of_the_rows_after_any_history(seed):
    random = Random(seed)  # noqa: S311 (draws a history)
    for project in PROJECTS:
        make_project(project)
    batches = [None, *(make_batch(project=project) for project in PROJECTS for _ in range(2))]
    for _ in range(40):
        act(random, batches)
    assert_counts_are_real()
    assert len(real_counts()) > 2


@pytest.mark.django_db
@every_case("edge", sorted(TRANSITIONS.keys() - {"claim", "dispatch"}), undone=True)
def test_every_edge_counts_both_of_its_ends(edge):
    batch = make_batch()
    transition = TRANSITIONS[edge]
    for state in sorted(transition.sources):
        job = make_job(state=state, batch=batch)
        delay = 60.0 if transition.target == JobState.RETRIED else None
        assert move_jobs(edge, [Move(job.pk, token=job.fencing_token, delay_seconds=delay)])
    expected = {transition.target: len(transition.sources)}
    assert +Counter(project_counts("acme")) == expected
    assert +Counter(batch_counts([batch.pk])[batch.pk]) == expected


@pytest.mark.django_db(transaction=True)
def test_counts_stay_right_when_many_connections_move_jobs_and_when_their_counters_are_folded():
    batches = [None, *(make_batch(project=project) for project in PROJECTS)]
    start = threading.Barrier(4)
    errors: list[Exception] = []

    def work(seed: int) -> None:
        random = Random(seed)  # noqa: S311 (draws a history)
        try:
            start.wait(timeout=20)
            for number in range(15):
                act(random, batches)
                if number % 5 == 0:
                    connections.close_all()
                    run_sql("jobs", "fold_counts", {})
        except Exception as error:  # noqa: BLE001 (raised again below)
            errors.append(error)
        finally:
            connections.close_all()

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=60)
    assert errors == []
    assert_counts_are_real()
    assert JobCount.objects.values("shard").distinct().count() > 1
    wait_for(only_own_counters_are_left, what="the end of the threads' backends and the fold of their counters")
    assert_counts_are_real()


def only_own_counters_are_left() -> bool:
    retention.apply_retention(seconds=60)
    return set(JobCount.objects.values_list("shard", flat=True)) <= {0, own_shard()}


def own_shard() -> int:
    with connections["default"].cursor() as cursor:
        cursor.execute("SELECT pg_backend_pid()")
        [pid] = cursor.fetchone()
    return int(pid)


@pytest.mark.django_db
def test_a_count_belongs_to_its_project_and_its_batch_alone():
    batch, other = make_batch(), make_batch(project="globex")
    make_jobs(3, batch=batch)
    make_jobs(2)
    make_jobs(4, project="globex", batch=other)
    assert project_counts("acme")["queued"] == 5
    assert project_counts("globex")["queued"] == 4
    counts = batch_counts([batch.pk, other.pk, unknown := UUID(int=1)])
    assert [counts[one]["queued"] for one in (batch.pk, other.pk, unknown)] == [3, 4, 0]
    assert set(JobCount.objects.values_list("batch_id", flat=True)) == {WHOLE_PROJECT, batch.pk, other.pk}
