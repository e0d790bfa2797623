"""Pausing and resuming batches, services, kinds, projects and everything."""

from __future__ import annotations

import threading
from uuid import UUID

import psycopg
import pytest
from django.db import connection, connections, transaction

from jobs.errors import UnknownPauseTarget
from jobs.models import Batch, Job, PauseSwitch
from jobs.services.operate import pauses
from jobs.states import RUNNING, WAITING, JobState
from queueops.audit.models import AuditEntry
from tests.factories import KIND, make_batch, make_job, make_jobs, make_project
from tests.support.cases import every_case
from tests.support.processes import wait_for

ACTOR = "user:7"


@pytest.fixture(autouse=True)
def small_statements(monkeypatch) -> None:
    monkeypatch.setattr(pauses, "HOLD_CHUNK", 5)


def held() -> set[UUID]:
    return set(Job.objects.filter(held=True).values_list("pk", flat=True))


@pytest.mark.django_db
def test_a_paused_batch_holds_every_job_that_has_not_ended_and_no_other():
    batch = make_batch()
    jobs = [job for state in sorted(WAITING | RUNNING) for job in make_jobs(4, batch=batch, state=state)]
    make_job(batch=batch, state=JobState.COMPLETED)
    make_job()
    assert pauses.pause_batch(batch.pk, actor=ACTOR, reason="wrong column") == 20
    assert held() == {job.pk for job in jobs}
    switch = PauseSwitch.objects.get()
    assert (switch.scope, switch.key, switch.reason) == ("batch", str(batch.pk), "wrong column")
    assert Batch.objects.get(pk=batch.pk).paused
    assert pauses.resume_batch(batch.pk, actor=ACTOR) == 20
    assert held() == set()
    assert not PauseSwitch.objects.exists()
    assert not Batch.objects.get(pk=batch.pk).paused


@pytest.mark.django_db
@every_case(
    ("state", "scope", "key"),
    [
        (state, scope, key)
        for state in sorted(WAITING | RUNNING)
        for scope, key in [("service", "sheets"), ("kind", "sheets.read"), ("kind", KIND)]
    ],
    undone=True,
)
def test_a_paused_service_or_kind_holds_its_jobs_in_every_state(scope, key, state):
    kind = key if scope == "kind" else KIND
    jobs = make_jobs(12, state=state, service="sheets", kind=kind)
    make_job(state=state, service="other", kind="other.kind")
    assert pauses.pause_scope(scope, key, actor=ACTOR) == 12
    assert held() == {job.pk for job in jobs}
    assert pauses.resume_scope(scope, key, actor=ACTOR) == 12


@pytest.mark.django_db
@every_case(("scope", "key"), [("global", ""), ("project", "acme")], undone=True)
def test_a_paused_project_or_installation_needs_no_holds(scope, key):
    make_job()
    assert pauses.pause_scope(scope, key, actor=ACTOR) == 0
    assert PauseSwitch.objects.filter(scope=scope, key=key).exists()
    assert held() == set()
    assert pauses.resume_scope(scope, key, actor=ACTOR) == 0
    assert not PauseSwitch.objects.exists()


@pytest.mark.django_db
def test_a_resume_leaves_held_what_another_switch_covers():
    batch = make_batch()
    both = make_jobs(7, batch=batch, service="sheets")
    make_jobs(7, batch=batch, service="other")
    pauses.pause_batch(batch.pk, actor=ACTOR)
    pauses.pause_scope("service", "sheets", actor=ACTOR)
    assert pauses.resume_batch(batch.pk, actor=ACTOR) == 7
    assert held() == {job.pk for job in both}
    assert pauses.resume_scope("service", "sheets", actor=ACTOR) == 7


@pytest.mark.django_db
def test_pausing_twice_keeps_the_first_switch_and_completes_its_holds():
    batch = make_batch()
    pauses.pause_batch(batch.pk, actor="user:1", reason="first")
    late = make_job(batch=batch)
    assert pauses.pause_batch(batch.pk, actor="user:2", reason="second") == 1
    assert held() == {late.pk}
    assert PauseSwitch.objects.get().reason == "first"
    assert list(AuditEntry.objects.order_by("id").values_list("action", "moved", "project_id")) == [
        ("pause", 1, "acme"),
        ("pause", 0, "acme"),
    ]


@pytest.mark.django_db
def test_resuming_what_is_not_paused_changes_nothing():
    make_job()
    assert pauses.resume_scope("service", "http", actor=ACTOR) == 0
    assert AuditEntry.objects.get().moved == 0


@pytest.mark.django_db
@every_case(
    ("scope", "key"),
    [("planet", "x"), ("project", "nobody"), ("batch", "no uuid"), ("batch", str(UUID(int=404))), ("service", ""),
     ("kind", "x" * 101), ("kind", "a\0"), ("global", "x")],
    undone=True,
)  # fmt: skip
def test_what_does_not_exist_can_not_be_paused(scope, key):
    make_project()
    with pytest.raises(UnknownPauseTarget):
        pauses.pause_scope(scope, key, actor=ACTOR)
    with pytest.raises(UnknownPauseTarget):
        pauses.resume_scope(scope, key, actor=ACTOR)
    assert not PauseSwitch.objects.exists()


@pytest.mark.django_db
def test_house_keeping_completes_what_a_killed_process_left_half_done():
    batch, resumed = make_batch(), make_batch()
    arrived = make_jobs(7, batch=batch)
    left = make_jobs(7, batch=resumed, held=True)
    PauseSwitch.objects.create(scope="batch", key=str(batch.pk), paused_by=ACTOR)
    assert held() == {job.pk for job in left}
    assert pauses.settle_holds() == pauses.SettledHolds(held=7, released=7)
    assert held() == {job.pk for job in arrived}
    assert pauses.settle_holds() == pauses.SettledHolds(held=0, released=0)


@pytest.mark.django_db(transaction=True)
def test_the_switch_is_committed_before_the_first_job_is_held():
    batch = make_batch()
    job = make_jobs(3, batch=batch)[-1]
    with psycopg.connect(**connection.get_connection_params() | {"cursor_factory": None}) as blocker:
        blocker.execute("SELECT FROM jobs_job WHERE id = %s FOR UPDATE", [job.pk])

        def pause() -> None:
            pauses.pause_batch(batch.pk, actor=ACTOR)
            connections.close_all()

        thread = threading.Thread(target=pause)
        thread.start()
        wait_for(PauseSwitch.objects.exists, what="the switch")
        assert held() == set()
        blocker.rollback()
        thread.join(timeout=20)
    assert len(held()) == 3


@pytest.mark.django_db
def test_a_pause_inside_a_transaction_is_a_bug():
    batch = make_batch()
    with pytest.raises(RuntimeError), transaction.atomic():
        pauses.pause_batch(batch.pk, actor=ACTOR)


@pytest.mark.django_db(transaction=True)
def test_no_job_stays_held_when_a_resume_comes_while_a_pause_still_holds():
    batch = make_batch()
    job = make_jobs(12, batch=batch)[0]

    def run(service) -> threading.Thread:
        def call() -> None:
            service(batch.pk, actor=ACTOR)
            connections.close_all()

        thread = threading.Thread(target=call)
        thread.start()
        return thread

    with psycopg.connect(**connection.get_connection_params() | {"cursor_factory": None}) as blocker:
        blocker.execute("SELECT FROM jobs_job WHERE id = %s FOR UPDATE", [job.pk])
        pause = run(pauses.pause_batch)
        wait_for(lambda: sessions_waiting() == 1, what="a pause that has seen its switch and waits for the job")
        resume = run(pauses.resume_batch)
        wait_for(lambda: sessions_waiting() == 2 or not resume.is_alive(), what="the resume")
        blocker.rollback()
        pause.join(timeout=20)
        resume.join(timeout=20)
    assert held() == set()


def sessions_waiting() -> int:
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
        )
        [count] = cursor.fetchone()
    return int(count)
