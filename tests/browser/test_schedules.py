"""A schedule's page fits a phone and shows when it fires by two clocks."""

from __future__ import annotations

import os
import re

import pytest
from django.urls import reverse
from playwright.sync_api import Page, expect

from jobs.features.schedules.schedules import run_schedule
from tests.browser.conftest import SCREENSHOTS, VARIANTS
from tests.factories import make_schedule

pytestmark = pytest.mark.django_db(transaction=True)


def test_the_next_fires_are_shown_by_both_clocks(page: Page):
    schedule = make_schedule("nightly import", cron="30 2 * * MON-FRI", time_zone="Europe/Berlin")
    run_schedule(schedule.pk, project_id="acme", actor="user:1")
    page.goto(reverse("admin:jobs_schedule_change", args=[schedule.pk]))
    rows = page.locator("#next-fires tbody tr")
    expect(rows).to_have_count(5)
    expect(rows.first).to_contain_text("02:30 CE")
    expect(rows.first.locator("time")).not_to_contain_text(re.compile(r"\dT\d"))  # the browser wrote it by its clock
    for variant, scheme, size in VARIANTS:
        page.set_viewport_size(size)
        page.emulate_media(color_scheme=scheme)
        assert page.evaluate("document.documentElement.scrollWidth") <= size["width"]
        if os.environ.get("WRITE_SCREENSHOTS"):
            page.screenshot(path=SCREENSHOTS / f"schedule-{variant}.png")
