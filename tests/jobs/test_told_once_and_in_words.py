"""What a page or an error says: in words that people know, once, of now, and of no more than is listed."""

from __future__ import annotations

import json
from datetime import timedelta
from types import SimpleNamespace
from typing import Any, cast
from uuid import uuid4

import pytest
from django.urls import reverse
from django.utils import timezone
from pydantic import BaseModel, ValidationError

from dashboards.services.batches import batch_rows
from jobs.admin.batches.screen import rate_of
from jobs.api.inputs import RequeueMany
from jobs.features.uploads.admin import _alike
from jobs.features.webhooks.inputs import NewWebhook
from jobs.models import Batch, DeadLetter
from jobs.services.explain.causes import causes_of
from jobs.services.submit.prepare import Rules, prepare_job
from jobs.services.submit.spec import InvalidJob, parse_spec
from jobs.services.upkeep.health import open_letters
from queueops.core.errors import fields_of
from queueops.core.values.near_names import nearest
from queueops.tenancy.models import ProducerKey, UserLabel
from queueops.tenancy.people import name_of
from queueops.tenancy.user_labels import in_words
from queueops_client.cli.estimate import tell_refused
from ratelimits.models import CallTally, Limit
from tests.factories import make_batch, make_dead_letter, make_jobs, make_project
from tests.support.people import signed_in

pytestmark = pytest.mark.django_db


def test_a_field_that_is_not_there_is_told_with_the_nearest_that_is():
    for given, meant in (
        ("userid", "user_id"),
        ("user", "user_id"),
        ("Payload", "payload"),
        ("prio", "priority"),
        ("delay", "delay_seconds"),
    ):
        with pytest.raises(InvalidJob) as caught:
            parse_spec(json.dumps({"kind": "http.request", given: 1}))
        assert f"Is {meant!r} meant?" in caught.value.fields[given][0]
    payload = {"method": "GET", "url": "https://api.example.com/", "header": {}}
    with pytest.raises(InvalidJob) as caught:
        prepare_job(parse_spec({"kind": "http.request", "payload": payload}), rules=Rules(None))
    assert "Is 'headers' meant?" in caught.value.fields["payload.header"][0]
    with pytest.raises(InvalidJob) as caught:
        parse_spec(json.dumps({"kind": "http.request", "colour": 1}))
    told = caught.value.fields["colour"][0]
    assert "meant" not in told
    assert "There are: kind, payload, priority" in told
    assert nearest("reason", ["note", "spread_seconds"]) == ""


def test_a_field_that_is_not_there_within_another_is_told_with_those_beside_it():
    told: dict[str, list[str]] = {}
    wrong: dict[type[BaseModel], dict[str, Any]] = {
        RequeueMany: {"filter": {"colour": 1, "error_cod": "x"}},
        NewWebhook: {"url": "https://e.org/", "jobs": {"kind": ["x"]}},
    }
    for model, given in wrong.items():
        with pytest.raises(ValidationError) as caught:
            model.model_validate(given)
        told |= fields_of(caught.value, known=model.model_fields)
    assert "There are: kind, service" in told["filter.colour"][0]
    assert "Is 'error_code' meant?" in told["filter.error_cod"][0]
    assert "Is 'kinds' meant?" in told["jobs.kind"][0]


def test_equal_errors_of_a_file_are_told_once_with_how_many_there_are():
    error = {"code": "invalid_job", "message": "The job is not valid."}
    errors: list[dict[str, Any]] = [{**error, "line": n, "fields": {"userid": ["no"]}} for n in range(1, 999)]
    errors.append({**error, "line": 1000, "fields": {"payload": ["none"]}})
    assert [(one["line"], one["more"], one["fields"]) for one in _alike(errors)] == [
        (1, 997, [("userid", "no")]),
        (1000, 0, [("payload", "none")]),
    ]


def test_the_command_tells_equal_refusals_once_too():
    notes: list[str] = []
    errors: list[dict[str, Any]] = [
        {"line": n, "message": "Not valid.", "fields": {"user": ["no"]}} for n in range(1, 10)
    ]
    errors.append({"line": 10, "message": "Other."})
    places = [f"Row {n}" for n in range(2, 12)]
    tell_refused(cast("Any", SimpleNamespace(note=notes.append)), errors, 10, places)
    assert notes == ["10 jobs refused:", "  row 2 and 8 more: Not valid. user: no", "  row 11: Other."]


def test_a_batch_that_stands_still_has_no_speed_on_any_surface():
    batch = make_batch()
    make_jobs(1, batch=batch)
    Batch.objects.update(rate_per_second=113.0, sampled_at=timezone.now())
    assert "113.0 jobs/s" in rate_of(Batch.objects.get())
    assert batch_rows(links=False)[0]["rate"] == 113
    Batch.objects.update(sampled_at=timezone.now() - timedelta(minutes=2))
    assert "jobs/s" not in rate_of(Batch.objects.get())
    assert not batch_rows(links=False)[0]["rate"]
    Batch.objects.update(rate_per_second=0.01)  # one in 100 s: two minutes of silence are nothing to it
    assert Batch.objects.get().rate_now == 0.01


def test_what_failed_long_ago_is_not_told_as_most_lately():
    make_dead_letter(error_code="old")
    assert open_letters().cause.startswith("Most lately: old")
    DeadLetter.objects.update(created_at=timezone.now() - timedelta(days=2))
    assert open_letters().cause.startswith("The newest, of ")
    make_dead_letter(error_code="new")
    assert open_letters().cause.startswith("Most lately: new")


def test_a_cause_of_several_projects_says_how_much_is_whose():
    for project, count in (("acme", 2), ("beta", 1)):
        for _ in range(count):
            make_dead_letter(project=project)
    [cause] = causes_of({})
    assert (cause.count, dict(cause.projects)) == (3, {"acme": 2, "beta": 1})
    page = signed_in("operator").get(reverse("admin:jobs_deadletter_groups")).content.decode()
    assert f"fingerprint={cause.fingerprint}&amp;project=beta" in page
    assert dict(causes_of({"project_id": "beta"})[0].projects) == {"beta": 1}


def test_a_key_is_told_by_its_name():
    key, _ = ProducerKey.issue(make_project(), name="nightly import", scopes=["read"])
    assert name_of(f"key:{key.prefix}") == f"key nightly import ({key.prefix}…)"
    assert name_of("key:qo_gone") == "key:qo_gone"


def test_users_are_told_by_what_they_are_called_wherever_that_is_one_thing():
    ada, bob = uuid4(), uuid4()
    for project, label in (("acme", "Ada"), ("beta", "A. Lovelace")):
        UserLabel.objects.create(project=make_project(project), user_id=ada, label=label)
    UserLabel.objects.create(project_id="acme", user_id=bob, label="Bob")
    names = [f"acme / {ada}", f"beta / {ada}", f"gone / {ada}", str(ada), str(bob), "robot", ""]
    told = in_words(names)
    assert [told[name] for name in names] == [
        *("acme / Ada", "beta / A. Lovelace", f"gone / {ada}", str(ada), "Bob", "robot", ""),
    ]
    assert in_words([str(ada)], project_id="beta")[str(ada)] == "A. Lovelace"
    limit = Limit.objects.create(name="s", service="s", scope="project_user", capacity=1)
    CallTally.objects.create(service="s", call_type="read", user=str(bob), project="acme", calls=1, tokens=1)
    page = signed_in("viewer").get(reverse("admin:ratelimits_limit_change", args=[limit.pk])).content.decode()
    assert "acme / Bob" in page


def test_no_button_above_a_list_is_for_everything_there_is():
    make_dead_letter()
    make_jobs(1)
    client = signed_in("operator")
    for screen, narrowed in (("jobs_job", "state=queued"), ("jobs_deadletter", "project=acme")):
        address = reverse(f"admin:{screen}_changelist")
        assert "All that match" not in client.get(address).content.decode()
        assert "All that match" in client.get(f"{address}?{narrowed}").content.decode()
