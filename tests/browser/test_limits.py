"""Limits as a limits manager uses them."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth.models import Group, User
from django.db.models.functions import Now
from playwright.sync_api import Page, expect

from jobs.lanes import lane_name
from jobs.states import JobState
from queueops.audit.models import AuditEntry
from queueops.site.roles import make_groups
from ratelimits.limiter.decide import Call, decide
from ratelimits.limits import catalogue, overrides
from ratelimits.models import CallTally, Counter, Limit
from ratelimits.subjects import Subject
from ratelimits.tuning import limits, steer_counter
from tests.browser.conftest import PASSWORD, sign_in
from tests.factories import make_jobs

pytestmark = pytest.mark.django_db(transaction=True)

WRITE = Subject("google-sheets", "write", "acme", "reports@acme.example")
READ = WRITE._replace(call_type="read")


@pytest.fixture
def busy_limits() -> Any:
    """Four limits of two services: one full with a queue, one cooled down, one in shadow, one with a proposal."""
    catalogue.forget()
    sheets = {"service": "google-sheets", "scope": "project", "capacity": 300, "provider_quota": 300}
    for call_type in ("write", "read"):
        limits.create_limit({"name": f"sheets-{call_type}", "call_type": call_type, **sheets}, actor="user:1")
    limits.create_limit(
        {"name": "llm-tokens", "service": "llm", "unit": "tokens", "capacity": 30_000, "shadow": True}, actor="user:1"
    )
    limits.create_limit(
        {"name": "llm-requests", "service": "llm", "algorithm": "token_bucket", "provider_quota": 60, "capacity": None},
        actor="user:1",
    )
    write = Limit.objects.get(name="sheets-write")
    overrides.set_override(write.pk, "project:initech", capacity=600, actor="user:1", note="raised on request")
    decide([Call(WRITE, kind="google_sheets.values_update")] * 300)
    decide([Call(WRITE._replace(project="globex", user="etl@globex.example"), kind="google_sheets.batch_update")] * 190)
    decide([Call(READ, kind="google_sheets.values_get")] * 20)
    decide([Call(Subject("llm", "write", "acme", "u", "small"), cost=1_500, kind="llm.generate")] * 22)
    for minutes in range(5, 55, 5):
        CallTally.objects.create(
            at=Now() - timedelta(minutes=minutes),
            service="google-sheets",
            call_type="write",
            project="acme",
            user=WRITE.user,
            kind="google_sheets.values_update",
            calls=290,
            tokens=290,
        )
    read = Counter.objects.get(limit__name="sheets-read")
    steer_counter.cool_down_counter(read.pk, 240, actor="user:1", reason="the provider asked us to stop")
    stated = {"proposed_capacity": 120, "proposed_at": Now() - timedelta(minutes=3)}
    Counter.objects.filter(limit__name="llm-requests").update(**stated)
    lane = lane_name(WRITE, project="acme", user="")
    make_jobs(420, state=JobState.RATE_LIMITED, service="google-sheets", call_type="write", lane=lane)
    yield
    catalogue.forget()


def test_a_cap_is_tried_refused_simulated_and_saved(page: Page, shoot: Callable[[str], None], busy_limits: None):
    page.goto("/admin/ratelimits/limit/")
    row = page.locator("#result_list tbody").filter(has_text="sheets-write")
    expect(row.get_by_role("meter")).to_have_attribute("aria-valuenow", "300.0")
    expect(row).to_contain_text("420 jobs")
    expect(page.locator("#result_list tbody").filter(has_text="llm-requests")).to_contain_text("provider says 120")
    shoot("limits")
    page.get_by_role("link", name="sheets-write").click()
    expect(page.get_by_label("Reset zone")).to_be_hidden()
    expect(page.get_by_text("reports@acme.example")).to_be_visible()
    shoot("limit")

    page.get_by_label("Algorithm").select_option("token_bucket")
    page.get_by_label("Refill per second").fill("5")
    page.get_by_role("button", name="Save", exact=True).click()
    expect(page.get_by_text("Up to 600 calls may pass in one provider window of 60 s")).to_be_visible()
    expect(page.get_by_text("Safe: a burst of 9 and a refill of 4.82987 a second")).to_be_visible()
    assert Limit.objects.get(name="sheets-write").algorithm == "sliding_window"

    page.get_by_label("Algorithm").select_option("sliding_window")
    page.locator("#id_capacity").fill("100")
    page.get_by_role("button", name="Simulate").click()
    table = page.locator("#simulation")
    expect(table).to_contain_text("Calls that would have waited")
    expect(page.get_by_text("Nothing is saved yet: tick this and save.")).to_be_visible()
    assert Limit.objects.get(name="sheets-write").capacity == 300

    page.locator("#id_confirmed").check()
    page.get_by_label("Reason").fill("other teams share this quota")
    page.get_by_role("button", name="Save", exact=True).click()
    page.wait_for_url("**/admin/ratelimits/limit/")
    row = page.locator("#result_list tbody").filter(has_text="sheets-write")
    expect(row.get_by_role("meter")).to_have_attribute("aria-valuemax", "100.0")
    assert AuditEntry.objects.get(action="update_limit").reason == "other teams share this quota"


def test_a_counter_is_cooled_down_with_a_reason(page: Page, shoot: Callable[[str], None], busy_limits: None):
    page.goto("/admin/ratelimits/counter/")
    expect(page.locator("#result_list tbody").filter(has_text="sheets-read")).to_contain_text("cooled down")
    shoot("counters")
    page.locator("#result_list").get_by_role("link", name="project:globex").click()
    page.wait_for_url("**/change/**")
    shoot("counter")
    page.get_by_role("link", name="Cool down").click()
    page.get_by_label("Minutes").fill("3")
    page.get_by_label("Reason").fill("they asked for a pause")
    page.get_by_role("button", name="Cool down").click()
    expect(page.get_by_text("1 cooled down")).to_be_visible()
    expect(page.get_by_text("by hand: they asked for a pause")).to_be_visible()


@pytest.mark.parametrize("role", ["viewer", "operator"])
def test_who_may_only_read_sees_every_figure_and_no_error(page: Page, busy_limits: None, role: str):
    told: list[str] = []
    page.on("console", lambda message: told.append(message.text))
    make_groups()
    user = User.objects.create_user(f"a {role}", password=PASSWORD, is_staff=True)
    user.groups.set(Group.objects.filter(name=role))
    page.context.clear_cookies()
    page.goto("/admin/login/")
    sign_in(page, f"a {role}")
    page.wait_for_url("**/admin/")
    for name, read, unread in (
        ("sheets-write", {"Capacity": "300", "Window seconds": "60"}, "Refill per second"),
        ("llm-requests", {"Refill per second": "", "Capacity": ""}, "Slack seconds"),
    ):
        page.goto(f"/admin/ratelimits/limit/{Limit.objects.get(name=name).pk}/change/")
        for label, figure in read.items():
            line = page.locator(".field-line", has=page.get_by_text(label, exact=True))
            expect(line).to_be_visible()
            expect(line).to_contain_text(figure)
        expect(page.locator(".field-line", has=page.get_by_text(unread, exact=True))).to_have_count(0)
    assert told == []
