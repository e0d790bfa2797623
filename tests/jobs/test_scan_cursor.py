"""Claims beside a transaction that stays open: they do not look past all that died meanwhile."""

from __future__ import annotations

from datetime import timedelta
from uuid import UUID, uuid4

import psycopg
import pytest
from django.contrib.postgres.functions import TransactionNow as Now
from django.db import connection

from jobs.models import Job
from jobs.services.claim.claim import claim_jobs
from jobs.services.claim.fair_share import ClassTurns
from jobs.services.claim.scan_cursor import DEAR_SECONDS, DEAR_SECONDS_A_JOB, MOST, SHARE, ScanCursor
from jobs.services.finish.claimed import ClaimedJob
from jobs.states import Priority
from jobs.transitions import Move, move_jobs
from tests.factories import make_job, make_jobs
from tests.support.plans import explain_file, nodes
from tests.support.processes import database_url


class Clock:
    """Goes on by `step` with each look at it: a claim looks when it begins to choose, and when it has chosen."""

    def __init__(self) -> None:
        self.now = self.step = 0.0

    def __call__(self) -> float:
        now, self.now = self.now, self.now + self.step
        return now


def claimed(heads: ScanCursor, clock: Clock, *, takes: float = 0.0) -> list[UUID]:
    clock.step = takes
    return [job.id for job in claim_jobs(uuid4(), wanted=50, lease_seconds=30, turns=ClassTurns(0.0), heads=heads)]


def aged(seconds: float, **fields: object) -> Job:
    job = make_job(**fields)
    Job.objects.filter(pk=job.pk).update(eligible_since=Now() - timedelta(seconds=seconds))
    return job


@pytest.mark.django_db
def test_as_long_as_a_look_is_cheap_each_claim_looks_everywhere():
    clock = Clock()
    heads = ScanCursor(clock)
    for _ in range(3):
        job, other = aged(5), make_job(project="other")
        assert set(claimed(heads, clock, takes=DEAR_SECONDS / 2)) == {job.pk, other.pk}


@pytest.mark.django_db
def test_a_look_may_take_longer_for_each_job_that_it_chooses():
    clock = Clock()
    heads = ScanCursor(clock)
    for count, is_dear in ((1, True), (40, False)):
        make_jobs(count)
        claimed(heads, clock, takes=DEAR_SECONDS + 39 * DEAR_SECONDS_A_JOB)
        assert heads.is_dear is is_dear
        clock.now += 60.0


@pytest.mark.django_db
def test_after_a_dear_look_claims_go_on_where_it_ended_until_the_next():
    clock = Clock()
    heads = ScanCursor(clock)
    first = [aged(20), aged(10), aged(10, priority=Priority.LOW)]
    assert set(claimed(heads, clock, takes=1.0)) == {job.pk for job in first}
    older, new, later = aged(30), make_job(project="new"), aged(5)
    low = aged(4, priority=Priority.LOW)
    assert claimed(heads, clock) == [later.pk, low.pk]  # what is older, and what is new, wait
    even_later = make_job()
    clock.now = 1.0 + 1.0 / SHARE - 0.1
    assert claimed(heads, clock) == [even_later.pk]
    clock.now += 0.2
    assert set(claimed(heads, clock)) == {older.pk, new.pk}


@pytest.mark.django_db
def test_where_the_known_queues_are_empty_the_next_claim_looks_everywhere():
    clock = Clock()
    heads = ScanCursor(clock)
    make_job()
    assert len(claimed(heads, clock, takes=1.0)) == 1
    new = make_job(project="new")
    assert claimed(heads, clock) == []
    assert claimed(heads, clock) == [new.pk]


def test_a_flood_of_queues_is_forgotten_rather_than_kept():
    one = ClaimedJob(
        uuid4(), 1, "p", None, None, "k", "{}", "e", None, 0, 0, 0.0, 1.0, 1, "s", "write", None, None, 1, None, None,
        None, None, "queued", 0.0, 9.0,
    )  # fmt: skip
    clock = Clock()
    heads, clock.step = ScanCursor(clock), 1.0
    for queues, everywhere in ((MOST, False), (MOST + 1, True)):
        heads.begin()
        heads.end([one._replace(project=f"p{number}") for number in range(queues)])
        assert heads.begin()["everywhere"] is everywhere


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("everywhere", [True, False])
def test_beside_an_open_transaction_known_queues_are_read_from_where_they_are_known(everywhere, nobody_clears: None):
    with psycopg.connect(database_url()) as held:
        held.execute("SELECT pg_current_xact_id()")
        gone = make_jobs(2_000)
        since = Job.objects.earliest("eligible_since").eligible_since
        move_jobs("cancel", [Move(job.pk) for job in gone])
        left = make_job()
        Job.objects.filter(pk=left.pk).update(eligible_since=since + timedelta(seconds=1))
        with connection.cursor() as cursor:
            cursor.execute("SET enable_seqscan = off")
        plan = explain_file(
            "jobs", "choose_jobs", wanted=10, starved_after=9.0, starved_every=9.0, turn_classes=[], turn_projects=[],
            turn_passes=[], turn_nows=[], lanes=[], rooms=[], passes=[], resting=[], flow_projects=[], flow_passes=[],
            strange=[], most_bytes=16_000_000, everywhere=everywhere,
            known_projects=None if everywhere else [left.project_id],
            known_priorities=None if everywhere else [left.priority],
            known_since=None if everywhere else [(since + timedelta(seconds=1)).timestamp() - 0.001],
        )  # fmt: skip
        assert plan["Actual Rows"] == 1
        looked_at = sum(node.get("Heap Fetches", 0) for node in nodes(plan))
        assert looked_at >= len(gone) if everywhere else looked_at < len(gone) / 10
