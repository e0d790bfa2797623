"""Submitting work that waits for other work over the API."""

from __future__ import annotations

import json
from uuid import uuid4

import pytest
from django.urls import reverse

from jobs.models import Dependency, Job
from jobs.states import JobState
from tests.api.conftest import SPEC, Api, error_of
from tests.factories import make_batch, make_job
from tests.support.people import signed_in


def test_a_job_is_submitted_after_others_and_tells_what_it_waits_for(api: Api):
    first, batch = make_job(), make_batch()
    make_job(batch=batch)
    given = api.post("/jobs/", {**SPEC, "after": [str(first.pk), str(batch.pk)], "on_failure": "hold"})
    assert given.status_code == 201
    told = api.get(f"/jobs/{given.json()['id']}/").json()
    assert told["held"] is True
    assert [reason["code"] for reason in told["waiting"]["reasons"][:2]] == ["after", "after"]
    assert told["waiting_for"] == f"job {first.pk} has to end first"
    assert set(Dependency.objects.values_list("on_failure", "on_batch")) == {("hold", False), ("hold", True)}


@pytest.mark.parametrize("as_lines", [False, True])
def test_a_batch_is_submitted_after_others(api: Api, as_lines: bool):
    first, batch = make_job(), make_batch()
    after = [str(first.pk), str(batch.pk)]
    if as_lines:
        given = api.lines(json.dumps(SPEC), f"?after={','.join(after)}&on_failure=run")
    else:
        given = api.post("/batches/", {"jobs": [SPEC], "after": after, "on_failure": "run"})
    assert given.status_code == 201, given.content
    assert set(map(str, Dependency.objects.values_list("owner_id", flat=True))) == {given.json()["id"]}
    assert list(Dependency.objects.values_list("on_failure", flat=True)) == ["run", "run"]
    assert Job.objects.get(batch_id=given.json()["id"]).held
    held = api.get(f"/batches/{given.json()['id']}/waiting/").json()["results"]
    assert held[0]["reasons"][0]["code"] == "after"


NO_OTHERS: list[tuple[dict[str, object], str]] = [
    ({"after": [str(uuid4())]}, "after"),
    ({"after": ["x"]}, "after"),
    ({"after": [""]}, "after.0"),
    ({"after": [str(uuid4()) for _ in range(101)]}, "after"),
    ({"on_failure": "explode"}, "on_failure"),
]


def test_what_cannot_be_waited_for_is_refused_with_its_field(api: Api):
    for fields, place in NO_OTHERS:
        for refused in (api.post("/jobs/", SPEC | fields), api.post("/batches/", {"jobs": [SPEC]} | fields)):
            assert place in error_of(refused, 422)["fields"]
    assert not Job.objects.exists()


def test_another_projects_job_is_answered_as_one_that_does_not_exist(api: Api):
    foreign, nobody = make_job(project="globex").pk, uuid4()
    answers = []
    for one in (foreign, nobody):
        refused = api.post("/jobs/", {**SPEC, "after": [str(one)]})
        answers.append(json.dumps(error_of(refused, 422)).replace(str(one), "ID"))
    assert answers[0] == answers[1]


def test_the_admin_shows_what_a_job_waits_for_and_who_waits_for_it(api: Api):
    first = make_job(state=JobState.IN_PROGRESS)
    dependant = api.post("/jobs/", {**SPEC, "after": [str(first.pk)]}).json()["id"]
    people = signed_in("operator")
    page = people.get(reverse("admin:jobs_job_change", args=[dependant])).content.decode()
    assert "Waits for" in page
    assert reverse("admin:jobs_job_change", args=[first.pk]) in page
    assert "has to end first" in page
    page = people.get(reverse("admin:jobs_job_change", args=[first.pk])).content.decode()
    assert "Waited for by" in page
    assert "other jobs" in people.get(reverse("admin:jobs_job_changelist")).content.decode()


def test_a_job_tells_what_it_takes_and_one_file_holds_a_chain(api: Api):
    lines = [
        {**SPEC, "idempotency_key": "ask"},
        {**SPEC, "payload": {**SPEC["payload"], "headers": {"X-Id": {"$from": {"job": "ask", "path": "body.id"}}}}},
    ]
    lines[1] |= {"after": ["ask"], "idempotency_key": "tell"}
    given = api.lines("\n".join(map(json.dumps, lines)), "")
    assert given.status_code == 201, given.content
    ask, tell = (Job.objects.get(idempotency_key=key) for key in ("ask", "tell"))
    told = api.get(f"/jobs/{tell.pk}/").json()
    assert told["takes"] == [{"place": "payload.headers.X-Id", "job": str(ask.pk), "path": "body.id"}]
    assert told["waiting_for"] == f"job {ask.pk} has to end first. From its result it takes body.id"
    lines[1]["after"] = []
    refused = error_of(api.lines("\n".join(map(json.dumps, lines)), ""), 422)
    [fault] = refused["details"]["errors"]
    assert (fault["line"], list(fault["fields"])) == (2, ["payload.headers.X-Id"])
