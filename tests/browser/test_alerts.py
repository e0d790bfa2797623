"""Alerts as an operator answers them."""

from __future__ import annotations

import pytest
from playwright.sync_api import Page, expect

from queueops.tenancy.secrets.signing import open_signing_secret
from ratelimits.alerts.alerts import open_alert, tell_exceeded
from ratelimits.limits import catalogue
from ratelimits.models import AlertRoute, Limit, QuotaAlert
from tests.support.alerts import note_saturated

pytestmark = pytest.mark.django_db(transaction=True)

NOW = 1_772_461_800.0
HOSTILE = "<img src=x onerror=alert(1)>"


def some_alerts() -> None:
    limit = Limit.objects.create(name="google-sheets-writes", service="google-sheets", capacity=300)
    rule = catalogue.rule_of(limit)
    note_saturated(rule, "project:acme", waiting=18_231, clears_at=NOW + 3764, now=NOW)
    refused = f"google-sheets-writes, project:acme: the provider refused with 429: {HOSTILE}"
    tell_exceeded(rule, "project:acme", message=refused, figures={"status": 429, "retry_after": 30})
    message = "20 or more dead letters in 15 minutes; most: forbidden (http.request, acme)"
    open_alert("dead_letters", "growth", severity="warning", message=message, figures={})


def test_an_alert_is_found_read_with_its_runbook_and_acknowledged(page: Page, shoot):
    some_alerts()
    page.goto("/admin/ratelimits/quotaalert/")
    rows = page.locator("#result_list tbody")
    expect(rows).to_have_count(3)
    shoot("alerts")
    page.get_by_role("link", name="the provider refused").click()
    expect(page.get_by_role("heading", name="Runbook: The provider refused, or the cap was passed")).to_be_visible()
    shoot("alert")
    page.get_by_role("link", name="Acknowledge").click()
    page.get_by_role("button", name="Acknowledge").click()
    expect(page.get_by_text("1 acknowledged, 0 left alone.")).to_be_visible()
    assert QuotaAlert.objects.get(kind="exceeded").acknowledged_by.startswith("user:")
    page.goto("/admin/ratelimits/quotaalert/")
    page.get_by_label("Alerts by state").get_by_role("link", name="acknowledged").click()
    expect(rows).to_have_count(1)


def test_a_route_is_added_and_its_secret_shown_once(page: Page):
    page.goto("/admin/ratelimits/alertroute/add/")
    page.get_by_label("Name").fill("pager")
    page.locator("[name=channel]").select_option("webhook", force=True)
    page.get_by_label("Target").fill("https://pager.example.org/")
    page.get_by_role("button", name="Save", exact=True).click()
    expect(page.get_by_text("It is not shown again.")).to_be_visible()
    expect(page.get_by_text(open_signing_secret(AlertRoute.objects.get()))).to_be_visible()
    page.get_by_role("link", name="I have copied it").click()
    expect(page.locator("#result_list tbody")).to_have_count(1)
    expect(page.locator("body")).not_to_contain_text("whsec_")
