"""The admin's lists stay quick when tables are long."""

from __future__ import annotations

import json
import re
from datetime import timedelta
from typing import Any
from uuid import UUID, uuid4

import pytest
from django.db import connection
from django.db.models.functions import Now
from django.test.utils import CaptureQueriesContext
from django.urls import reverse
from django.utils import timezone

from dashboards.services import alerts
from dashboards.services.shared.cache import CachedRead
from jobs.models import DeadLetter, Dependency, Job, ServiceBreaker, new_id
from jobs.states import JobState
from queueops.core.values.identifiers import first_id_at, time_of
from queueops.screens import forms as screen_forms
from queueops.screens import paging
from queueops.tenancy.user_labels import label_users
from ratelimits.limits import catalogue
from ratelimits.models import Allowance
from tests.factories import make_batch, make_dead_letters, make_job, make_jobs, make_project
from tests.support.cases import every_case
from tests.support.people import signed_in

NOBODY = UUID(int=404)
JOBS = "/admin/jobs/job/"
LETTERS = "/admin/jobs/deadletter/"
MAX_QUERIES = 18

pytestmark = pytest.mark.django_db


def ids_of(response) -> list[UUID]:
    return [row.pk for row in response.context["cl"].result_list]


@pytest.fixture
def nothing_lapses(monkeypatch):
    """What is kept for some seconds is read by the first page alone, however long the pages take and came before."""
    monkeypatch.setattr(catalogue, "LIMITS_KEPT_SECONDS", 3600.0)
    monkeypatch.setattr(alerts, "_of_users", CachedRead(alerts._newest_of_users, seconds=3600.0))


def queries_of(client, address) -> list[str]:
    catalogue.forget()  # or the first of two pages alone would read the limits
    with CaptureQueriesContext(connection) as captured:
        assert client.get(address).status_code == 200
    return [query["sql"] for query in captured.captured_queries]


@pytest.mark.parametrize(
    "address",
    [
        JOBS,
        f"{JOBS}?state=queued&kind=http.request&priority=low&project=acme",
        f"{JOBS}?user_id={NOBODY}",
        f"{JOBS}?created_at_from_0=2026-01-01&created_at_to_0=2036-01-01",
        "/admin/jobs/batch/",
        LETTERS,
        f"{LETTERS}?kind=http.request&service=http&error_code=not_found&resolution=any",
        "/admin/",
    ],
)
@pytest.mark.usefixtures("nothing_lapses")
def test_a_page_takes_as_many_queries_for_fifty_rows_as_for_one_and_counts_no_table(address):
    batch = make_batch()
    make_dead_letters(1, batch=batch)
    client = signed_in("superuser")
    few = queries_of(client, address)
    make_jobs(60, batch=batch)
    make_dead_letters(60, batch=batch)
    for _ in range(60):
        make_batch()
    many = queries_of(client, address)
    assert len(many) <= len(few) + 1  # the window's own query, once there are rows enough
    assert len(many) <= MAX_QUERIES
    whole_table = re.compile(r'COUNT\(\*\).*FROM "jobs_(job|batch|jobevent)"', re.IGNORECASE)
    assert not [sql for sql in many if whole_table.search(sql) and "LIMIT" not in sql]


def test_pages_follow_each_other_by_id_and_miss_nothing():
    jobs = make_jobs(120)
    client = signed_in("superuser")
    seen: list[UUID] = []
    address: str | None = JOBS
    while address:
        response = client.get(address)
        seen += ids_of(response)
        link = response.context["cl"].older_link
        address = f"{JOBS}{link}" if link else None
        make_job()  # one that comes meanwhile shifts nothing
    assert seen[-120:] == [job.pk for job in reversed(jobs)]
    assert len(seen) == len(set(seen))


def shown_of(page: Any) -> str:
    """What the foot of a list says of its size."""
    foot = page.content.decode().partition("qo-pages")[2].partition("</nav>")[0]
    return " ".join(re.sub(r"<[^>]*>", " ", foot.partition('muted">')[2]).split())


def test_a_list_says_how_much_there_is_exactly_where_it_can(monkeypatch):
    client = signed_in("superuser")
    batch = make_batch()
    make_jobs(5)
    assert shown_of(client.get(JOBS)) == "5 shown"
    make_jobs(200, batch=batch)
    make_jobs(120, state=JobState.COMPLETED)
    assert shown_of(client.get(JOBS)) == "50 shown of 325"
    assert shown_of(client.get(f"{JOBS}?state=queued")) == "50 shown of 205"
    assert shown_of(client.get(f"{JOBS}?batch_id={batch.pk}")) == "50 shown of 200"
    assert shown_of(client.get(f"{JOBS}?state=completed")) == "50 shown"  # counters keep what retention deleted
    assert shown_of(client.get(f"{JOBS}?state=queued&kind=sandbox.call")).endswith("shown")
    monkeypatch.setattr(paging, "MAX_LISTED_COUNTED", 300)
    assert shown_of(client.get(JOBS)) == "50 shown of more than 300"


def test_a_list_that_shows_open_ones_alone_counts_those_and_each_filter_can_be_taken_off():
    """It said: 50 shown of about 20,867, where 902 were open."""
    make_dead_letters(60)
    DeadLetter.objects.filter(pk__in=[letter.pk for letter in make_dead_letters(40)]).update(resolution="discarded")
    client, letters = signed_in("superuser"), reverse("admin:jobs_deadletter_changelist")
    page = client.get(letters)
    assert shown_of(page) == "50 shown of 60"
    assert page.context["cl"].chips == [{"title": "state", "words": "open", "href": ""}]
    narrowed = client.get(f"{letters}?resolution=discarded&kind=http.request")
    chips = {chip["title"]: (chip["words"], chip["href"]) for chip in narrowed.context["cl"].chips}
    assert chips == {"state": ("Discarded", "?kind=http.request"), "kind": ("http.request", "?resolution=discarded")}
    assert 'aria-label="state: Discarded, take this filter off"' in narrowed.content.decode()


def test_waiting_for_quota_is_without_what_an_outage_holds_in_lists_links_and_what_is_done():
    """It listed 8,400 jobs of an outage under a figure of 0."""
    batch = make_batch()
    limited = make_jobs(2, batch=batch, state=JobState.RATE_LIMITED, service="other")
    held = make_jobs(3, batch=batch, state=JobState.RATE_LIMITED)
    ServiceBreaker.objects.create(service=held[0].service, project_id="acme", opened_at=timezone.now())
    client = signed_in("operator")
    for state, jobs in (("rate_limited", limited), ("outage", held)):
        assert set(ids_of(client.get(f"{JOBS}?state={state}"))) == {job.pk for job in jobs}
        page = client.get(f"{reverse('admin:jobs_job_all_priority')}?state={state}").content.decode()
        assert f"<strong>{len(jobs)}</strong> will be gone through" in page
    page = client.get(reverse("admin:jobs_batch_change", args=[batch.pk])).content.decode()
    assert f"batch_id={batch.pk}&amp;state=outage" in page


def test_a_verb_on_a_batch_says_how_many_of_its_jobs_it_is_about():
    """It said: 1 will be gone through, of 20,000."""
    batch = make_batch()
    make_jobs(4, batch=batch)
    make_jobs(1, batch=batch, state=JobState.IN_PROGRESS)
    make_dead_letters(3, batch=batch)
    client = signed_in("operator")
    for verb, amount in (("cancel", "5 jobs"), ("priority", "4 jobs"), ("retry-failed", "3 dead letters")):
        address = reverse(f"admin:jobs_batch_{verb.replace('-', '_')}", args=[batch.pk])
        assert f"<strong>{amount} of 1 batch</strong> will be" in client.get(address).content.decode(), verb


def test_a_filter_without_an_index_reads_a_bounded_number_of_rows_and_offers_to_look_further(monkeypatch):
    monkeypatch.setattr(paging, "WINDOW", 10)
    monkeypatch.setattr(paging, "MAX_WINDOWS_OF_A_PAGE", 2)
    monkeypatch.setattr(paging, "SEARCH_SECONDS", 60.0)  # or a busy machine would stop before the last window
    wanted = make_job(priority="low")
    make_jobs(30)
    client = signed_in("superuser")
    first = client.get(f"{JOBS}?priority=low")
    assert ids_of(first) == []
    assert first.context["cl"].searched_back_to is not None
    assert "Look further back" in first.content.decode()
    second = client.get(f"{JOBS}{first.context['cl'].older_link}")
    assert ids_of(second) == [wanted.pk]
    assert second.context["cl"].older_link is None


def test_states_that_an_index_holds_are_found_however_old(monkeypatch):
    monkeypatch.setattr(paging, "WINDOW", 10)
    monkeypatch.setattr(paging, "MAX_WINDOWS_OF_A_PAGE", 1)
    old = {state: make_job(state=state).pk for state in (JobState.RETRIED, JobState.RATE_LIMITED, JobState.IN_PROGRESS)}
    make_jobs(30)
    client = signed_in("superuser")
    for state, job in old.items():
        assert ids_of(client.get(f"{JOBS}?state={state}")) == [job]


def test_every_filter_narrows_and_they_combine():
    user, batch = uuid4(), make_batch(project="globex")
    wanted = make_job(project="globex", batch=batch, user_id=user, priority="low", state=JobState.COMPLETED)
    make_job(project="globex", batch=batch, priority="low")
    make_job()
    client = signed_in("superuser")
    for query in (
        f"user_id={user}",
        "state=completed",
        f"batch_id={batch.pk}&state=completed",
        "project=globex&state=completed&priority=low&kind=http.request",
    ):
        assert ids_of(client.get(f"{JOBS}?{query}")) == [wanted.pk], query
    assert ids_of(client.get(f"{JOBS}?user_id=nonsense")) == []


def test_a_time_range_is_found_by_id():
    job = make_job()
    Job.objects.filter(pk=job.pk).update(created_at=Now())
    client = signed_in("superuser")
    now = timezone.now()
    ranges = {-1: 1, -3: 0, 1: 0}
    for days, expected in ranges.items():
        start, end = now + timedelta(days=days), now + timedelta(days=days + 2)
        query = (
            f"created_at_from_0={start:%Y-%m-%d}&created_at_from_1={start:%H:%M:%S}"
            f"&created_at_to_0={end:%Y-%m-%d}&created_at_to_1={end:%H:%M:%S}"
        )
        [sql] = [sql for sql in queries_of(client, f"{JOBS}?{query}") if "LIMIT 51" in sql]
        assert '"jobs_job"."id" >=' in sql
        assert '"jobs_job"."id" <=' in sql
        assert len(ids_of(client.get(f"{JOBS}?{query}"))) == expected


def test_the_box_leads_to_a_job_a_batch_or_an_idempotency_key_and_looks_for_nothing_else():
    batch = make_batch()
    job = make_job(batch=batch, idempotency_key="order 7")
    make_job(idempotency_key="order 77")
    client = signed_in("superuser")
    assert client.get(f"{JOBS}?q={job.pk}").headers["Location"] == f"{JOBS}{job.pk}/change/"
    assert client.get(f"{JOBS}?q={batch.pk}").headers["Location"] == f"{JOBS}?batch_id={batch.pk}"
    assert ids_of(client.get(f"{JOBS}?q=order 7")) == [job.pk]
    assert ids_of(client.get(f"{JOBS}?q=order 7&project=acme")) == [job.pk]
    make_project("globex")
    assert ids_of(client.get(f"{JOBS}?q=order 7&project=globex")) == []
    assert ids_of(client.get(f"{JOBS}?q=order")) == []
    keyed = make_job(idempotency_key=(key := str(uuid4())))  # many producers make their keys of ids
    assert ids_of(client.get(f"{JOBS}?q={key}")) == [keyed.pk]
    assert ids_of(client.get(f"{JOBS}?q=\0")) != []
    assert not [sql for sql in queries_of(client, f"{JOBS}?q=order 7") if "LIKE" in sql.upper()]


def test_the_count_beside_a_state_comes_from_the_counters():
    make_jobs(3)
    make_jobs(2, project="globex")
    client = signed_in("superuser")
    chips = client.get(JOBS).context["state_chips"]
    assert chips[0]["count"] == "5"
    assert client.get(f"{JOBS}?project=globex").context["state_chips"][0]["count"] == "2"


@every_case(
    ("query", "queued", "told"),
    [
        ("", "6", ""),
        ("?state=queued", "6", ""),
        ("?project=globex", "2", "Counts of project globex."),
        ("?batch_id={batch}", "3", "Counts of this batch."),
        ("?kind=http.request", "6", "Counts of all projects; the other filters are not counted."),
        ("?project=globex&kind=http.request", "2", "Counts of project globex; the other filters are not counted."),
    ],
    undone=True,
)
def test_the_counts_of_states_follow_the_filter_and_say_what_they_count(query, queued, told):
    make_project("globex")
    batch = make_batch()
    make_jobs(3, batch=batch)
    make_jobs(1)
    make_jobs(2, project="globex")
    answer = signed_in("viewer").get(JOBS + query.format(batch=batch.pk))
    assert answer.context["state_chips"][0]["count"] == queued
    assert answer.context["counted"] == told
    assert told in answer.content.decode()


def test_dead_letters_open_with_the_open_ones_and_are_grouped_by_cause():
    make_dead_letters(3, fingerprint="a" * 32, error_message="sheet not found")
    resolved = make_dead_letters(2, fingerprint="b" * 32)
    DeadLetter.objects.filter(pk__in=[one.pk for one in resolved]).update(resolution="discarded")
    make_dead_letters(1, fingerprint="c" * 32)
    client = signed_in("viewer")
    assert len(ids_of(client.get(LETTERS))) == 4
    assert len(ids_of(client.get(f"{LETTERS}?resolution=discarded"))) == 2
    assert len(ids_of(client.get(f"{LETTERS}?resolution=any"))) == 6
    groups = client.get(f"{LETTERS}by-cause/").context["groups"]
    assert [(group["sample"].fingerprint[0], group["count"]) for group in groups] == [("a", "3"), ("c", "1")]


def plan_of(sql: str) -> str:
    with connection.cursor() as cursor:
        cursor.execute(f"EXPLAIN (FORMAT JSON) {sql}")
        [plan] = cursor.fetchone()
    return json.dumps(plan)


def test_no_query_of_the_job_list_has_to_read_the_whole_table(monkeypatch):
    batch = make_batch()
    make_jobs(300, batch=batch)
    make_jobs(20, state=JobState.RETRIED)
    monkeypatch.setattr(paging, "WINDOW", 100)
    client = signed_in("superuser")
    narrowed = (
        "state=failed",
        "state=retried",
        "project=acme",
        f"before={new_id()}&kind=x",
        f"batch_id={batch.pk}",
        "q=a key",
    )
    for query in ("", *narrowed):
        of_jobs = [sql for sql in queries_of(client, f"{JOBS}?{query}") if 'FROM "jobs_job"' in sql]
        assert of_jobs
        with connection.cursor() as cursor:
            cursor.execute("SET LOCAL enable_seqscan = off")  # used all the same where no index serves
        assert not [sql for sql in of_jobs if '"Seq Scan"' in plan_of(sql)], query
        with connection.cursor() as cursor:
            cursor.execute("SET LOCAL enable_seqscan = on")


def test_an_ids_time_is_the_time_it_was_made():
    now = timezone.now()
    assert abs(time_of(new_id()) - now) < timedelta(minutes=1)
    assert abs(time_of(first_id_at(now)) - now) < timedelta(milliseconds=2)


def test_dead_letters_say_whose_they_are_and_where_they_went():
    user = uuid4()
    named, nameless = make_batch(name="Nightly sync"), make_batch()
    make_dead_letters(2, batch=named, user_id=user, service="http:api.example", target="https://api.example:443")
    make_dead_letters(1, batch=nameless)
    make_dead_letters(1)
    label_users("acme", {user: "Anna Berg"})
    page = signed_in("viewer").get(LETTERS).content.decode()
    assert page.count("Anna Berg") == 2
    assert page.count("Nightly sync") == 2
    assert f"…{str(nameless.pk)[-8:]}" in page
    assert "http:api.example" in page


def test_breadcrumbs_keep_the_kinds_own_letters_and_the_end_of_the_id():
    job = make_job()
    page = signed_in("viewer").get(reverse("admin:jobs_job_change", args=[job.pk])).content.decode()
    assert f"http.request …{str(job.pk)[-8:]}" in page
    assert "Http.request" not in page


def test_what_an_outage_holds_has_a_chip_and_a_filter_of_its_own():
    client, batch = signed_in("superuser"), make_batch()
    held = make_jobs(3, state=JobState.RATE_LIMITED, batch=batch, service="http:down.example")
    make_jobs(2, state=JobState.RATE_LIMITED, service="http:up.example")
    assert "held by an outage" not in chips_of(client.get(JOBS))
    ServiceBreaker.objects.create(service="http:down.example", project_id="acme", opened_at=timezone.now(), holds=3)
    for address in (JOBS, f"{JOBS}?project=acme", f"{JOBS}?batch_id={batch.pk}"):
        assert chips_of(client.get(address))["held by an outage"] == "3", address
    assert chips_of(client.get(JOBS))["waiting for quota"] == "2"
    page = client.get(f"{JOBS}?state=outage")
    assert set(ids_of(page)) == {job.pk for job in held}
    assert "All that match" in page.content.decode(), "the actions know this filter"


def test_what_is_scheduled_has_a_chip_and_a_filter_of_its_own_and_is_not_listed_as_queued():
    client, batch = signed_in("superuser"), make_batch()
    ready = make_jobs(2, batch=batch)
    assert "scheduled" not in chips_of(client.get(JOBS))
    later = make_jobs(3, batch=batch, scheduled_at=timezone.now() + timedelta(hours=5))
    for address in (JOBS, f"{JOBS}?project=acme", f"{JOBS}?batch_id={batch.pk}"):
        page = client.get(address)
        assert (chips_of(page)["queued"], chips_of(page)["scheduled"]) == ("2", "3"), address
        assert "may begin" in page.context["until_when"], address
    for state, jobs in (("queued", ready), ("scheduled", later)):
        page = client.get(f"{JOBS}?state={state}")
        assert set(ids_of(page)) == {job.pk for job in jobs}
        assert page.context["cl"].result_count == len(jobs)
        about = client.get(f"{reverse('admin:jobs_job_all_priority')}?state={state}").content.decode()
        assert f"<strong>{len(jobs)}</strong> will be gone through" in about
    of_batch = client.get(reverse("admin:jobs_batch_change", args=[batch.pk])).content.decode()
    assert f"batch_id={batch.pk}&amp;state=scheduled" in of_batch
    assert "may begin" in of_batch
    assert "project=acme&amp;state=scheduled" in client.get(reverse("admin:index")).content.decode()


def chips_of(page: Any) -> dict[str, str]:
    """The counts beside the states, by their words."""
    words = [
        (re.sub("<[^>]+>", " ", str(chip["badge"])).split(), chip["count"]) for chip in page.context["state_chips"]
    ]
    return {" ".join(said[1:]): count for said, count in words}


def test_the_browser_names_a_list_as_the_menu_does():
    client = signed_in("superuser")
    for screen, words in (("ratelimits_quotaalert", "Alerts"), ("jobs_job", "Jobs"), ("auth_group", "Roles")):
        page = client.get(reverse(f"admin:{screen}_changelist")).content.decode()
        title = re.search("<title>(.*?)</title>", page, re.DOTALL)
        assert title
        assert title[1].strip() == f"{words} | QueueOps"


def test_a_page_links_to_batches_by_their_names():
    before, batch, unnamed = make_batch(name="Prices"), make_batch(name="Invoices"), make_batch(name="")
    job = make_job(batch=batch)
    for waited_for in (before, unnamed):
        Dependency.objects.create(
            owner_id=job.pk, of_batch=False, on_id=waited_for.pk, on_batch=True, project_id="acme"
        )
    page = signed_in("viewer").get(reverse("admin:jobs_job_change", args=[job.pk])).content.decode()
    for linked, words in ((batch, "Invoices"), (before, "Prices"), (unnamed, f"…{str(unnamed.pk)[-8:]}")):
        link = re.search(f'<a[^>]*batch/{linked.pk}/change/">(.*?)</a>', page)
        assert link
        assert words in link[1]


SEARCHED = (
    "jobs_job_changelist", "jobs_deadletter_changelist", "ratelimits_quotaalert_changelist", "ratelimits_spend_report",
    "jobs_upload_add", "jobs_webhook_add", "tenancy_producerkey_add", "ratelimits_usagetracking_top",
    "ratelimits_allowance_check_ledger",
)  # fmt: skip


@pytest.mark.parametrize("screen", SEARCHED)
def test_where_projects_are_too_many_to_list_each_drop_down_searches_them(screen: str, monkeypatch):
    make_project("acme")
    Allowance.objects.create(project=make_project("globex"), quota=1)
    monkeypatch.setattr(screen_forms, "MAX_PROJECTS_LISTED", 2)
    client, address = signed_in("administrator"), reverse(f"admin:{screen}")
    few = client.get(address).content.decode()
    assert '<option value="globex"' in few
    assert "data-ajax--url" not in few
    make_project("initech")
    many = client.get(address).content.decode()
    assert "acme" not in re.findall('<option value="([^"]*)"', many)
    (field,) = [select for select in re.findall("<select[^>]*>", many) if 'name="project"' in select]
    where = dict(re.findall('data-([a-z-]+)="([^"]*)"', field))
    asked = {name.replace("-", "_"): where[name] for name in ("app-label", "model-name", "field-name")}
    found = client.get(where["ajax--url"], {**asked, "term": "nite"}).json()["results"]
    assert [one["id"] for one in found] == ["initech"]


def test_a_project_beyond_those_that_a_drop_down_offers_stays_chosen(monkeypatch):
    """Otherwise a form that narrows the list further takes it out, and an action on all that match touches all."""
    monkeypatch.setattr(screen_forms, "MAX_PROJECTS_LISTED", 1)
    make_project("acme")
    make_project("globex")
    client = signed_in("operator")
    for screen in ("jobs_job_changelist", "jobs_deadletter_changelist", "ratelimits_spend_report"):
        page = client.get(f"{reverse(f'admin:{screen}')}?project=globex").content.decode()
        assert re.search(r"<option[^>]* selected[^>]*>\s*globex", page), screen
