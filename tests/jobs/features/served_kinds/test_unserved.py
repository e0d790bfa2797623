"""Kinds and payloads that not every worker carries out."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest
from cryptography.fernet import Fernet
from django.conf import settings as django_settings
from django.db import connection
from django.db.models.functions import Now

from jobs.errors import UnknownPauseTarget
from jobs.features.served_kinds import served_kinds as kinds_service
from jobs.features.served_kinds.served_kinds import ServedKinds, kinds_served, set_aside, take_up
from jobs.features.served_kinds.unserved import tend_unserved
from jobs.features.watches.watch_unserved import watch_unserved
from jobs.models import BudgetWait, DeadLetter, Dependency, Executor, Job, PauseSwitch, new_id
from jobs.services.claim import claim
from jobs.services.claim.fair_share import ClassTurns
from jobs.services.explain.waiting import explain_waiting
from jobs.services.finish.claimed import ClaimedJob
from jobs.services.operate.pauses import pause_scope, resume_scope, settle_holds
from jobs.states import JobState
from ratelimits.models import QuotaAlert
from tests.factories import make_batch, make_job, make_jobs
from tests.support.cases import every_case

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def looks_each_time(monkeypatch) -> None:
    monkeypatch.setattr(kinds_service, "KINDS_LOOK_SECONDS", 0.0)


def executor(**fields: object) -> Executor:
    given = {"pid": 1, "process_started_at": 0.0, "cluster_pid": 1, "slots": 9, "role": "general"} | fields
    return Executor.objects.create(**given)


def claimed_by(kinds: ServedKinds, wanted: int = 10) -> list[str]:
    jobs = claim.claim_jobs(kinds.executor_id, wanted=wanted, lease_seconds=30, turns=ClassTurns(0.1), kinds=kinds)
    return [job.kind for job in jobs]


def set_back(hours: float) -> None:
    Job.objects.update(updated_at=Now() - timedelta(hours=hours))
    PauseSwitch.objects.update(created_at=Now() - timedelta(hours=hours))


def refuse_jobs_unless(condition: str) -> None:
    with connection.cursor() as cursor:
        cursor.execute("SET CONSTRAINTS ALL IMMEDIATE")  # what is still to be checked would refuse the next statement
        cursor.execute(f"ALTER TABLE jobs_job ADD CONSTRAINT refused CHECK ({condition})")


def test_a_claim_takes_what_it_knows_and_the_next_leaves_out_what_it_does_not():
    make_jobs(5, kind="later.kind", payload="{}")
    make_jobs(2)
    executor(pid=2, kinds={"later.kind": "1"})
    kinds = ServedKinds(executor().pk)
    assert claimed_by(kinds) == ["http.request"] * 2
    assert kinds.must_look
    kinds.tend()
    assert kinds.strange == {("later.kind", "")}
    make_jobs(2)
    assert claimed_by(kinds, wanted=2) == ["http.request"] * 2
    assert set(Job.objects.filter(kind="later.kind").values_list("status", "held")) == {(JobState.QUEUED, False)}


def test_what_nobody_knows_is_held_until_somebody_does():
    [job] = make_jobs(1, kind="later.kind", payload="{}")
    kinds = ServedKinds(executor().pk)
    claimed_by(kinds)
    kinds.tend()
    job.refresh_from_db()
    assert job.held
    waiting = explain_waiting(job)
    assert waiting is not None
    assert waiting.text == "no worker knows kind later.kind"
    assert make_job(kind="other.kind").held is False
    settle_holds()
    assert Job.objects.get(pk=job.pk).held
    take_up({"later.kind": "1"})
    job.refresh_from_db()
    assert not job.held
    assert not PauseSwitch.objects.exists()


def test_what_another_living_executor_knows_is_left_to_it():
    make_jobs(1, kind="later.kind", payload="{}")
    other = executor(pid=2, kinds={"later.kind": "1"})
    kinds = ServedKinds(executor().pk)
    claimed_by(kinds)
    kinds.tend()
    assert not Job.objects.filter(held=True).exists()
    assert claimed_by(kinds) == []
    assert kinds.strange == {("later.kind", "")}
    Executor.objects.filter(pk=other.pk).update(heartbeat_at=Now() - timedelta(hours=1))
    for _ in range(2):  # it is left to nobody any more, is met again, and is held
        kinds.tend()
        claimed_by(kinds)
    kinds.tend()
    assert Job.objects.get().held


def test_a_kind_without_jobs_is_no_finding_when_its_last_worker_has_gone():
    other = executor(pid=2, kinds={"later.kind": "1"})
    kinds = ServedKinds(executor().pk)
    [job] = make_jobs(1, kind="later.kind", payload="{}")
    claimed_by(kinds)
    kinds.tend()
    Job.objects.filter(pk=job.pk).update(held=True)
    other.delete()
    for _ in range(3):
        kinds.tend()
        claimed_by(kinds)
    assert not PauseSwitch.objects.exists()


def test_a_payload_that_does_not_fit_waits_for_another_version_and_is_taken_up_by_it():
    job = make_job(state=JobState.RETRIED)

    def refused_by(version: str) -> None:
        said = f"{kinds_service.refusal_of(version)}n is missing"
        Job.objects.filter(pk=job.pk).update(last_error_code="invalid_payload", last_error_message=said)
        set_aside([row])

    row = ClaimedJob(
        id=job.pk, token=1, project="acme", user_id=None, batch_id=None, kind="http.request", payload="{}",
        effect_key="e", retry_policy=None, retry_count=0, crash_count=0, window_used=0.0, weight=1.0, tier_class=2,
        service="test", call_type="write", model=None, credential=None, cost=1, known_cost=None, lane=None,
        coalesce_key=None, partial=None, was="queued", waited=0.0, claimed_at=0.0,
    )  # fmt: skip
    refused_by(kinds_served()["http.request"])
    assert Job.objects.get(pk=job.pk).held
    settle_holds()
    take_up(kinds_served())
    assert Job.objects.get(pk=job.pk).held, "the version that refused it took it up again"
    take_up({"http.request": "another"})
    assert not Job.objects.get(pk=job.pk).held
    refused_by(kinds_served()["http.request"])  # it was faster than the other once more
    take_up({"http.request": "another"})
    assert not Job.objects.get(pk=job.pk).held
    refused_by("another")
    take_up({"http.request": "another"})
    assert Job.objects.get(pk=job.pk).held, "the other refused it too"


def test_of_two_versions_that_refuse_the_later_goes_on():
    job = make_job()
    first, second = executor(pid=1), executor(pid=2, started_at=Now() + timedelta(seconds=1))
    Executor.objects.filter(pk=first.pk).update(kinds={"http.request": "old"})
    Executor.objects.filter(pk=second.pk).update(kinds={"http.request": "new"})
    ways = [ServedKinds(one.pk) for one in (first, second)]
    for one in ways:
        one.refuse([job.pk])
        one.tend()
    assert [one.strange for one in ways] == [{("http.request", "")}, frozenset()]
    Executor.objects.filter(pk=second.pk).delete()
    ways[0].refuse([job.pk])
    ways[0].tend()
    assert ways[0].strange == frozenset()


def test_what_waits_too_long_is_buried_and_told_before(settings):
    settings.QUEUEOPS = replace(django_settings.QUEUEOPS, unserved_hours=2.0)
    jobs = make_jobs(3, kind="later.kind", payload="{}")
    kinds = ServedKinds(executor().pk)
    claimed_by(kinds)
    kinds.tend()
    set_back(1.9)
    assert tend_unserved() == 0
    watch_unserved()
    assert QuotaAlert.objects.get(resolved_at=None).message == (
        "No worker knows kind later.kind: 3 jobs of acme wait for one; a dead letter each after 2 h"
    )
    set_back(2.1)
    assert tend_unserved() == 3
    assert set(DeadLetter.objects.values_list("job_id", "error_code")) == {(job.pk, "unknown_kind") for job in jobs}
    assert not PauseSwitch.objects.exists()
    watch_unserved()
    assert not QuotaAlert.objects.filter(resolved_at=None).exists()


def test_a_kind_whose_jobs_cannot_be_buried_keeps_no_other_kind_from_it(settings):
    settings.QUEUEOPS = replace(django_settings.QUEUEOPS, unserved_hours=2.0)
    for kind in ("bad.kind", "later.kind"):
        make_jobs(2, kind=kind, payload="{}")
    kinds = ServedKinds(executor().pk)
    claimed_by(kinds)
    kinds.tend()
    set_back(2.1)
    with connection.cursor() as cursor:
        cursor.execute("ALTER TABLE jobs_deadletter ADD CONSTRAINT none_of_it CHECK (kind <> 'bad.kind')")
    assert tend_unserved() == 2
    assert set(DeadLetter.objects.values_list("kind", flat=True)) == {"later.kind"}


def test_jobs_that_cannot_be_taken_up_keep_those_of_no_other_kind_or_key_from_it(settings):
    keys = tuple((name, Fernet.generate_key().decode()) for name in ("bad", "good"))
    settings.QUEUEOPS = replace(django_settings.QUEUEOPS, payload_keys=keys)
    for name in ("bad", "good"):
        make_jobs(1, kind=f"{name}.kind", held=True, last_error_code="invalid_payload")
        said = kinds_service.kept_closed(name)
        code = kinds_service.KEY_MISSING
        make_jobs(1, kind=f"{name}.closed", held=True, last_error_code=code, last_error_message=said)
        for scope, key in (("unfit", f"{name}.kind"), ("sealed", name)):
            PauseSwitch.objects.create(scope=scope, key=key, paused_by="system")
    refuse_jobs_unless("held OR kind NOT LIKE 'bad.%'")
    take_up({"bad.kind": "1", "good.kind": "1"})
    assert set(Job.objects.filter(held=False).values_list("kind", flat=True)) == {"good.kind", "good.closed"}


def test_a_kind_that_cannot_be_held_keeps_no_other_from_it():
    for kind in ("bad.kind", "later.kind"):
        make_jobs(1, kind=kind, payload="{}")
    kinds = ServedKinds(executor().pk)
    claimed_by(kinds)
    refuse_jobs_unless("NOT held OR kind <> 'bad.kind'")
    kinds.tend()
    assert set(Job.objects.filter(held=True).values_list("kind", flat=True)) == {"later.kind"}


def test_what_a_pause_has_held_for_days_is_not_buried_as_soon_as_its_kind_has_no_worker():
    batch = make_batch()
    [paused] = make_jobs(1, kind="later.kind", payload="{}", batch=batch)
    pause_scope("batch", str(batch.pk), actor="user:1")
    set_back(1000)
    make_jobs(1, kind="later.kind", payload="{}")
    kinds = ServedKinds(executor().pk)
    claimed_by(kinds)
    kinds.tend()
    assert tend_unserved() == 0
    assert Job.objects.get(pk=paused.pk).status == JobState.QUEUED


def test_what_could_not_run_is_not_buried_however_old_the_switch_is():
    make_jobs(1, kind="later.kind", payload="{}")
    kinds = ServedKinds(executor().pk)
    claimed_by(kinds)
    kinds.tend()
    batch = make_batch()
    scheduled, waiting, part, in_batch, stopped = make_jobs(5, kind="later.kind", payload="{}")
    [of_another] = make_jobs(1, kind="later.kind", payload="{}", project="other")
    Job.objects.filter(pk=in_batch.pk).update(batch=batch)
    later = make_batch()
    Job.objects.filter(pk=part.pk).update(batch=later)
    Job.objects.filter(pk=scheduled.pk).update(scheduled_at=Now() + timedelta(days=7))
    for owner in (waiting.pk, later.pk):
        Dependency.objects.create(
            owner_id=owner, on_id=new_id(), of_batch=owner != waiting.pk, on_batch=False, project_id="acme"
        )
    pause_scope("batch", str(batch.pk), actor="user:1")
    pause_scope("project", "other", actor="user:1")
    BudgetWait.objects.create(job_id=stopped.pk, budget_id=1, project_id="acme")
    settle_holds()
    Job.objects.update(held=True)
    set_back(1000)
    assert tend_unserved() == 1
    kept = [scheduled, waiting, part, in_batch, stopped, of_another]
    assert set(Job.objects.exclude(status=JobState.FAILED).values_list("pk", flat=True)) == {job.pk for job in kept}
    resume_scope("batch", str(batch.pk), actor="user:1")
    resume_scope("project", "other", actor="user:1")
    assert tend_unserved() == 0  # their hours begin now
    Job.objects.filter(pk=scheduled.pk).update(scheduled_at=Now() - timedelta(hours=1))
    Dependency.objects.all().delete()
    BudgetWait.objects.all().delete()
    assert tend_unserved() == 2
    set_back(1000)
    Job.objects.filter(pk=scheduled.pk).update(scheduled_at=Now() - timedelta(hours=30))
    assert tend_unserved() == 4


@every_case("scope", ["unknown", "unfit"], undone=True)
def test_nobody_pauses_so_by_hand(scope):
    with pytest.raises(UnknownPauseTarget):
        pause_scope(scope, "http.request", actor=f"user:{new_id()}")
