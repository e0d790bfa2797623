"""
Incidents of the hour on call, solved through the tools alone; nothing is written before a confirmation.

Four more are in test_changes: dead letters of one cause, a forgotten pause, a batch with a wrong prompt, a cap that is
twice too high.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta

import pytest
from django.db.models.functions import Now
from django.utils import timezone

from jobs.features.served_kinds import served_kinds as kinds_service
from jobs.features.served_kinds.served_kinds import ServedKinds
from jobs.features.watches.watch_unserved import watch_unserved
from jobs.models import Executor, Job, ServiceBreaker
from jobs.services.claim.claim import claim_jobs
from jobs.services.claim.fair_share import ClassTurns
from jobs.services.submit.submit import submit_batch
from jobs.states import JobState
from ratelimits.alerts.alerts import open_alert
from ratelimits.limiter import estimates
from ratelimits.limits import catalogue
from ratelimits.models import Limit, LimitOverride, QuotaAlert
from ratelimits.money import budgets, prices
from ratelimits.money.save_budget import create_budget
from tests.factories import make_batch, make_jobs
from tests.security.world import everything
from tests.support.assistants import Assistant, assistant_of, made
from tests.support.documents import PROJECT, Model
from tests.support.money import set_prices
from tests.support.sandbox import Sandbox

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def nothing_kept(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(kinds_service, "KINDS_LOOK_SECONDS", 0.0)
    for one in (catalogue, estimates, prices, budgets):
        one.forget()
    yield
    for one in (catalogue, estimates, prices, budgets):
        one.forget()


@contextmanager
def looked_into(project: str = "acme") -> Iterator[Assistant]:
    """With an assistant, whose questions write nothing."""
    assistant = assistant_of(project)
    assistant.call("executors")  # the key has been used
    before = everything()
    yield assistant
    assert everything() == before


def executor(**fields: object) -> Executor:
    given = {"host": "worker-1", "pid": 1, "process_started_at": 0.0, "cluster_pid": 1, "slots": 9, "role": "general"}
    return Executor.objects.create(**given | fields)


def alert_of(assistant: Assistant, kind: str) -> int:
    [found] = [row for row in assistant.call("alerts").data if row["kind"] == kind]
    assert len(assistant.call("runbook", alert=found["id"]).data["runbook"]) > 200
    number: int = found["id"]
    return number


@pytest.mark.parametrize("error", ["answered 503", "broke the connection"])
def test_what_does_not_answer_is_named_with_what_waits_and_its_alert_taken(error: str):
    batch = make_batch(name="nightly")
    jobs = make_jobs(5, batch=batch, state=JobState.RATE_LIMITED)
    ServiceBreaker.objects.create(
        service=jobs[0].service, project_id="acme", opened_at=Now(), last_error=error, failures=7,
        next_probe_at=timezone.now() + timedelta(seconds=40), probe_job_id=jobs[0].pk,
    )  # fmt: skip
    open_alert("outage", "acme", severity="warning", message="does not answer", figures={"projects": ["acme"]})
    with looked_into() as assistant:
        held = assistant.call("what_holds_the_project").data
        assert [one["failures"] for one in held["does_not_answer"]] == [7]
        [reasons] = [lane["reasons"] for lane in assistant.call("look_at_batch", batch="nightly").data["held_by"]]
        assert reasons[0]["code"] == "outage"
        waits = assistant.call("why_does_a_job_wait", job=str(jobs[1].pk))
        assert waits.says.startswith("The job waits: outage")
        alert = alert_of(assistant, "outage")
    made(assistant, "preview_acknowledge", alert=alert, reason="the provider knows")
    assert QuotaAlert.objects.get().acknowledged_at is not None


def test_an_executor_that_stands_still_is_found_among_those_that_work():
    executor()
    executor(pid=2, heartbeat_at=Now() - timedelta(minutes=5))
    open_alert("stuck_executor", "worker-1", severity="warning", message="did not answer", figures={})
    with looked_into() as assistant:
        told = assistant.call("executors")
        assert "2 executors, 1 silent" in told.says
        assert [row["slots"] for row in told.data if row["health"] == "silent"] == [9]
        alert_of(assistant, "stuck_executor")


def test_a_quota_that_the_provider_refuses_is_lowered_for_the_project():
    limit = Limit.objects.create(name="writes", service="sheets", capacity=600, window_seconds=60, scope="project")
    catalogue.forget()
    open_alert(
        "exceeded", "acme", severity="critical", message="refused", figures={"projects": ["acme"]}, limit_id=limit.pk
    )
    with looked_into() as assistant:
        alert_of(assistant, "exceeded")
        [shown] = assistant.call("limits", service="sheets").data
        assert (shown["name"], shown["capacity"]) == ("writes", 600)
        assert assistant.call("simulate_cap", limit="writes", capacity=300.0).error == {}
    made(assistant, "preview_cap", limit="writes", capacity=300.0, reason="the provider allows half")
    assert LimitOverride.objects.get(limit=limit).key == "project:acme"


def test_a_budget_that_is_spent_is_named_by_what_waits_for_it(sandbox: Sandbox):
    model = Model("openai", 1, late_seconds=0.9)
    model.set_up(sandbox)
    set_prices(model.service)
    create_budget(PROJECT, {"name": "pilot", "amount": 1}, actor="user:1")
    job = _submitted_and_claimed(model)
    with looked_into(PROJECT) as assistant:
        assert assistant.call("why_does_a_job_wait", job=job).says.startswith("The job waits: budget")
        [budget] = assistant.call("budgets").data["results"]
        assert (budget["name"], budget["amount"]) == ("pilot", 1)


def test_a_price_that_is_missing_is_named_with_its_model(sandbox: Sandbox):
    model = Model("openai", 1, late_seconds=0.9)
    model.set_up(sandbox)
    create_budget(PROJECT, {"name": "pilot", "amount": 10**9}, actor="user:1")
    job = _submitted_and_claimed(model)
    with looked_into(PROJECT) as assistant:
        waits = assistant.call("why_does_a_job_wait", job=job).data["waiting"]
        assert f"{model.service} small-1 has no price" in waits["reasons"][0]["text"]
        told = assistant.call("forecast", jobs=[model.line("word")])
        assert told.data["missing_prices"][0]["model"] == "small-1"
        alert_of(assistant, "missing_price")


def test_a_kind_that_nobody_serves_is_named_and_who_works_serves_another():
    [job] = make_jobs(1, kind="later.kind", payload="{}")
    kinds = ServedKinds(executor(kinds={"http.request": "1"}).pk)
    claim_jobs(kinds.executor_id, wanted=5, lease_seconds=30, turns=ClassTurns(0.1), kinds=kinds)
    kinds.tend()
    watch_unserved()
    with looked_into() as assistant:
        waits = assistant.call("why_does_a_job_wait", job=str(job.pk)).data["waiting"]
        assert waits["reasons"][0]["text"] == "no worker knows kind later.kind"
        assert [row["kinds"] for row in assistant.call("executors").data] == [["http.request"]]
        alert_of(assistant, "unserved")


def _submitted_and_claimed(model: Model) -> str:
    """The id of a job that a claim has looked at and left."""
    submit_batch([model.line("word " * 80, max_output_tokens=50)], project_id=PROJECT, actor="key:test")
    worker = executor()
    assert claim_jobs(worker.pk, wanted=5, lease_seconds=30, turns=ClassTurns(0.1)) == []
    return str(Job.objects.get(held=True).pk)
