"""The live dashboard as operators look at it, pulling its figures from a server without websockets."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from django.contrib.auth.models import Group, User
from django.db import connection
from django.db.models.functions import Now
from playwright.sync_api import Browser, Page, expect

from dashboards.services.shared import cache
from jobs.models import Executor, PauseSwitch
from jobs.states import JobState
from queueops.audit.models import AuditEntry
from queueops.site import roles
from queueops.tenancy.models import ProducerKey
from ratelimits.alerts.alerts import open_alert
from ratelimits.limiter.decide import Call, decide
from ratelimits.models import QuotaAlert, ResumeRamp
from ratelimits.subjects import Subject
from ratelimits.tuning import limits
from tests.factories import make_batch, make_dead_letters, make_jobs, make_project
from tests.support.busy_dashboard import open_dashboard

from .conftest import PASSWORD, PHONE, SCREENSHOTS, VARIANTS, WIDE, sign_in

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("fresh_figures")]

HOSTILE = "<img src=x onerror=alert(1)><script>alert(2)</script>\"'><svg onload=alert(3)>"
IS_WHOLE = """meter => {
    const words = document.createRange();
    words.selectNodeContents(meter.lastChild);
    return words.getBoundingClientRect().right <= meter.closest("td, th").getBoundingClientRect().right;
}"""


def test_one_look_says_what_holds_work_back(page: Page, busy: dict[str, Any], shoot: Callable[[str], None]):
    open_dashboard(page)
    expect(page.locator("#verdict")).to_contain_text("the provider refused with 429")
    expect(page.locator("#also")).to_contain_text("Held by sheets-write, project acme. Clears in")
    expect(page.locator("#also")).to_contain_text("3 dead letters need a person.")
    expect(page.locator("#link")).to_contain_text("Every 2 s")
    limit = page.locator("#limits li").filter(has_text="sheets-write")
    expect(limit.get_by_role("meter")).to_have_attribute("aria-valuenow", "300")
    expect(limit).to_contain_text("420 jobs wait")
    expect(page.locator("#limits li").filter(has_text="llm-tokens")).to_contain_text("slowed to")
    batch = page.locator("#batches li").filter(has_text="Monthly report")
    expect(batch.get_by_role("progressbar")).to_have_attribute("aria-valuenow", "58.7")
    expect(page.locator("#charts figure")).to_have_count(5)
    shoot("dashboard")


@pytest.fixture
def viewer(chromium: Browser, live_server: Any) -> Any:
    """A page of somebody with the role that only looks."""
    roles.make_groups()
    person = User.objects.create_user("looker", password=PASSWORD, is_staff=True)
    person.groups.add(Group.objects.get(name="viewer"))
    context = chromium.new_context(base_url=live_server.url, viewport=WIDE)
    page = context.new_page()
    page.goto("/admin/login/?next=/")
    sign_in(page, "looker")
    page.wait_for_url("**/")
    yield page
    context.close()


def test_a_viewer_is_offered_no_control(viewer: Page, busy: dict[str, Any]):
    open_dashboard(viewer)
    expect(viewer.locator("#batches li")).to_have_count(2)
    expect(viewer.locator("#alerts li").first).to_be_visible()
    for control in ("Pause", "Resume", "Cancel", "Acknowledge", "Tune"):
        expect(viewer.locator("#live").get_by_text(control, exact=True)).to_have_count(0)
    token = viewer.locator("#csrf input").input_value()
    refused = viewer.request.post(
        f"/live/batches/{busy['report'].pk}/cancel", form={"reason": "because"}, headers={"X-CSRFToken": token}
    )
    assert refused.status == 403


def test_an_alert_is_acknowledged_on_the_spot(page: Page, busy: dict[str, Any]):
    open_dashboard(page)
    page.get_by_role("button", name="Acknowledge").click()
    expect(page.locator("#told")).to_contain_text("1 acknowledged")
    expect(page.locator("#alerts li").filter(has_text="refused with 429")).to_contain_text("Looked after by operator")
    expect(page.locator("#verdict")).to_contain_text("Held by sheets-write")
    assert QuotaAlert.objects.get(severity="critical").acknowledged_at is not None


def test_a_batch_is_paused_and_cancelled_by_the_keyboard_alone(page: Page, busy: dict[str, Any]):
    open_dashboard(page)
    page.keyboard.press("Tab")
    expect(page.get_by_role("link", name="Skip to the content")).to_be_focused()
    page.keyboard.press("Enter")
    pause = page.get_by_role("button", name="Pause Monthly report")
    pause.focus()
    page.keyboard.press("Enter")
    expect(page.get_by_role("dialog")).to_contain_text("None of its 432 open items starts")
    page.keyboard.type("a release")
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    row = page.locator("#batches li").filter(has_text="Monthly report")
    expect(row.locator(".state")).to_contain_text("held")
    page.get_by_role("button", name="Cancel Monthly report").focus()
    page.keyboard.press("Enter")
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text("432 items have not ended and will be cancelled")
    dialog.get_by_role("button", name="Yes, cancel").press("Enter")
    expect(dialog).to_contain_text("This field is required.")
    dialog.get_by_label("Reason").fill("sent twice")
    dialog.get_by_role("button", name="Yes, cancel").press("Enter")
    expect(page.locator("#told")).to_contain_text("Started in the background")
    assert AuditEntry.objects.filter(action="bulk_cancel_jobs", reason="sent twice").exists()
    page.keyboard.press("Escape")


def test_everything_is_paused_and_resumed_in_two_clicks_each(page: Page, busy: dict[str, Any]):
    open_dashboard(page)
    page.get_by_role("button", name="Pause everything").click()
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text("Nothing new starts, in any project")
    dialog.get_by_role("button", name="Pause everything").click()
    expect(page.locator("#verdict")).to_contain_text("Everything is paused.")
    page.get_by_role("button", name="Resume everything").click()
    dialog.get_by_label("over minutes").fill("0")
    dialog.get_by_role("button", name="Resume").click()
    expect(page.get_by_role("button", name="Pause everything")).to_be_visible()
    assert not PauseSwitch.objects.filter(scope="global").exists()
    assert not ResumeRamp.objects.exists()


def test_everything_is_resumed_with_a_ramp_that_is_held_and_ended(
    page: Page, busy: dict[str, Any], shoot: Callable[[str], None]
):
    PauseSwitch.objects.create(scope="global", reason="restored", paused_by="system:restore")
    open_dashboard(page)
    page.get_by_role("button", name="Resume everything").click()
    dialog = page.get_by_role("dialog")
    expect(dialog.get_by_label("over minutes")).to_have_value("10")
    dialog.get_by_role("button", name="Resume").click()
    expect(page.locator("#health")).to_contain_text("Paced by the ramp: 5 % of every limit")
    ResumeRamp.objects.update(started_at=Now() - timedelta(seconds=200))
    page.get_by_role("button", name="Hold the ramp").click()
    dialog.get_by_role("button", name="Hold").click()
    expect(page.locator("#health")).to_contain_text("held there")
    expect(page.get_by_text("paced by the ramp: 3").first).to_be_visible()
    shoot("ramp")
    page.goto("/admin/ratelimits/resumeramp/")
    expect(page.get_by_role("cell", name="held")).to_be_visible()
    shoot("ramp-admin")
    page.set_viewport_size(PHONE)
    assert page.locator("tbody .qo-meter").first.evaluate(IS_WHOLE), "a phone shows the bar without its number"
    page.set_viewport_size(WIDE)
    page.goto("/admin/ratelimits/resumeramp/1/change/")
    expect(page.get_by_role("link", name="Continue")).to_be_visible()
    expect(page.get_by_role("link", name="Hold")).to_have_count(0)
    open_dashboard(page)
    page.get_by_role("button", name="End the ramp").click()
    dialog.get_by_role("button", name="End now").click()
    expect(page.get_by_role("button", name="End the ramp")).to_have_count(0)
    assert not ResumeRamp.objects.exists()
    PauseSwitch.objects.create(scope="global", paused_by="system:restore")
    page.goto(f"/admin/jobs/pauseswitch/{PauseSwitch.objects.get(scope='global').pk}/resume/")
    expect(page.get_by_label("over minutes")).to_have_value("10")


def test_the_search_lists_what_matches(page: Page, shoot: Callable[[str], None]):
    for name in ("Monthly report", "Monthly clean-up"):
        make_batch(name=name)
    make_project("monthly")
    page.goto("/find/?q=monthly")
    expect(page.get_by_role("link", name="Monthly report")).to_be_visible()
    shoot("search")


def test_the_search_is_a_key_away_on_the_dashboard_and_in_the_admin(page: Page):
    batch = make_batch(name="Monthly report")
    for address in ("/", "/admin/", "/find/"):
        page.goto(address)
        page.keyboard.press("Control+k")
        box = page.get_by_role("searchbox", name="Find anything").and_(page.locator(":focus"))
        expect(box).to_be_focused()
        box.fill("monthly")
        box.press("Enter")
        page.wait_for_url(f"**/admin/jobs/batch/{batch.pk}/change/")


def test_hostile_texts_are_shown_and_never_run(page: Page):
    batch = make_batch(name=HOSTILE)
    make_jobs(1, batch=batch, state=JobState.IN_PROGRESS, progress=40, progress_message=HOSTILE)
    make_dead_letters(1, error_code=HOSTILE[:60], error_message=HOSTILE, remediation=HOSTILE)
    User.objects.create_user(HOSTILE[:140], pk=777)
    open_alert("exceeded", "1:x", severity="critical", message=HOSTILE, figures={})
    open_alert("usage", "1:y", severity="notice", message=HOSTILE, figures={}, threshold=60)
    QuotaAlert.objects.filter(kind="usage").update(acknowledged_at=Now(), acknowledged_by="user:777")
    PauseSwitch.objects.create(scope="service", key=HOSTILE[:90], paused_by="user:777", reason=HOSTILE)
    Executor.objects.create(id=uuid4(), host=HOSTILE, pid=1, process_started_at=1.0, cluster_pid=1, slots=1)
    subject = Subject("s", "write", HOSTILE, HOSTILE)
    limits.create_limit({"name": "one", "service": "s", "capacity": 5, "scope": "project"}, actor="user:1")
    decide([Call(subject, kind="k")] * 5)
    with connection.cursor() as cursor:
        cursor.execute(
            "INSERT INTO jobs_jobevent (job_id, project_id, service, event_type, message)"
            " SELECT id, project_id, service, 'error', %s FROM jobs_job",
            [HOSTILE],
        )
    cache.forget_all()
    open_dashboard(page)
    for block in ("#verdict", "#batches", "#alerts", "#executors", "#feed", "#limits"):
        expect(page.locator(block)).to_contain_text("<img src=x onerror=alert(1)>")
    assert page.locator("#live img, #live script, #live svg[onload]").count() == 0
    page.goto("/me/?project=acme")
    for block in ("#batches", "#jobs", "#letters"):
        expect(page.locator(block)).to_contain_text("<img src=x onerror=alert(1)>")
    assert page.locator("#live img, #live script").count() == 0


def test_a_page_that_loses_its_server_says_since_when_and_recovers(
    page: Page, busy: dict[str, Any], shoot: Callable[[str], None]
):
    open_dashboard(page)
    page.route("**/live/**", lambda route: route.abort())
    banner = page.get_by_role("alert").filter(has_text="No connection since")
    expect(banner).to_be_visible()
    expect(page.locator("#live")).to_have_class("is-stale")
    expect(page.locator("#link")).to_contain_text("Not connected")
    expect(page.locator("#limits li").filter(has_text="sheets-write")).to_be_visible()
    if os.environ.get("WRITE_SCREENSHOTS"):
        page.screenshot(path=SCREENSHOTS / "dashboard-disconnected.png")
    page.unroute("**/live/**")
    banner.get_by_role("button", name="Try now").click()
    expect(page.locator("#banner")).to_be_hidden()
    expect(page.locator("#live")).not_to_have_class("is-stale")
    expect(page.locator("#told")).to_contain_text("Connected again")


def test_a_session_that_ends_asks_to_sign_in_again(page: Page):
    open_dashboard(page)
    page.context.clear_cookies()
    expect(page.locator("#banner")).to_contain_text("Your session has ended")
    page.get_by_role("link", name="Sign in again").click()
    page.wait_for_url("**/admin/login/?next=/")


def test_an_empty_installation_says_what_to_do(page: Page, shoot: Callable[[str], None]):
    open_dashboard(page)
    expect(page.locator("#verdict")).to_contain_text("No executor is alive")
    expect(page.locator("#limits")).to_contain_text("No limits are set.")
    expect(page.locator("#batches")).to_contain_text("No batch is open.")
    expect(page.locator("#alerts")).to_contain_text("No alert is open.")
    expect(page.locator("#executors")).to_contain_text("manage.py qcluster")
    expect(page.locator("#feed")).to_contain_text("No events.")
    page.set_viewport_size({"width": 360, "height": 740})
    assert page.evaluate("document.documentElement.scrollWidth") <= 360
    shoot("dashboard-empty")


def test_the_choice_of_colours_is_kept_and_shared_with_the_admin(page: Page):
    open_dashboard(page)
    page.get_by_role("button", name="Colours").click()
    page.get_by_role("button", name="Colours").click()
    expect(page.locator("html")).to_have_class("dark")
    page.reload()
    expect(page.locator("html")).to_have_class("dark")
    page.goto("/admin/")
    expect(page.locator("html")).to_have_class(re.compile("dark"))
    page.evaluate("localStorage.removeItem('adminTheme')")


def test_the_feed_can_be_filtered_and_held(page: Page, busy: dict[str, Any]):
    open_dashboard(page)
    page.locator("#feed-filter [name=state]").select_option("failed")
    rows = page.locator("#feed li")
    expect(rows).to_have_count(3)
    page.locator("#feed-filter [name=project]").fill("globex")
    expect(page.locator("#feed")).to_contain_text("No events.")
    page.locator("#feed-filter [name=project]").fill("")
    expect(rows).to_have_count(3)
    page.get_by_role("button", name="Hold").click()
    make_dead_letters(1)
    expect(page.locator("#tiles a").filter(has_text="Dead letters")).to_contain_text("4")
    expect(rows).to_have_count(3)
    page.get_by_role("button", name="Go on").click()
    expect(rows).to_have_count(4)


def test_charts_are_read_by_the_arrow_keys_and_over_other_spans(page: Page, busy: dict[str, Any]):
    open_dashboard(page)
    chart = page.locator("figure").filter(has_text="Jobs by outcome")
    expect(chart.locator("path.area")).to_have_count(5)
    chart.focus()
    page.keyboard.press("Home")
    first = chart.locator(".legend").inner_text()
    page.keyboard.press("ArrowRight")
    expect(chart.locator(".legend")).not_to_have_text(first)
    expect(chart.locator(".legend")).to_contain_text("completed 11.")
    page.get_by_role("button", name="24 h").click()
    expect(page.get_by_role("button", name="24 h")).to_have_attribute("aria-pressed", "true")
    expect(chart.locator(".legend")).not_to_contain_text("completed 11.")


def test_a_producer_signs_in_and_follows_its_own_work(
    chromium: Browser, live_server: Any, tmp_path: Path, busy: dict[str, Any]
):
    key = ProducerKey.issue(make_project("acme"), name="nightly import", scopes=["read", "operate"])[1]
    context = chromium.new_context(base_url=live_server.url, viewport=WIDE)
    page = context.new_page()
    page.goto("/me/")
    directory = SCREENSHOTS if os.environ.get("WRITE_SCREENSHOTS") else tmp_path
    page.screenshot(path=directory / "sign-in-light.png")
    page.get_by_label("Producer key").fill("qo_wrong")
    page.get_by_role("button", name="Sign in").click()
    expect(page.get_by_role("alert")).to_contain_text("unknown, expired or revoked")
    page.get_by_label("Producer key").fill(key)
    page.get_by_role("button", name="Sign in").click()
    expect(page.get_by_role("heading", name="Project acme")).to_be_visible()
    expect(page.locator("#batches li")).to_contain_text("610 completed")
    expect(page.locator("#letters")).to_contain_text("forbidden")
    expect(page.locator("#batches button")).to_have_count(0)
    for variant, scheme, size in VARIANTS:
        page.set_viewport_size(size)
        page.emulate_media(color_scheme=scheme)
        assert page.evaluate("document.documentElement.scrollWidth") <= size["width"]
        page.screenshot(path=directory / f"me-{variant}.png")
    make_jobs(5, batch=busy["report"], state=JobState.COMPLETED)
    expect(page.locator("#batches li")).to_contain_text("615 completed")
    page.locator("#letters tbody a").first.click()
    expect(page.locator("#verdict")).to_contain_text("failed")
    expect(page.locator("#letter")).to_contain_text("forbidden")
    expect(page.locator("#live")).not_to_have_class("is-loading")
    for variant, scheme, size in VARIANTS:
        page.set_viewport_size(size)
        page.emulate_media(color_scheme=scheme)
        assert page.evaluate("document.documentElement.scrollWidth") <= size["width"]
        page.screenshot(path=directory / f"me-job-{variant}.png")
    failed = page.url
    page.get_by_role("button", name="Requeue").click()
    page.wait_for_url(lambda url: url != failed)
    expect(page.locator("#verdict")).to_contain_text("queued")
    page.get_by_role("link", name=f"…{failed.rstrip('/')[-8:]}").click()
    expect(page.locator("#letter")).to_contain_text("It was requeued.")
    page.get_by_role("button", name="Sign out").click()
    expect(page.get_by_label("Producer key")).to_be_visible()
    context.close()


def test_an_address_without_a_page_looks_like_ours(page: Page, shoot: Callable[[str], None]):
    page.goto("/nothing/at/all")
    expect(page.get_by_role("heading", name="There is nothing here")).to_be_visible()
    shoot("not-found")
