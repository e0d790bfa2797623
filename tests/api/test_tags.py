"""Jobs and batches are found by their tags: in the API, in the admin and by the search, each in its own project."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest
from django.db import connection
from django.urls import reverse
from django.utils import timezone

from jobs.handlers import registry
from jobs.handlers.registry import find_handler
from jobs.models import Job, Tag
from jobs.services.operate.dead_letters import requeue_dead_letters
from jobs.services.operate.job_filter import count_jobs, parse_job_filter
from jobs.services.submit.documents.csv_jobs import jobs_of_csv
from jobs.services.submit.submit import submit_batch
from jobs.services.upkeep.retention import apply_retention
from jobs.states import UNFINISHED, JobState
from queueops.core.values.tags import MAX_TAGS
from queueops.tenancy.scope import reading_for
from tests.api.conftest import SPEC, Api, error_of, key_for
from tests.factories import make_batch, make_dead_letter, make_job, make_jobs, make_project
from tests.support.api import told
from tests.support.people import signed_in
from tests.support.plans import explain, nodes

FOUND_BY = "test.orders"


@pytest.fixture
def orders(monkeypatch: pytest.MonkeyPatch) -> None:
    """A kind whose jobs are found by two fields of their payloads."""
    searchable = replace(find_handler("http.request"), kind=FOUND_BY, searchable=("json.order_id", "json.customer.id"))
    monkeypatch.setattr(registry, "_handlers", {**registry._handlers, FOUND_BY: searchable})


def ids_of(response: Any) -> list[str]:
    assert response.status_code == 200, response.content
    return [row["id"] for row in response.json()["results"]]


def order(order_id: object, customer: object = None) -> dict[str, Any]:
    body = {"order_id": order_id, "customer": {"id": customer}}
    return {"kind": FOUND_BY, "payload": {**SPEC["payload"], "method": "POST", "json": body}}


def test_jobs_are_listed_by_all_or_by_any_of_their_tags(api: Api):
    both, eu, nightly, _ = [
        api.post("/jobs/", {**SPEC, **tags}).json()["id"]
        for tags in ({"tags": ["region:eu", "nightly", "nightly"]}, {"tags": ["region:eu"]}, {"tags": ["nightly"]}, {})
    ]
    assert ids_of(api.get("/jobs/?tags=nightly")) == [nightly, both]
    assert ids_of(api.get("/jobs/?tags=nightly,region:eu")) == [both]
    assert ids_of(api.get("/jobs/?any_tag=nightly,%20region:eu")) == [nightly, eu, both]
    assert ids_of(api.get("/jobs/?any_tag=nightly,region:eu&tags=region:eu&state=queued")) == [eu, both]
    assert ids_of(api.get("/jobs/?tags=nightl")) == []
    assert api.get(f"/jobs/{both}/").json()["tags"] == ["nightly", "region:eu"]
    assert [row["tags"] for row in api.get("/jobs/").json()["results"]][:2] == [[], ["nightly"]]


def test_pages_of_what_is_tagged_go_on_where_the_last_ended(api: Api):
    wanted = [str(job.pk) for job in make_jobs(7, tags=("t",))]
    make_jobs(3)
    first = api.get("/jobs/?tags=t&page_size=4").json()
    second = api.get(f"/jobs/?tags=t&page_size=4&cursor={first['next_cursor']}").json()
    assert [row["id"] for row in [*first["results"], *second["results"]]] == wanted[::-1]
    assert second["next_cursor"] is None


@pytest.mark.parametrize("form", ["document", "lines"])
def test_a_batch_has_tags_of_its_own(api: Api, form: str):
    if form == "lines":
        made = api.lines(json.dumps(SPEC), "?tags=import,%20week%2047&name=prices")
    else:
        made = api.post("/batches/", {"jobs": [SPEC], "name": "prices", "tags": ["import", "week 47"]})
    batch = made.json()["id"]
    make_batch(name="another")
    assert ids_of(api.get("/batches/?tags=week%2047,import")) == [batch]
    assert ids_of(api.get("/batches/?any_tag=import,other")) == [batch]
    assert ids_of(api.get("/jobs/?tags=import")) == []
    shown = api.get(f"/batches/{batch}/").json()
    assert shown["tags"] == ["import", "week 47"]
    assert [row["tags"] for row in api.get("/batches/").json()["results"]] == [[], ["import", "week 47"]]


NO_TAGS: list[tuple[object, str]] = [
    (["a,b"], "tags.0"),
    (["fine", " led by a space"], "tags.1"),
    ([""], "tags.0"),
    (["x" * 101], "tags.0"),
    (["line\nbreak"], "tags.0"),
    (["tab\tbed"], "tags.0"),
    ([7], "tags.0"),
    ([str(number) for number in range(MAX_TAGS + 1)], "tags"),
    ("nightly", "tags"),
]


def test_what_is_no_tag_is_refused_and_nothing_is_stored(api: Api):
    for tags, place in NO_TAGS:
        assert told(api.post("/jobs/", {**SPEC, "tags": tags}))[::2] == (422, [place]), tags
        assert error_of(api.post("/batches/", {"jobs": [SPEC], "tags": tags}), 422)
    assert not Job.objects.exists()
    assert not Tag.objects.exists()


def test_a_filter_that_is_no_tag_is_refused_and_not_answered_with_everything(api: Api):
    make_job(tags=("a",))
    for query in ("tags=", "tags=a,,b", "any_tag=,", "tags=a&tags=b", "tags=x%00", "tag=a", "tags=%0Aa,b%0Dc"):
        for path in ("/jobs/", "/batches/"):
            assert told(api.get(f"{path}?{query}"))[:2] == (400, "invalid_query"), query


def test_a_repeat_by_idempotency_key_adds_no_tags(api: Api):
    first = api.post("/jobs/", {**SPEC, "idempotency_key": "one", "tags": ["a"]}).json()["id"]
    assert api.post("/jobs/", {**SPEC, "idempotency_key": "one", "tags": ["b"]}).json()["id"] == first
    assert Tag.objects.of([UUID(first)]) == {UUID(first): ["a"]}


def test_a_row_of_a_file_names_its_tags_with_commas(db: None):
    text = 'kind,payload.method,payload.url,tags\nhttp.request,GET,https://api.example.org/,"a, b"\n'
    make_project()
    batch = submit_batch(jobs_of_csv(text), project_id="acme", actor="key:test")
    [job] = Job.objects.filter(batch_id=batch.id)
    assert Tag.objects.of([job.pk])[job.pk] == ["a", "b"]


def test_fields_that_a_kind_is_found_by_become_tags(api: Api, orders: None):
    first = api.post("/jobs/", order("A-17", 4711)).json()["id"]
    api.post("/jobs/", order("A-18, B", None))
    api.post("/jobs/", order(["no", "text"], ""))
    assert api.get(f"/jobs/{first}/").json()["tags"] == ["json.customer.id=4711", "json.order_id=A-17"]
    assert len(ids_of(api.get("/jobs/?tags=json.order_id=A-18%20%20B"))) == 1
    assert Tag.objects.count() == 3
    client = signed_in("viewer")
    page = reverse("admin:jobs_job_change", args=[first])
    assert client.get("/find/", {"q": "4711"})["Location"] == page
    assert client.get("/find/", {"q": "A-17"})["Location"] == page


def test_other_projects_and_other_users_see_none_of_it(api: Api):
    user = UUID(int=7)
    mine, _ = make_job(tags=("t",), user_id=user), make_job(tags=("t",), user_id=UUID(int=8))
    make_job(tags=("t",), project="globex")
    assert len(ids_of(api.get("/jobs/?tags=t"))) == 2
    assert len(ids_of(Api(key_for("globex")).get("/jobs/?tags=t"))) == 1
    with reading_for("acme", user):
        assert Tag.objects.of(Tag.objects.values_list("owner_id", flat=True)) == {mine.pk: ["t"]}


def test_what_takes_a_failed_jobs_place_has_its_tags(db: None, orders: None):
    letter = make_dead_letter(tags=("t",))
    [job] = requeue_dead_letters([letter.pk], actor="user:1").moved.values()
    assert Tag.objects.of([job]) == {job: ["t"]}


def test_tags_go_with_what_they_are_of(db: None):
    kept, gone = make_job(tags=("t",)), make_job(tags=("t",), state=JobState.COMPLETED)
    batch = make_batch(finished_at=timezone.now() - timedelta(days=3650))
    Tag.objects.create(owner_id=batch.pk, name="t", project_id="acme")
    Job.objects.filter(pk=gone.pk).update(finished_at=timezone.now() - timedelta(days=3650))
    apply_retention(seconds=30)
    assert set(Tag.objects.values_list("owner_id", flat=True)) == {kept.pk}


def test_the_admins_lists_are_narrowed_by_tags_and_so_is_what_is_done_to_all_that_match(db: None):
    both = make_job(tags=("a", "b"))
    make_job(tags=("a",))
    batch = make_batch()
    Tag.objects.create(owner_id=batch.pk, name="weekly", project_id="acme")
    client = signed_in("operator")
    jobs, batches = reverse("admin:jobs_job_changelist"), reverse("admin:jobs_batch_changelist")
    assert [row.pk for row in client.get(f"{jobs}?tags=a,%20b").context["cl"].result_list] == [both.pk]
    assert len(client.get(f"{jobs}?tags=a").context["cl"].result_list) == 2
    assert not client.get(f"{jobs}?tags=a,,b").context["cl"].result_list
    assert [row.pk for row in client.get(f"{batches}?tags=weekly").context["cl"].result_list] == [batch.pk]
    wanted = parse_job_filter({"tags": "a, b"})
    assert count_jobs(wanted, UNFINISHED).count == 1
    asked = client.get(f"{jobs}all-cancel/?tags=a,b").content.decode()
    assert "tags" in asked
    assert client.get(f"{jobs}all-cancel/?tags=a,,b")["Location"] == jobs
    page = client.get(reverse("admin:jobs_job_change", args=[both.pk])).content.decode()
    assert f'href="{jobs}?tags=b"' in page
    assert (
        f'href="{batches}?tags=weekly"'
        in client.get(reverse("admin:jobs_batch_change", args=[batch.pk])).content.decode()
    )
    assert "weekly" in client.get(batches).content.decode()


def test_the_search_goes_to_the_one_that_has_a_tag_or_to_the_list(db: None):
    one = make_job(tags=("only",))
    make_jobs(2, tags=("many",))
    client, jobs = signed_in("viewer"), reverse("admin:jobs_job_changelist")
    assert client.get("/find/", {"q": "only"})["Location"] == reverse("admin:jobs_job_change", args=[one.pk])
    assert client.get("/find/", {"q": "many"})["Location"] == f"{jobs}?tags=many"


def test_a_tag_is_found_by_its_index_however_many_jobs_there_are(db: None):
    """As the API's role, under row security, which keeps indexes on arrays from being used."""
    make_jobs(20_000)
    make_jobs(20, tags=("rare",))
    with connection.cursor() as cursor:
        cursor.execute(
            "INSERT INTO jobs_tag (owner_id, name, project_id)"
            " SELECT id, 'common' || (row_number() OVER () % 10), project_id FROM jobs_job"
        )
        cursor.execute("ANALYZE jobs_job, jobs_tag")
    for asked in (["rare"], ["rare", "common3"], ["nobody has it"]):
        with reading_for("acme"):
            rows = Job.objects.filter(project_id="acme").tagged(asked).order_by("-pk")[:51]
            statement, parameters = rows.values("pk").query.sql_with_params()
            with connection.cursor() as cursor:
                plan = explain(cursor.mogrify(statement, parameters))
        steps = list(nodes(plan))
        assert any(step.get("Index Name") == "jobs_tag_find_idx" for step in steps), asked
        read = sum(
            (step["Actual Rows"] + step.get("Rows Removed by Filter", 0)) * step["Actual Loops"] for step in steps
        )
        assert read < 1_000, (asked, read)
