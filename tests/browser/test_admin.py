"""The admin as an operator uses it."""

from __future__ import annotations

import json
import re
from datetime import timedelta

import pytest
from django.utils import timezone
from playwright.sync_api import Page, expect

from jobs.models import DeadLetter, Executor, Job
from jobs.states import JobState
from jobs.transitions import Move, move_jobs
from tests.browser.conftest import PHONE
from tests.factories import make_batch, make_dead_letter, make_dead_letters, make_job, make_jobs, move_along

pytestmark = pytest.mark.django_db(transaction=True)

PAYLOAD = json.dumps(
    {"method": "PUT", "url": "https://sheets.example.org/v4/values/A1", "headers": {"Authorization": "Bearer abc123"}}
)
HOSTILE = "<img src=x onerror=alert(1)>"


def some_work() -> None:
    batch = make_batch(name="nightly sheet sync")
    make_jobs(6, batch=batch, state=JobState.COMPLETED)
    make_jobs(3, batch=batch, priority="low")
    make_jobs(2, project="globex", state=JobState.RATE_LIMITED)
    make_jobs(2, project="globex", state=JobState.RETRIED, priority="urgent")
    make_jobs(3, batch=batch, state=JobState.IN_PROGRESS, progress=40, progress_message="row 400 of 1,000")
    make_dead_letters(3, batch=batch, payload=PAYLOAD, error_message="HTTP 404: no such sheet")
    make_dead_letter(project="globex", error_code="forbidden", error_message=HOSTILE, fingerprint="a" * 32)


def a_job_with_a_history() -> Job:
    job = make_job(payload=PAYLOAD)
    for error in ("HTTP 503: try later", "HTTP 429: too many requests"):
        move_along("dispatch", [job.pk])
        move_along("start", [job.pk])
        token = Job.objects.get(pk=job.pk).fencing_token
        facts = json.dumps({"http_status": int(error[5:8]), "delay_seconds": 1.5})
        failed = Move(job.pk, token=token, delay_seconds=1.5, error_code="unavailable", message=error, data=facts)
        assert move_jobs("retry", [failed]) == {job.pk}
    return job


def test_the_job_list_is_narrowed_by_a_click_and_by_the_filters(page: Page, shoot):
    some_work()
    page.goto("/admin/jobs/job/")
    rows = page.locator("#result_list tbody")
    expect(rows).to_have_count(20)
    page.get_by_label("States").get_by_role("link", name="running").click()
    expect(rows).to_have_count(3)
    expect(page.locator("#result_list").get_by_role("progressbar").first).to_have_attribute("aria-valuenow", "40")
    page.get_by_label("States").get_by_role("link", name="running").click()
    expect(rows).to_have_count(20)
    page.get_by_role("button", name="Filters").focus()
    page.keyboard.press("Enter")
    page.locator("#changelist-filter [name=priority]").select_option("urgent", force=True)
    page.locator("#changelist-filter [name=project]").select_option("globex", force=True)
    page.locator("#changelist-filter button[type=submit]").click()
    page.wait_for_url("**priority=urgent**")
    expect(rows).to_have_count(2)
    page.goto("/admin/jobs/job/")
    shoot("jobs")


def test_a_jobs_page_draws_its_path_and_is_found_by_its_id(page: Page, shoot):
    job = a_job_with_a_history()
    page.goto("/admin/jobs/job/")
    page.keyboard.press("/")  # the search box, without the mouse
    page.keyboard.type(str(job.pk))
    page.keyboard.press("Enter")
    page.wait_for_url(f"**/{job.pk}/change/**")
    expect(page.get_by_label("States it passed").locator("li")).to_have_count(7)
    expect(page.get_by_text("Why it waits:")).to_be_visible()
    expect(page.get_by_text("HTTP 503: try later").first).to_be_visible()
    expect(page.locator("body")).not_to_contain_text("abc123")
    shoot("job")


def test_a_jobs_attempts_are_read_in_full_on_a_phone(page: Page):
    job = a_job_with_a_history()
    page.set_viewport_size(PHONE)
    page.goto(f"/admin/jobs/job/{job.pk}/change/")
    answers = page.locator(".qo-attempts td:last-child")
    expect(answers.first).to_contain_text("HTTP 503: try later")
    for answer in answers.all():
        box = answer.bounding_box()
        assert box is not None
        assert box["x"] + box["width"] <= PHONE["width"]


def test_a_dead_letter_is_requeued_with_an_edited_payload_and_its_new_job_appears(page: Page, shoot):
    some_work()
    page.goto("/admin/jobs/deadletter/")
    expect(page.locator("#result_list tbody")).to_have_count(4)
    expect(page.locator("#result_list")).to_contain_text(HOSTILE)
    shoot("dead-letters")
    page.goto("/admin/jobs/deadletter/by-cause/")
    page.get_by_role("link", name="See them").first.click()
    page.locator("#result_list tbody th a").first.click()
    page.get_by_role("link", name="Edit and requeue").click()
    payload = page.get_by_label("Payload")
    payload.fill(payload.input_value().replace("A1", "B2"))
    page.get_by_role("button", name="Edit and requeue").click()
    page.wait_for_url(re.compile(r"/admin/jobs/job/[0-9a-f-]+/change/"))
    expect(page.get_by_text("1 requeued, 0 left alone.")).to_be_visible()
    expect(page.get_by_text("Requeued from")).to_be_visible()
    letter = DeadLetter.objects.get(resolution="requeued")
    new = letter.requeued_as
    assert new is not None
    assert str(new.pk) in page.url
    assert new.payload["url"].endswith("B2")
    assert new.payload["headers"] == {"Authorization": "Bearer abc123"}
    page.goto("/admin/jobs/job/")
    expect(page.locator("#result_list tbody").first).to_contain_text(str(new.pk)[-8:])


def test_a_batchs_page_draws_when_its_jobs_ended_and_leads_to_them(page: Page, shoot):
    batch = make_batch(name="nightly sheet sync", total=400)
    make_jobs(40, batch=batch)
    make_jobs(12, batch=batch, state=JobState.IN_PROGRESS)
    make_jobs(30, batch=batch, state=JobState.RATE_LIMITED)
    ended = make_jobs(300, batch=batch, state=JobState.COMPLETED) + make_jobs(18, batch=batch, state=JobState.FAILED)
    for place, job in enumerate(ended):
        minutes = (place * 37 % 300) / 10 + (place % 7) * (place % 11) / 20
        job.finished_at = timezone.now() - timedelta(minutes=minutes)
    Job.objects.bulk_update(ended, ["finished_at"])
    page.goto(f"/admin/jobs/batch/{batch.pk}/change/")
    expect(page.get_by_role("img", name=re.compile("At most .* jobs? ended in"))).to_be_visible()
    shoot("batch")
    page.evaluate("window.isTheSame = true")
    make_jobs(5, batch=batch, state=JobState.CANCELLED)
    expect(page.get_by_label("Jobs by state").get_by_role("link", name="cancelled")).to_contain_text("5")
    assert page.evaluate("window.isTheSame"), "it was loaded anew"
    page.get_by_label("Jobs by state").get_by_role("link", name="failed").click()
    expect(page.locator("#result_list tbody")).to_have_count(18)


def test_chosen_jobs_are_cancelled_after_a_page_that_asks(page: Page):
    make_jobs(3)
    page.goto("/admin/jobs/job/")
    for box in page.locator("#result_list .action-select").all()[:2]:
        box.check()
    page.locator("select[name=action]").select_option("cancel_selected", force=True)
    page.locator("#changelist-form button[name=index]").click()
    expect(page.get_by_text("2 will be cancelled.")).to_be_visible()
    assert Job.objects.filter(status=JobState.CANCELLED).count() == 0
    page.get_by_label("Reason").fill("sent twice")
    page.get_by_role("button", name="Yes, cancel").click()
    expect(page.get_by_text("2 cancelled, 0 left alone.")).to_be_visible()
    assert Job.objects.filter(status=JobState.CANCELLED).count() == 2


def test_the_overview_leads_to_what_needs_a_person(page: Page):
    some_work()
    Executor.objects.create(
        host="worker-1", pid=1, process_started_at=0, cluster_pid=1, slots=50, in_flight=3, loop_lag_ms=2
    )
    page.goto("/admin/")
    expect(page.get_by_role("status")).to_contain_text("dead letters need a person")
    page.get_by_role("link", name="Open dead letters").click()
    expect(page.get_by_text("HTTP 404: no such sheet")).to_be_visible()
