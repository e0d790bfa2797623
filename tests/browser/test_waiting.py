"""Why a job waits, as an operator sees it."""

from __future__ import annotations

import pytest
from playwright.sync_api import Page, expect

from jobs.lanes import lane_name
from jobs.models import Executor
from jobs.states import JobState
from ratelimits.limiter.decide import Call, decide
from ratelimits.limits import catalogue
from ratelimits.models import Limit
from ratelimits.subjects import Subject
from tests.factories import make_jobs

pytestmark = pytest.mark.django_db(transaction=True)

USER = "5d6cf1c6-3a55-4c52-93a1-6a3bb2a55a0e"
SHEETS = Subject("google-sheets", "write", "acme", USER)


def test_a_jobs_page_says_what_it_waits_for_in_which_order_and_where_it_stands(page: Page, shoot):
    figures = {"service": SHEETS.service, "call_type": "write", "window_seconds": 60}
    Limit.objects.create(name="sheets-write-per-user", scope="user", capacity=6, **figures)
    Limit.objects.create(
        name="sheets-write-per-project", algorithm="token_bucket", capacity=6, refill_per_second=0.05, **figures
    )
    catalogue.forget()
    for _ in range(6):
        decide([Call(SHEETS)])
    Executor.objects.create(host="worker-1", pid=1, process_started_at=0, cluster_pid=1, slots=9, loop_lag_ms=1)
    lane = lane_name(SHEETS, project="acme", user=USER)
    make_jobs(3, service=SHEETS.service, lane=lane, user_id=USER, priority="urgent")
    jobs = make_jobs(40, service=SHEETS.service, lane=lane, user_id=USER, state=JobState.RATE_LIMITED)
    page.goto(f"/admin/jobs/job/{jobs[39].pk}/change/")
    section = page.get_by_label("What it waits for")
    expect(section).to_contain_text("sheets-write-per-user has no room")
    expect(section.locator("tbody tr").last).to_contain_text("42 jobs of its lane go first")
    expect(section).to_contain_text("3 urgent, 39 normal")
    expect(section).to_contain_text("Should start")
    shoot("job-waiting")
    catalogue.forget()
