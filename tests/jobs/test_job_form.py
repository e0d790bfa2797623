"""A job from a form: what is drawn, what is refused and where, who may, and that one form makes one job."""

from __future__ import annotations

import json
import re
from html import unescape
from typing import Any
from urllib.parse import urlencode
from uuid import uuid4

import pytest
from django.db import connection
from django.test import Client
from django.urls import reverse

from jobs.handlers.registry import all_handlers, find_handler
from jobs.models import DeadLetter, Job, Tag
from jobs.states import JobState
from queueops.audit.models import AuditEntry
from queueops.screens import forms as screen_forms
from queueops.tenancy.models import Credential
from tests.factories import KIND, make_dead_letter, make_job, make_project
from tests.support.cases import every_case
from tests.support.people import permitted, signed_in

pytestmark = pytest.mark.django_db

KINDS = sorted(handler.kind for handler in all_handlers() if not handler.internal)
LIST = "/admin/jobs/job/"
GET = {"payload.method": "GET", "payload.url": "https://api.example.org/rows/7"}
SECRET = json.dumps(
    {"method": "PUT", "url": "https://api.example.org/7", "headers": {"Authorization": "Bearer abc"}, "json": {"n": 1}}
)


def new_of(kind: str = KIND, project: str = "acme") -> str:
    return f"{LIST}new/?{urlencode({'kind': kind, 'project': project})}"


def fields_of(page: str) -> dict[str, str]:
    """The fields that a browser would send of a page that nobody has touched."""
    found = {}
    for tag in re.findall(r"<input[^>]*>", page):
        name, value = re.search(r' name="([^"]+)"', tag), re.search(r' value="([^"]*)"', tag)
        is_box = 'type="checkbox"' in tag
        if name and (not is_box or re.search(r" checked[\s>]", tag)):
            found[name[1]] = unescape(value[1]) if value else "on" if is_box else ""
    for name, text in re.findall(r'<textarea name="([^"]+)"[^>]*>(.*?)</textarea>', page, re.DOTALL):
        found[name] = unescape(text.removeprefix("\n"))
    for name, options in re.findall(r'<select name="([^"]+)"[^>]*>(.*?)</select>', page, re.DOTALL):
        chosen = re.search(r'value="([^"]*)" selected', options) or re.search(r'value="([^"]*)"', options)
        found[name] = unescape(chosen[1]) if chosen else ""
    return {name: value for name, value in found.items() if name != "csrfmiddlewaretoken"}


def shown(client: Client, address: str, **given: str) -> str:
    """The page after a check, or before it where nothing is given."""
    answer = client.post(address, given) if given else client.get(address)
    assert answer.status_code == 200, answer
    return answer.content.decode()


def checked(client: Client, address: str, given: dict[str, str]) -> dict[str, str]:
    """The fields as they are sent by *Submit*, once the price was shown."""
    first = fields_of(shown(client, address)) | given
    page = shown(client, address, **first, check="yes")
    assert "Forecast, if submitted now" in page, re.findall(r'qo-error">(.*?)<', page)
    return fields_of(page) | {"submit": "yes"}


def error_at(page: str, name: str) -> str:
    found = re.search(rf'id="id_{re.escape(name)}_error">(.*?)</div>', page, re.DOTALL)
    return unescape(re.sub(r"<[^>]+>", " ", found[1])).strip() if found else ""


@pytest.mark.parametrize("kind", KINDS)
def test_each_kind_is_drawn_with_every_field_that_it_takes_and_what_it_requires_is_marked(kind: str):
    make_project()
    page = shown(signed_in("operator"), new_of(kind))
    schema = find_handler(kind).schema.json_schema()
    names = [f"payload.{name}" for name in schema["properties"]] if "properties" in schema else ["payload"]
    for name in names:
        assert f' name="{name}"' in page, name
    required = set(schema.get("required", ()))
    marked = set(re.findall(r'<label for="id_payload\.([^"]+)">[^<]*<span class="qo-required"', page))
    assert marked == required
    folded = page[page.index('class="qo-more"') :] if 'class="qo-more"' in page else ""
    assert not {name for name in required if f' name="payload.{name}"' in folded}


def test_rare_fields_of_a_large_payload_are_folded_and_seen_where_they_are_wrong_or_filled():
    client, text = signed_in("operator"), {"provider": "openai", "credential": "x", "model": "m", "prompt": "Hello"}
    make_project()
    page = shown(client, new_of("llm.generate"))
    begin = page.index('class="qo-more"')
    assert page.index('name="payload.prompt"') < begin < page.index('name="payload.tools"')
    assert "<details" in page[:begin]
    assert 'class="qo-more" open' not in page
    assert 'class="qo-more" open' in shown(client, new_of("llm.generate"), **{"payload.seed": "x"}, check="yes")
    job = make_job(state=JobState.COMPLETED, kind="llm.generate", payload=json.dumps({**text, "seed": 0, "top_p": 1}))
    assert 'class="qo-more" open' in shown(client, f"{LIST}{job.pk}/with-changes/")


def test_project_and_kind_are_chosen_first_and_kinds_of_the_platform_are_not_among_them():
    make_project()
    client = signed_in("operator")
    page = shown(client, f"{LIST}new/?kind={KIND}")
    assert f'value="{KIND}" selected' in page
    assert "queueops.webhook" not in page
    for kind, project in (("queueops.webhook", "acme"), ("no.such", "acme"), (KIND, "nobody")):
        assert "Select a valid choice" in shown(client, new_of(kind, project))
    assert shown(client, f"{LIST}").count("New job") == 1


def test_where_projects_are_too_many_to_list_the_form_searches_them(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(screen_forms, "MAX_PROJECTS_LISTED", 2)
    for name in ("acme", "globex"):
        make_project(name)
    client = signed_in("operator")
    assert '<option value="globex">' in shown(client, f"{LIST}new/")
    make_project("initech")
    page = shown(client, f"{LIST}new/?project=initech")
    assert '<option value="globex">' not in page
    assert '<option value="initech" selected>' in page
    assert "admin/js/autocomplete.js" in page
    address = re.search(r'data-ajax--url="([^"]+)"', page)
    assert address
    asked = {"app_label": "jobs", "model_name": "job", "field_name": "project", "term": "nite"}
    assert [one["id"] for one in client.get(address[1], asked).json()["results"]] == ["initech"]
    assert 'name="payload.url"' in shown(client, new_of(project="initech"))


def test_a_job_is_submitted_after_its_price_was_shown_and_the_trail_says_by_whom():
    make_project()
    client = signed_in("operator")
    given = GET | {"priority": "urgent", "scheduled_at": "2031-02-03T04:05", "tags": "one\r\ntwo", "reason": "a try"}
    submitted = checked(client, new_of(), given)
    assert not Job.objects.exists(), "a check submits nothing"
    answer = client.post(new_of(), submitted)
    job = Job.objects.get()
    assert answer["Location"] == reverse("admin:jobs_job_change", args=[job.pk])
    assert job.payload == {"method": "GET", "url": "https://api.example.org/rows/7"}, "what is left empty is left out"
    assert (job.priority, job.scheduled_at and job.scheduled_at.isoformat()) == ("urgent", "2031-02-03T04:05:00+00:00")
    assert Tag.objects.of([job.pk]) == {job.pk: ["one", "two"]}
    entry = AuditEntry.objects.get(action="submit_job")
    assert (entry.target, entry.reason, entry.project_id) == (f"job {job.pk}", "a try", "acme")
    assert entry.actor.startswith("user:")


def test_the_same_form_sent_twice_makes_one_job():
    make_project()
    client = signed_in("operator")
    submitted = checked(client, new_of(), GET)
    first, second = client.post(new_of(), submitted), client.post(new_of(), submitted)
    assert first["Location"] == second["Location"]
    assert Job.objects.count() == AuditEntry.objects.filter(action="submit_job").count() == 1
    page = shown(client, new_of(), **{**submitted, "payload.url": "https://api.example.org/8"})
    assert "Choose another, or leave it empty." in error_at(page, "idempotency_key")
    assert Job.objects.count() == 1


def test_what_was_changed_after_its_price_is_priced_anew_and_not_submitted():
    make_project()
    client = signed_in("operator")
    submitted = checked(client, new_of(), GET)
    changed = submitted | {"payload.url": "https://api.example.org/8"}
    page = shown(client, new_of(), **changed)
    assert "The job has changed since its forecast." in page
    assert not Job.objects.exists()
    assert client.post(new_of(), fields_of(page) | {"submit": "yes"}).status_code == 302
    assert client.post(new_of(), GET | {"submit": "yes"}).status_code == 200, "nobody saw its price"
    assert Job.objects.get().payload["url"].endswith("/8")


@every_case(
    ("given", "name", "said"),
    [
        ({"payload.method": ""}, "payload.method", "Field required"),
        ({"payload.method": "BREW"}, "payload.method", "none of the choices"),
        ({"payload.url": "ftp://example.org"}, "payload.url", "http"),
        ({"payload.headers": "{"}, "payload.headers", "Not JSON"),
        ({"payload.headers": "[]"}, "payload.headers", "Write a JSON object"),
        ({"payload.headers": '{"A": 5}'}, "payload.headers", "A: Input should be a valid string"),
        ({"payload.json": "NaN", "payload.method": "PUT"}, "payload.json", "JSON has no such number"),
        ({"payload.timeout_seconds": "soon"}, "payload.timeout_seconds", "Write a number"),
        ({"payload.timeout_seconds": "900"}, "payload.timeout_seconds", "less than or equal to 55"),
        ({"payload.max_response_bytes": "1.5"}, "payload.max_response_bytes", "integer"),
        ({"payload.credential": "nobodys"}, "payload.credential", "none of the choices"),
        ({"scheduled_at": "tomorrow"}, "scheduled_at", "Write a time"),
        ({"user_id": "me"}, "user_id", "UUID"),
        ({"retry_policy": "never"}, "retry_policy", "none of the choices"),
        ({"idempotency_key": "x" * 201}, "idempotency_key", "200"),
        ({"payload.text": "nul \0"}, "payload.text", "Null characters"),
        ({"after": str(uuid4())}, "after", "no job"),
    ],
    undone=True,
)
def test_wrong_input_is_told_at_its_field_and_nothing_typed_is_lost(given: dict[str, str], name: str, said: str):
    make_project()
    client = signed_in("operator")
    typed = GET | given
    page = shown(client, new_of(), **typed, check="yes")
    assert said in error_at(page, name), error_at(page, name)
    kept = fields_of(page)
    chosen = {one for one in typed if f'<select name="{one}"' in page}
    assert {one: kept[one] for one in typed if one not in chosen} == {
        one: text for one, text in typed.items() if one not in chosen
    }
    assert "Forecast" not in page
    assert not Job.objects.exists()


def test_fields_that_do_not_go_together_are_told_above_them():
    make_project()
    page = shown(
        signed_in("operator"),
        new_of("llm.generate"),
        **{"payload.provider": "openai", "payload.model": "m"},
        check="yes",
    )
    assert "none was" not in page
    assert error_at(page, "payload.credential") == "Field required"
    page = shown(signed_in("operator"), new_of(), **GET, **{"payload.text": "a body"}, check="yes")
    assert "a GET request has no body" in page


def test_json_is_stored_as_it_was_typed():
    make_project()
    client = signed_in("operator")
    typed = GET | {"payload.method": "PUT", "payload.json": '{"b": 1.10, "a": 12345678901234567890.5}'}
    client.post(new_of(), checked(client, new_of(), typed))
    with connection.cursor() as cursor:
        cursor.execute("SELECT payload_text FROM jobs_job")
        assert '{"b": 1.10, "a": 12345678901234567890.5}' in cursor.fetchone()[0]


def test_the_projects_credentials_are_offered_and_no_others():
    project = make_project()
    for name, service in (("ours", "openai"), ("theirs", "openai")):
        credential = Credential.objects.create(name=name, service=service)
        if name == "ours":
            credential.projects.add(project)
    page = shown(signed_in("operator"), new_of("llm.generate"))
    assert "ours (openai)" in page
    assert "theirs" not in page


def test_the_price_of_a_language_models_job_is_shown_before_it_is_submitted():
    credential = Credential.objects.create(name="ours", service="openai")
    credential.projects.add(make_project())
    given = {
        f"payload.{name}": text
        for name, text in (("provider", "openai"), ("credential", "ours"), ("model", "gpt-4o"), ("prompt", "Hello"))
    }
    client = signed_in("operator")
    page = shown(client, new_of("llm.generate"), **given, check="yes")
    assert "input tokens" in page
    assert client.post(new_of("llm.generate"), fields_of(page) | {"submit": "yes"}).status_code == 302
    assert Job.objects.get().payload == {
        "provider": "openai",
        "credential": "ours",
        "model": "gpt-4o",
        "prompt": "Hello",
    }


@pytest.mark.parametrize("role", [None, "viewer", "limits manager", "operator"])
def test_only_those_who_may_submit_find_the_form(role: str | None):
    ended, letter = make_job(state=JobState.COMPLETED), make_dead_letter()
    client, may = signed_in(role), role == "operator"
    pages = {
        LIST: "New job",
        f"{LIST}{ended.pk}/change/": "Run again with changes",
        f"/admin/jobs/deadletter/{letter.pk}/change/": "Run again with changes",
    }
    for page, button in pages.items():
        assert (button in client.get(page).content.decode()) == may, page
    before = Job.objects.count()
    for address in (new_of(), f"{LIST}{ended.pk}/with-changes/", f"/admin/jobs/deadletter/{letter.pk}/with-changes/"):
        assert client.get(address).status_code == (200 if may else 403), address
        assert client.post(address, GET | {"submit": "yes", "reason": "x"}).status_code == (200 if may else 403), (
            address
        )
    assert Job.objects.count() == before


def test_an_ended_jobs_work_is_done_again_with_one_field_changed_and_its_secret_kept():
    user = uuid4()
    job = make_job(state=JobState.COMPLETED, payload=SECRET, user_id=user, priority="urgent")
    Tag.objects.create(owner_id=job.pk, project_id="acme", name="nightly")
    client, address = signed_in("operator"), f"{LIST}{job.pk}/with-changes/"
    page = shown(client, address)
    assert "Bearer abc" not in page
    opened = fields_of(page)
    assert (opened["payload.method"], opened["priority"], opened["user_id"], opened["tags"]) == (
        "PUT",
        "urgent",
        str(user),
        "nightly",
    )
    submitted = checked(client, address, {"payload.url": "https://api.example.org/8", "reason": "the row moved"})
    assert "Bearer abc" not in json.dumps(submitted)
    first, second = client.post(address, submitted), client.post(address, submitted)
    assert first["Location"] == second["Location"]
    new = Job.objects.exclude(pk=job.pk).get()
    assert new.payload == json.loads(SECRET) | {"url": "https://api.example.org/8"}
    assert (new.priority, new.user_id, new.project_id) == ("urgent", user, "acme")
    assert new.effect_key != job.effect_key
    entry = AuditEntry.objects.get(action="run_again")
    assert (entry.target, entry.after, entry.reason) == (f"job {job.pk}", {"job": str(new.pk)}, "the row moved")


def test_the_credential_of_the_job_stays_chosen_also_where_the_project_may_not_use_it_any_more():
    credential = Credential.objects.create(name="ours", service="openai")
    text = json.dumps({"provider": "openai", "credential": "ours", "model": "gpt-4o", "prompt": "Hello"})
    job = make_job(state=JobState.COMPLETED, kind="llm.generate", payload=text)
    client, address = signed_in("operator"), f"{LIST}{job.pk}/with-changes/"
    page = shown(client, address)
    assert fields_of(page)["payload.credential"] == "ours"
    assert "ours (the project may not use it)" in page
    page = shown(client, address, **{**fields_of(page), "reason": "x"}, check="yes")
    assert "may not use it, or it does not exist" in error_at(page, "payload.credential")
    credential.projects.add(make_project())
    assert client.post(address, checked(client, address, {"reason": "x"})).status_code == 302
    assert Job.objects.exclude(pk=job.pk).get().payload == json.loads(text)


def test_a_reason_is_wanted_and_a_mask_that_stands_for_nothing_is_refused():
    job = make_job(state=JobState.COMPLETED, payload=SECRET)
    client, address = signed_in("operator"), f"{LIST}{job.pk}/with-changes/"
    page = shown(client, address, **fields_of(shown(client, address)), check="yes")
    assert error_at(page, "reason") == "This field is required."
    masks = {"payload.headers": '{"X-Other": "••••••"}', "reason": "x"}
    page = shown(client, address, **{**fields_of(page), **masks}, check="yes")
    assert "Write the secret in place of its mask" in error_at(page, "payload.headers")
    assert fields_of(page)["payload.headers"] == masks["payload.headers"]


def test_what_has_not_ended_is_not_done_again():
    job = make_job()
    client, address = signed_in("operator"), f"{LIST}{job.pk}/with-changes/"
    assert "Run again with changes" not in shown(client, f"{LIST}{job.pk}/change/")
    assert client.post(address, GET | {"submit": "yes", "reason": "x"}).status_code == 302
    assert Job.objects.count() == 1
    assert client.get(f"{LIST}{uuid4()}/with-changes/").status_code == 404


def test_a_dead_letter_is_requeued_with_one_field_changed():
    letter = make_dead_letter(payload=SECRET)
    client, address = signed_in("operator"), f"/admin/jobs/deadletter/{letter.pk}/with-changes/"
    submitted = checked(client, address, {"payload.url": "https://api.example.org/8", "reason": "it moved"})
    assert client.post(address, submitted).status_code == 302
    again = client.post(address, submitted)
    assert again["Location"] == reverse("admin:jobs_deadletter_change", args=[letter.pk])
    requeued = DeadLetter.objects.get(pk=letter.pk)
    assert (requeued.resolution, requeued.note) == ("requeued", "it moved")
    new = requeued.requeued_as
    assert new is not None
    assert new.payload == json.loads(SECRET) | {"url": "https://api.example.org/8"}
    assert new.effect_key == letter.job.effect_key
    assert Job.objects.count() == 2


def test_a_payload_that_a_person_may_not_read_is_not_shown_and_they_are_told_so(monkeypatch: pytest.MonkeyPatch):
    make_project(encrypted=True)
    job = make_job(state=JobState.COMPLETED, payload=SECRET)
    page = shown(permitted("view_job", "run_again"), f"{LIST}{job.pk}/with-changes/")
    assert "you may not read it" in page
    assert "example.org" not in page
    assert fields_of(page)["payload.method"] == ""
    assert "api.example.org" in shown(signed_in("operator"), f"{LIST}{job.pk}/with-changes/")


def test_values_that_do_not_fit_their_fields_are_shown_as_json_and_kept():
    payload: dict[str, Any] = {"method": "GET", "url": {"$from": {"job": "a", "path": "url"}}, "from_before": [1]}
    job = make_job(state=JobState.CANCELLED, payload=json.dumps(payload))
    opened = fields_of(shown(signed_in("operator"), f"{LIST}{job.pk}/with-changes/"))
    assert json.loads(opened["payload.url"]) == payload["url"]
    assert json.loads(opened["payload"]) == {"from_before": [1]}
