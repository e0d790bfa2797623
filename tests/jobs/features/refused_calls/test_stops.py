"""Calls that a provider refuses by the account's or the model's fault stop, and nothing is buried by the thousand."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any
from uuid import uuid4

import pytest
from cryptography.fernet import Fernet
from django.conf import settings as django_settings
from django.db import OperationalError, connection
from django.test import Client

from jobs.classify import Failure
from jobs.executor.pump import PLANNING
from jobs.features.pools.pools import save_pool
from jobs.features.refused_calls import another_way, stops
from jobs.features.refused_calls.another_way import StoppedRounds
from jobs.features.watches.watch_credentials import watch_credentials
from jobs.models import Batch, DeadLetter, Executor, Job, PauseSwitch, RefusedCalls
from jobs.services.claim.claim import claim_jobs, promote_due
from jobs.services.claim.fair_share import ClassTurns
from jobs.services.explain.waiting import explain_waiting
from jobs.services.finish.claimed import ClaimedJob
from jobs.services.finish.finish import record_outcomes, retry_policies
from jobs.services.finish.outcomes import Failed, Succeeded
from jobs.services.operate.pauses import pause_batch, resume_batch
from jobs.services.submit.submit import submit_batch
from jobs.testing import drain
from queueops.audit.models import AuditEntry
from queueops.core.clock import Now
from queueops.tenancy.models import Credential, Project
from queueops.tenancy.secrets.encryption import forget_encrypted
from ratelimits.limits import catalogue
from ratelimits.models import Limit, QuotaAlert
from tests.factories import make_jobs, make_project
from tests.support.cases import every_case
from tests.support.credential_pools import a_credential, make_pool
from tests.support.plans import explain_file, nodes, rows_read
from tests.support.racing import run_together

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def without_limits(db: None) -> None:
    Limit.objects.all().delete()
    catalogue.forget()
    stops.forget()


def make_keys(*names: str, url: str = "http://127.0.0.1:9") -> None:
    for name in names:
        a_credential(name, service="openai", url=url).projects.add(make_project("acme"))


def submit(count: int, key: str = "key-1", *, model: str = "small-1", **payload: object) -> None:
    named = {"provider": "openai", "credential": key, "model": model, "prompt": "Why?", "max_output_tokens": 9}
    lines = [{"kind": "llm.generate", "payload": named | payload}] * count
    batch = submit_batch(lines, project_id="acme", actor="key:test")
    assert batch.error_count == 0, batch.errors


def claim(wanted: int = 100) -> list[ClaimedJob]:
    promote_due()
    return claim_jobs(uuid4(), wanted=wanted, lease_seconds=30, turns=ClassTurns(0.0))


def refuse(jobs: list[ClaimedJob], status: int, code: str) -> None:
    failure = Failure(code, "ProviderError", f"openai says {code}", "answered", status=status)
    failed = [Failed(job, "openai", "moderate", repeatable=True, failure=failure, duration_ms=1.0) for job in jobs]
    record_outcomes(failed, policies=retry_policies())


def accept(jobs: list[ClaimedJob]) -> None:
    record_outcomes([Succeeded(job, "openai", "{}", 1.0) for job in jobs], policies=retry_policies())
    stops.forget()


def a_minute_later() -> None:
    RefusedCalls.objects.update(tried_at=Now() - timedelta(minutes=2))


def test_what_is_stated_of_an_account_stops_it_at_once_and_no_other_key_and_spends_nothing():
    make_keys("key-1", "key-2")
    submit(30)
    submit(3, "key-2")
    mine = [job for job in claim(10) if job.credential == "key-1"]
    refuse(mine, 402, "credit_gone")
    assert not DeadLetter.objects.exists()
    assert set(Job.objects.filter(pk__in=[job.id for job in mine]).values_list("status", "retry_count", "held")) == {
        ("retried", 0, True)
    }
    assert {job.credential for job in claim()} <= {"key-2"}
    stops.tend_stops()
    assert Job.objects.filter(credential="key-1", held=False).count() == 1, "one tries"
    [probe] = claim()
    refuse([probe], 402, "credit_gone")
    stops.tend_stops()
    assert claim() == [], "none within the minute"
    waiting = explain_waiting(Job.objects.filter(credential="key-1")[0])
    assert waiting is not None
    assert "openai with key-1 of acme have stopped" in waiting.reasons[0].text
    watch_credentials()
    alert = QuotaAlert.objects.get(kind="credential_refused", resolved_at=None)
    assert (alert.severity, alert.figures["credential"]) == ("critical", "key-1")
    a_minute_later()
    stops.tend_stops()
    accept(claim())
    stops.tend_stops()
    assert not PauseSwitch.objects.exists()
    assert len(claim()) == 29, "all others go on"
    watch_credentials()
    assert not QuotaAlert.objects.filter(resolved_at=None).exists()


@every_case(
    ("status", "code", "stops_all"),
    [
        (404, "model_not_found", True),
        (403, "permission_error", True),
        (401, "invalid_api_key", True),
        (400, "invalid_request_error", False),
        (422, "http_422", False),
        (403, "answer_blocked", False),  # the content of each is its own fault
    ],
    undone=True,
)
def test_what_would_be_said_of_every_job_stops_after_twenty_in_a_row_that_stay_dead_letters(status, code, stops_all):
    make_keys("key-1")
    submit(50)
    submit(2, model="other-1")
    for wanted in (15, 60):
        refuse([job for job in claim(wanted) if job.model == "small-1"], status, code)
    assert DeadLetter.objects.count() == (20 if stops_all else 50)
    assert PauseSwitch.objects.filter(scope="refused").exists() is stops_all
    assert Job.objects.filter(status="retried", held=True).count() == (30 if stops_all else 0)
    stops.forget()


def test_one_success_begins_the_count_anew():
    make_keys("key-1")
    submit(60)
    for _ in range(3):
        batch = claim(16)
        refuse(batch[:15], 404, "model_not_found")
        stops.forget()
        accept(batch[15:])
    assert DeadLetter.objects.count() == 45
    assert not PauseSwitch.objects.exists()


@every_case("encrypted", [True, False], undone=True)
def test_a_job_that_names_another_way_for_it_goes_that_way_whether_it_was_sent_or_waits(encrypted):
    make_keys("key-1", "key-2")
    Project.objects.update(encrypted=encrypted)
    forget_encrypted()
    other = {"credential": "key-2", "model": "other-1", "when": ["no_credit"]}
    submit(1, fallback=[other])
    refuse(claim(), 402, "credit_gone")
    assert Job.objects.filter(credential="key-2", model="other-1", held=False).count() == 1, "which was sent"
    submit(1)
    refuse([job for job in claim() if job.credential == "key-1"], 402, "credit_gone")
    submit(4, fallback=[other])
    stops.tend_stops()
    assert Job.objects.filter(credential="key-2", model="other-1", held=False).count() == 5, "those that wait, too"
    assert Job.objects.filter(credential="key-1").count() == 1


def test_a_stopped_job_goes_another_way_by_a_host_that_has_its_key_whoever_held_it(settings, monkeypatch):
    monkeypatch.setattr(another_way, "REROUTED_AT_ONCE", 2)  # several statements, and what goes is behind what stays
    make_keys("key-1", "key-2")
    submit(1)
    refuse(claim(), 402, "credit_gone")
    submit(3)
    Project.objects.update(encrypted=True)
    forget_encrypted()
    ours = replace(django_settings.QUEUEOPS, payload_keys=(("k1", Fernet.generate_key().decode()),), debug=False)
    settings.QUEUEOPS = ours
    submit(3, fallback=[{"credential": "key-2", "model": "other-1", "when": ["no_credit"]}])
    lacking, having = StoppedRounds(uuid4()), StoppedRounds(uuid4())
    settings.QUEUEOPS = replace(ours, payload_keys=(("k2", Fernet.generate_key().decode()),))
    stops.tend_stops()
    lacking.do(1.0)
    assert Job.objects.filter(credential="key-1", held=True).count() == 7 - 1, "all but the job that tries"
    settings.QUEUEOPS = ours
    lacking.do(2.0)  # it has been through all of them, and rests
    assert not Job.objects.filter(credential="key-2").exists()
    having.do(1.0)
    assert Job.objects.filter(credential="key-2", model="other-1", held=False).count() == 3
    assert Job.objects.filter(credential="key-1", held=True).count() == 3


def test_a_round_reads_a_bounded_number_of_held_jobs():
    make_keys("key-1")
    submit(1)
    refuse(claim(), 402, "credit_gone")
    Job.objects.filter(pk__in=[job.pk for job in make_jobs(3000)]).update(held=True)
    with connection.cursor() as cursor:
        cursor.execute("ANALYZE jobs_job")
        for name, value in PLANNING:
            cursor.execute(f"SET LOCAL {name} = {value}")
    looking = {"after": another_way.NO_ID, "most": 200, "kinds": ["llm.generate"], "codes": ["credit_gone"]}
    assert max(rows_read(node) for node in nodes(explain_file("jobs", "choose_stopped", **looking))) <= 200


def test_a_pools_key_without_credit_is_out_after_one_call_and_its_job_goes_on():
    make_pool(members=("key-1", "key-2"), service="openai")
    Limit.objects.create(
        name="keys", service="openai", call_type="any", scope="project", algorithm="sliding_window", capacity=100,
        window_seconds=60,
    )  # fmt: skip
    catalogue.forget()
    submit(6, "keys")
    first = claim(1)
    refuse(first, 402, "credit_gone")
    gone = first[0].credential
    rest = claim()
    assert len(rest) == 6
    assert {job.credential for job in rest} == {"key-1", "key-2"} - {gone}
    refuse(rest, 402, "credit_gone")
    assert not DeadLetter.objects.exists(), "an account without credit is no job's fault"
    assert claim() == []


def test_try_again_now_sends_one_and_is_told_in_the_audit_trail(admin_client: Client):
    make_keys("key-1")
    submit(3)
    refuse(claim(1), 402, "credit_gone")
    stops.tend_stops()
    refuse(claim(), 402, "credit_gone")
    stops.tend_stops()
    assert claim() == []
    switch = PauseSwitch.objects.get()
    page = admin_client.get("/admin/jobs/pauseswitch/").content.decode()
    assert "Try again now" in page
    assert "refused: openai with key-1 of acme" in page
    admin_client.post(f"/admin/jobs/pauseswitch/{switch.pk}/try_now/", {"confirmed": "1"})
    stops.tend_stops()
    assert len(claim()) == 1
    assert AuditEntry.objects.get(action="try_refused").target == "openai with key-1 of acme"


def test_a_job_tries_behind_however_many_that_something_else_holds(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(stops, "MAX_HELD_LOOKED_AT", 10)
    make_keys("key-1")
    submit(1)
    refuse(claim(), 402, "credit_gone")
    Job.objects.all().delete()
    for _ in range(2):
        submit(30)
    held, free = Batch.objects.filter(total=30).order_by("pk")
    pause_batch(held.pk, actor="user:1")
    for _ in range(3):
        stops.tend_stops()
        assert not Job.objects.filter(held=False).exists()
    stops.tend_stops()
    [probe] = claim()
    assert Job.objects.get(pk=probe.id).batch_id == free.pk
    pause_batch(free.pk, actor="user:1")
    refuse([probe], 402, "credit_gone")
    a_minute_later()
    for _ in range(10):
        stops.tend_stops()
    assert not RefusedCalls.objects.filter(tried_at__lt=Now() - timedelta(minutes=1)).exists(), "it rests at the end"
    resume_batch(held.pk, actor="user:1")
    a_minute_later()
    stops.tend_stops()
    assert Job.objects.get(pk=claim()[0].id).batch_id == held.pk


def test_a_job_tries_whose_pool_some_executor_serves():
    make_keys("key-1")
    save_pool("by-day", kinds=["llm.*"], actor="user:1")
    submit(3)
    refuse(claim(1), 402, "credit_gone")
    save_pool("by-night", kinds=["llm.*"], place=1, actor="user:1")
    submit(3)
    given = {"pid": 1, "process_started_at": 0.0, "cluster_pid": 1, "slots": 9, "role": "general"}
    Executor.objects.create(pool="by-night", **given)
    stops.tend_stops()
    assert Job.objects.get(held=False).pool == "by-night"


def test_what_has_stopped_has_its_switch_again_should_it_be_taken_off():
    make_keys("key-1")
    submit(2)
    first, second = claim()
    refuse([first], 402, "credit_gone")
    PauseSwitch.objects.all().delete()
    refuse([second], 402, "credit_gone")
    assert PauseSwitch.objects.filter(scope="refused").count() == 1


@pytest.mark.django_db(transaction=True)
def test_a_success_that_is_told_at_the_same_moment_breaks_no_count(monkeypatch):
    make_keys("key-1")
    submit(2)
    first, second = claim()
    refuse([first], 404, "model_not_found")
    wrote = type(RefusedCalls.objects).bulk_create

    def delete(_: int) -> bool:
        with connection.cursor() as cursor:
            cursor.execute("SET lock_timeout = '200ms'")
            try:
                cursor.execute("DELETE FROM jobs_refusedcalls")
            except OperationalError:
                return False
        return True

    def then_another_deletes(manager: Any, *given: Any, **figures: Any) -> Any:
        made = wrote(manager, *given, **figures)
        if manager.model is RefusedCalls:
            assert run_together(1, delete) == [False], "it waits for who counts"
        return made

    monkeypatch.setattr(type(RefusedCalls.objects), "bulk_create", then_another_deletes)
    refuse([second], 404, "model_not_found")
    monkeypatch.undo()
    assert RefusedCalls.objects.get().failures == 2


@pytest.mark.django_db(transaction=True)
def test_a_key_without_credit_costs_a_provider_no_more_calls_than_were_under_way(sandbox):
    sandbox.turn(openai={"credit_gone": True})
    make_keys("key-1", url=sandbox.url)
    submit(200)
    drain(slots=5, seconds=20)
    assert not DeadLetter.objects.exists()
    assert Job.objects.filter(held=True).count() >= 199, "one may be about to try"
    assert len(sandbox.calls(provider="openai")) <= 10
    assert Credential.objects.count() == 1
