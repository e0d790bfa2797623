"""Batches that name a callback, over the API and in the admin."""

from __future__ import annotations

import json
from typing import Any
from urllib.parse import quote

import pytest
from django.urls import reverse

from jobs.features.dependencies.dependants import DependantsDuty
from jobs.models import Batch, Job
from jobs.services.operate.job_actions import cancel_jobs
from tests.api.conftest import SPEC, Api, error_of
from tests.support.people import signed_in

CALLBACK = {**SPEC, "priority": "urgent"}


def submitted(api: Api, *, as_lines: bool, on_finish: Any = CALLBACK) -> Any:
    if as_lines:
        text = on_finish if isinstance(on_finish, str) else json.dumps(on_finish)
        return api.lines(json.dumps(SPEC), f"?on_finish={quote(text)}")
    return api.post("/batches/", {"jobs": [SPEC], "on_finish": on_finish})


@pytest.mark.parametrize("as_lines", [False, True])
def test_a_batch_and_its_callback_name_each_other(api: Api, as_lines: bool):
    given = submitted(api, as_lines=as_lines)
    assert given.status_code == 201, given.content
    batch = api.get(f"/batches/{given.json()['id']}/").json()
    callback = api.get(f"/jobs/{batch['on_finish_job']}/").json()
    assert (callback["priority"], callback["held"], callback["batch"]) == ("urgent", True, None)
    assert callback["ended_batch"] == {"batch": batch["id"], "name": "", "counts": None, "verdict": None}
    assert callback["waiting_for"] == f"batch {batch['id']} has to end first"
    cancel_jobs(Job.objects.filter(batch_id=batch["id"]).values_list("pk", flat=True), actor="user:1", reason="x")
    DependantsDuty().do()
    callback = api.get(f"/jobs/{batch['on_finish_job']}/").json()
    assert callback["ended_batch"]["counts"]["cancelled"] == 1
    assert api.get("/batches/").json()["results"][0]["on_finish_job"] == callback["id"]


def test_a_batch_without_a_callback_says_so(api: Api):
    given = api.post("/batches/", {"jobs": [SPEC]}).json()
    assert api.get(f"/batches/{given['id']}/").json()["on_finish_job"] is None


NO_CALLBACKS: list[tuple[Any, str]] = [
    ({"kind": "nobody.does"}, "on_finish.kind"),
    ({**SPEC, "payload": {}}, "on_finish.payload.method"),
    ({**SPEC, "delay_seconds": 5}, "on_finish.delay_seconds"),
    ({**SPEC, "colour": "red"}, "on_finish.colour"),
    ("not JSON", "on_finish"),
]


def test_what_can_be_no_callback_is_refused_at_its_field(api: Api):
    for on_finish, place in NO_CALLBACKS:
        is_shape = place in ("on_finish", "on_finish.colour")
        for as_lines in (False, True):
            refused = submitted(api, as_lines=as_lines, on_finish=on_finish)
            # A wrong query parameter is 400, as everywhere.
            assert place in error_of(refused, 400 if as_lines and is_shape else 422)["fields"]
    assert not Batch.objects.exists()


def test_a_repeated_submission_stores_no_second_callback(api: Api):
    body = {"jobs": [SPEC], "on_finish": CALLBACK}
    first, second = (api.post("/batches/", body, Idempotency_Key="one") for _ in range(2))
    assert first.json() == second.json()
    assert second["Idempotency-Replayed"] == "true"
    assert Job.objects.count() == 2


def test_the_pages_of_batch_and_callback_lead_to_each_other(api: Api):
    batch = Batch.objects.get(pk=submitted(api, as_lines=False).json()["id"])
    people = signed_in("operator")
    batch_address = reverse("admin:jobs_batch_change", args=[batch.pk])
    callback_address = reverse("admin:jobs_job_change", args=[batch.on_finish_job])
    page = people.get(batch_address).content.decode()
    assert "When it ends" in page
    assert callback_address in page
    page = people.get(callback_address).content.decode()
    assert "Callback of" in page
    assert batch_address in page
    Job.objects.exclude(batch=batch).delete()
    assert "carried out and is deleted" in people.get(batch_address).content.decode()
