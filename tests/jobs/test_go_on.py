"""Telling what waits for others to go on all the same: over the API, in the admin, and in the audit trail."""

from __future__ import annotations

from typing import Any

import pytest
from django.urls import reverse

from jobs.features.dependencies.dependants import DependantsDuty, go_on
from jobs.models import Batch, Dependency, Job, JobEvent
from jobs.services.explain.waiting import explain_waiting
from jobs.services.operate import pauses
from jobs.services.submit.spec import parse_spec
from jobs.services.submit.submit import submit_batch, submit_job
from jobs.states import JobState
from queueops.audit.models import AuditEntry
from tests.api import described
from tests.api.conftest import Api, error_of, key_for
from tests.factories import KIND, make_job
from tests.support.people import signed_in
from tests.support.racing import run_together

pytestmark = pytest.mark.django_db

LINE: dict[str, Any] = {"kind": KIND, "payload": {"method": "GET", "url": "http://127.0.0.1:9/"}}


def a_waiting_job(**fields: Any) -> Job:
    spec = parse_spec({**LINE, "after": [str(make_job(**fields).pk)], "on_failure": "hold"})
    return Job.objects.get(pk=submit_job(spec, project_id="acme", actor="key:test").id)


def a_waiting_batch(count: int = 3, **options: Any) -> Batch:
    first = make_job()
    given = {"project_id": "acme", "actor": "key:test", "after": [first.pk], **options}
    return Batch.objects.get(pk=submit_batch([LINE] * count, **given).id)


def are_held(batch: Batch) -> set[bool]:
    return set(Job.objects.filter(batch=batch).values_list("held", flat=True))


@pytest.mark.parametrize("state", [JobState.QUEUED, JobState.FAILED])
def test_a_job_that_waits_or_is_held_by_a_failure_goes_on_when_somebody_says_so(state):
    job = a_waiting_job(state=state)
    DependantsDuty().do()
    told = go_on([job.pk], of_batch=False, actor="user:1", reason="part is enough")
    assert told.moved == [job.pk]
    waiting = explain_waiting(Job.objects.get(pk=job.pk))
    assert waiting is not None
    assert waiting.text == "it was told to go on all the same: in a moment"
    assert DependantsDuty().do() == 1
    assert not Job.objects.get(pk=job.pk).held
    assert not Dependency.objects.exists()
    event = JobEvent.objects.filter(job_id=job.pk).latest("id")
    assert event.message == "it was told not to wait any longer for others"
    entry = AuditEntry.objects.get(action="go_on")
    assert (entry.actor, entry.target, entry.reason) == ("user:1", f"job {job.pk}", "part is enough")
    assert entry.before is not None
    assert len(entry.before["waits_for"]) == 1


def test_a_batch_goes_on_and_a_pause_counts_as_before():
    batch = a_waiting_batch()
    pauses.pause_scope("kind", KIND, actor="user:1")
    assert go_on([batch.pk], of_batch=True, actor="user:1").moved == [batch.pk]
    DependantsDuty().do()
    assert are_held(batch) == {True}
    pauses.resume_scope("kind", KIND, actor="user:1")
    assert are_held(batch) == {False}


@pytest.mark.django_db(transaction=True)
def test_what_waits_for_nothing_is_left_alone_and_of_many_that_say_it_at_once_one_did():
    job, free = a_waiting_job(), make_job()
    told = run_together(6, lambda _: go_on([job.pk, free.pk], of_batch=False, actor="user:1").moved)
    assert sorted(told) == [[]] * 5 + [[job.pk]]
    assert AuditEntry.objects.filter(action="go_on").count() == 1


@pytest.fixture
def api(monkeypatch: pytest.MonkeyPatch) -> Api:
    return Api(key_for("acme"))


def test_the_api_lets_a_job_and_a_batch_go_on_once(api: Api):
    job, batch = a_waiting_job(), a_waiting_batch()
    for address in (f"/jobs/{job.pk}/go-on/", f"/batches/{batch.pk}/go-on/"):
        given, again = (api.post(address, {"reason": "part is enough"}, Idempotency_Key=address) for _ in range(2))
        assert given.status_code == 200, given.content
        assert again.json() == given.json()
        described.check(given)
        assert error_of(api.post(address), 409)["code"] == "wrong_state"
    DependantsDuty().do()
    assert not Job.objects.filter(held=True).exists()
    assert {entry.reason for entry in AuditEntry.objects.filter(action="go_on")} == {"part is enough"}


def test_only_who_may_operate_and_of_the_project_lets_it_go_on(api: Api):
    job = a_waiting_job()
    address = f"/jobs/{job.pk}/go-on/"
    assert error_of(Api(key_for("acme", scopes=["read", "submit"])).post(address), 403)
    assert error_of(Api(key_for("globex")).post(address), 404)
    assert not Dependency.objects.filter(let_go=True).exists()


def test_a_batch_tells_what_it_was_submitted_to_wait_for_also_when_that_is_over(api: Api):
    batch = a_waiting_batch(on_failure="run")
    [first] = Dependency.objects.filter(owner_id=batch.pk).values_list("on_id", flat=True)
    for _ in range(2):
        told = api.get(f"/batches/{batch.pk}/")
        described.check(told)
        assert (told.json()["after"], told.json()["on_failure"]) == ([str(first)], "run")
        go_on([batch.pk], of_batch=True, actor="user:1")
        DependantsDuty().do()
    plain = submit_batch([LINE], project_id="acme", actor="key:test")
    told = api.get(f"/batches/{plain.id}/").json()
    assert (told["after"], told["on_failure"]) == ([], None)


@pytest.mark.parametrize("model", ["job", "batch"])
def test_people_let_it_go_on_from_its_page(model: str):
    subject: Job | Batch = a_waiting_job() if model == "job" else a_waiting_batch()
    people = signed_in("operator")
    address = reverse(f"admin:jobs_{model}_change", args=[subject.pk])
    verb = reverse(f"admin:jobs_{model}_go_on", args=[subject.pk])
    page = people.get(address).content.decode()
    assert verb in page
    if model == "batch":
        assert "it waits" in page
    asked = people.get(verb)
    assert "wait" in asked.content.decode()
    people.post(verb, {"reason": "part is enough", "confirmed": "yes"}, follow=True)
    assert set(Dependency.objects.values_list("let_go", flat=True)) == {True}
    assert verb not in people.get(address).content.decode()
    DependantsDuty().do()
    if model == "batch":
        assert "that is over" in people.get(address).content.decode()
