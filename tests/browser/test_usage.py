"""Allowances as a limits manager and an administrator use them."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from uuid import UUID, uuid5

import pytest
from django.utils import timezone
from playwright.sync_api import Page, expect

from queueops.audit.models import AuditEntry
from ratelimits.models import UsageEvent, UsageTracking
from ratelimits.usage.allowance_alerts import tend_allowance_alerts
from ratelimits.usage.reports import months_until
from ratelimits.usage.reserve import reserve
from tests.factories import make_allowance, make_project, make_usage_event, make_usage_month

pytestmark = pytest.mark.django_db(transaction=True)

ANN = UUID("018f6a52-3c1d-7000-8000-0000000000a1")


def use_up(user: UUID, *, share: float) -> None:
    """Events of the days of this month until now, and reservations of calls that are under way."""
    now = timezone.now()
    first = now.replace(day=1, hour=0, minute=0, second=0, microsecond=0)
    days = [first + timedelta(days=place, hours=9) for place in range(now.day)]
    parts = [0.4 + (place * 7 % 5) * 0.3 for place in range(len(days))]
    for part, day in zip(parts, days, strict=True):
        spent = int(100_000 * share * part / sum(parts))
        make_usage_event(user, amount=spent, tokens=spent, service="gemini", occurred_at=min(day, now))


def fill_the_project() -> None:
    """A year of one user, and the month of a dozen others."""
    for place, month in enumerate(months_until(f"{timezone.now():%Y-%m}", 12)[:-1]):
        used = (38_000, 52_000, 71_000, 64_000, 90_000, 112_000, 45_000, 0, 66_000, 81_000, 97_000)[place]
        if used:
            make_usage_month(ANN, month=month, used=used)
    use_up(ANN, share=0.85)
    for place in range(12):
        use_up(uuid5(ANN, str(place)), share=0.1 + place * 0.09)
    reserve(project_id="acme", user_id=ANN, amount=800)
    reserve(project_id="acme", user_id=ANN, amount=1_200)
    tend_allowance_alerts()
    tend_allowance_alerts()


def test_an_allowance_is_set_filled_corrected_and_checked(page: Page, shoot: Callable[[str], None]):
    make_project("acme")
    page.goto("/admin/ratelimits/allowance/")
    expect(page.get_by_text("No allowances yet.")).to_be_visible()
    page.get_by_role("link", name="Add allowance").first.click()
    page.get_by_label("Project").select_option("acme")
    page.get_by_label("Quota").fill("100000")
    page.get_by_label("Unit").select_option("tokens")
    page.get_by_label("Time zone").select_option("Europe/Vienna")
    page.get_by_label("Reason").fill("the plan they bought")
    page.get_by_role("button", name="Save", exact=True).click()
    page.wait_for_url("**/admin/ratelimits/allowance/")
    assert AuditEntry.objects.get(action="set_allowance").reason == "the plan they bought"

    fill_the_project()
    page.goto("/admin/ratelimits/allowance/")
    row = page.locator("#result_list tbody").filter(has_text="acme")
    expect(row).to_contain_text("100,000 tokens")
    expect(row).to_contain_text("13")
    shoot("allowances")
    page.get_by_role("link", name="acme", exact=True).click()
    page.wait_for_url("**/change/")
    shoot("allowance")
    page.get_by_role("link", name="Top users").click()
    expect(page.get_by_text("13 users used")).to_be_visible()
    shoot("usage-top")
    page.goto("/admin/ratelimits/usagetracking/")
    shoot("usage")
    page.locator("#result_list").get_by_role("link", name=str(ANN)).click()
    expect(page.get_by_text("near the quota").first).to_be_visible()
    expect(page.get_by_role("img", name="Used by month, in tokens")).to_be_visible()
    shoot("usage-month")
    page.get_by_text("As a table").click()
    expect(page.get_by_role("cell", name="112,000 tokens")).to_be_visible()


def test_a_month_is_corrected_given_a_quota_and_its_reservation_cancelled(page: Page, shoot: Callable[[str], None]):
    make_allowance(quota=1_000, unit="tokens")
    make_usage_event(ANN, amount=900, tokens=900)
    held = reserve(project_id="acme", user_id=ANN, amount=100)
    row = UsageTracking.objects.get()
    page.goto(f"/admin/ratelimits/usagetracking/{row.pk}/change/")
    page.get_by_role("link", name="Correct").click()
    page.get_by_label("Add to what is used, in tokens").fill("-1000")
    page.get_by_label("Reason").fill("the provider did not bill it")
    page.get_by_role("button", name="See what it does").click()
    expect(page.get_by_text("Only 900 are used")).to_be_visible()
    page.get_by_label("Add to what is used, in tokens").fill("-300")
    page.get_by_role("button", name="See what it does").click()
    expect(page.get_by_text("900 tokens before, 600 tokens afterwards")).to_be_visible()
    page.get_by_role("button", name="Yes, correct").click()
    expect(page.get_by_text("Corrected by -300: 600 tokens used.")).to_be_visible()
    expect(page.get_by_text("the provider did not bill it")).to_be_visible()

    page.get_by_role("link", name="Set this user's quota").click()
    page.get_by_label("Quota, in tokens a month").fill("5000")
    page.get_by_role("button", name="Set this user's quota").click()
    expect(page.get_by_text("5,000 tokens, this user's own; others have 1,000")).to_be_visible()

    page.get_by_role("link", name="Cancel…").click()
    page.get_by_label("Reason").fill("the app was stopped")
    page.get_by_role("button", name="Yes, cancel").click()
    expect(page.get_by_text("1 cancelled, 0 left alone.")).to_be_visible()
    page.goto("/admin/ratelimits/usagereservation/?status=any")
    shoot("reservations")
    page.goto("/admin/ratelimits/usageevent/")
    expect(page.locator("#result_list")).to_contain_text("correction")
    shoot("usage-events")
    row.refresh_from_db()
    assert (row.used, row.reserved, row.quota) == (600, 0, 5_000)
    assert UsageEvent.objects.filter(reservation=held.reservation_id).count() == 0


def test_the_ledger_is_checked_and_repaired(page: Page, shoot: Callable[[str], None]):
    make_allowance()
    make_usage_event(ANN, amount=30)
    make_usage_event(uuid5(ANN, "other"), amount=5)
    page.goto("/admin/ratelimits/allowance/")
    page.get_by_role("link", name="Check the ledger…").click()
    page.get_by_role("button", name="Check now").click()
    expect(page.get_by_text("Every month holds its sums")).to_be_visible()
    UsageTracking.objects.filter(user_id=ANN).update(used=31)
    page.get_by_role("button", name="Check now").click()
    expect(page.get_by_text("1 month differs")).to_be_visible()
    expect(page.get_by_role("cell", name=str(ANN))).to_be_visible()
    shoot("ledger")
    page.get_by_role("link", name="Repair…").click()
    page.get_by_label("Reason").fill("a row was edited by hand")
    page.get_by_role("button", name="Yes, repair").click()
    expect(page.get_by_text("1 month repaired")).to_be_visible()
    assert UsageTracking.objects.get(user_id=ANN).used == 30
