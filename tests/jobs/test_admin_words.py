"""The admin's pages name rows and people as people know them."""

from __future__ import annotations

import re
from datetime import timedelta

import pytest
from django.conf import settings
from django.contrib.auth.models import User
from django.urls import reverse
from django.utils import timezone

from jobs.models import BudgetWait, Job, PauseSwitch, ServiceBreaker
from jobs.services.operate.dead_letters import discard_dead_letters
from jobs.services.upkeep.retention import apply_retention
from jobs.states import JobState
from queueops.tenancy.models import ProducerKey
from tests.factories import make_batch, make_dead_letter, make_dead_letters, make_job, make_jobs, make_project
from tests.support.people import signed_in

pytestmark = pytest.mark.django_db


def text_of(answer):
    """Return the text of a page, without its markup."""
    return " ".join(re.sub(r"<[^>]+>", " ", answer.content.decode()).split())


def test_the_overview_counts_what_an_outage_holds_apart_for_each_project():
    make_jobs(3, state=JobState.RATE_LIMITED, service="http:down.example")
    make_jobs(2, state=JobState.RATE_LIMITED, project="globex")
    out = {"service": "http:down.example", "opened_at": timezone.now()}
    ServiceBreaker.objects.create(project_id="acme", holds=3, **out)
    client = signed_in("operator")
    rows = {row["id"]: row["counts"] for row in client.get("/admin/").context["projects"]}
    shown = {project: {one["name"]: one["count"] for one in counts if one["count"]} for project, counts in rows.items()}
    assert shown == {"acme": {"outage": 3}, "globex": {"rate_limited": 2}}
    for counts in rows.values():
        for one in counts:
            assert len(client.get(one["href"]).context["cl"].result_list) == one["count"], one["href"]


def test_whoever_acts_on_a_cause_of_a_batch_reads_the_names_of_both():
    batch = make_batch(name="Monthly report")
    make_dead_letters(2, batch=batch, error_code="http_403", fingerprint="a" * 32)
    address = f"{reverse('admin:jobs_deadletter_all_discard')}?fingerprint={'a' * 32}&batch_id={batch.pk}"
    page = text_of(signed_in("operator").get(address))
    assert "cause: http_403 of http.request, service http" in page
    assert f"batch id: Monthly report, {batch.pk}" in page


def test_whoever_discards_reads_how_many_are_lost_and_for_how_long_they_can_be_done_after_all():
    one, *_ = make_dead_letters(3, error_code="http_403")
    operator = signed_in("operator")
    screen = reverse("admin:jobs_deadletter_changelist")
    for address, count in ((f"{screen}all-discard/?error_code=http_403", 3), (f"{screen}{one.pk}/discard/", 1)):
        page = text_of(operator.get(address))
        assert f"{count} will be discarded" in page
        assert "what they were to do is not done" in page
        assert "Payload and errors are then kept only as long as those of other ended jobs" in page
    discard_dead_letters([one.pk], actor="user:1", reason="by hand")
    Job.objects.update(finished_at=timezone.now() - timedelta(days=400))
    apply_retention(seconds=60)
    assert [job.dead_letter.resolution for job in Job.objects.all()] == [None, None]


def test_the_page_of_a_dead_letter_names_its_batch_and_the_zone_of_each_attempts_time():
    failed = {"at": "2026-03-01T10:00:00.25+00:00", "message": "no"}
    letter = make_dead_letter(batch=make_batch(name="Monthly report"), attempts=[failed, {"message": "no time"}])
    page = text_of(signed_in("viewer").get(reverse("admin:jobs_deadletter_change", args=[letter.pk])))
    assert "2026-03-01 10:00:00 UTC no" in page
    assert "Batch Monthly report" in page


def test_each_time_of_day_in_a_template_has_its_zone():
    bare = re.compile(r"""\|date:(["'])(?P<format>[^"']*H:i(?![^"']*[TeOP])[^"']*)\1(?!\s*}}\s*UTC)""")
    texts = {path.name: path.read_text() for path in (settings.BASE_DIR / "templates").rglob("*.html")}
    assert {name: found["format"] for name, text in texts.items() if (found := bare.search(text))} == {}


def test_a_batch_that_is_paused_has_its_name_in_the_list_of_pauses():
    batch = make_batch(name="Monthly report", paused=True)
    PauseSwitch.objects.create(scope="batch", key=str(batch.pk), reason="a release", paused_by="system")
    PauseSwitch.objects.create(scope="project", key="acme")
    page = text_of(signed_in("viewer").get(reverse("admin:jobs_pauseswitch_changelist")))
    assert f"batch Monthly report …{str(batch.pk)[-8:]}" in page
    assert "project acme" in page


def test_a_job_and_its_dead_letter_say_who_submitted_and_who_closed_it_by_name():
    key, _ = ProducerKey.issue(make_project(), name="nightly")
    job = make_job()
    ProducerKey.objects.filter(pk=key.pk).update(prefix="test")  # that of make_job
    client = signed_in("operator")
    assert "by key nightly (test…)" in text_of(client.get(reverse("admin:jobs_job_change", args=[job.pk])))
    letter, person = make_dead_letter(), User.objects.get()
    discard_dead_letters([letter.pk], actor=f"user:{person.pk}", reason="by hand")
    page = text_of(client.get(reverse("admin:jobs_deadletter_change", args=[letter.pk])))
    assert f"By {person.username}" in page


def test_a_job_that_a_budget_holds_does_not_say_that_it_is_paused():
    job = make_job()
    Job.objects.filter(pk=job.pk).update(held=True)
    BudgetWait.objects.create(pk=job.pk, project_id="acme", budget_id=1)
    page = text_of(signed_in("viewer").get(reverse("admin:jobs_job_changelist")))
    assert "normal 10 - budget" in page


@pytest.mark.parametrize(
    ("screen", "word"),
    [("jobs_servicebreaker", "Service outages"), ("jobs_pauseswitch", "Pauses"), ("tenancy_producerkey", "Keys")],
)
def test_breadcrumbs_name_a_list_as_the_menu_does(screen, word):
    address = reverse(f"admin:{screen}_changelist")
    page = signed_in("administrator").get(address).content.decode()
    [name] = re.findall(rf'<a href="{address}" class="align-middle[^>]*>([^<]*)</a>', page)
    assert name.strip() == word
