"""Every screen fits a wide window and a phone; with WRITE_SCREENSHOTS set they are drawn in .screenshots/."""

from __future__ import annotations

import pytest
from django.contrib import admin
from django.urls import reverse
from playwright.sync_api import Page

from queueops.tenancy.models import Credential
from ratelimits.models import Price
from tests.browser.conftest import CUT_OFF, DRAWN, PHONE, SCREENSHOTS, VARIANTS, WIDE
from tests.factories import make_batch, make_jobs
from tests.security.world import World
from tests.support.screens import LISTS

pytestmark = pytest.mark.django_db(transaction=True)


def test_every_list_fits_the_screen_and_cuts_nothing_off(page: Page):
    World.make("nightly import")
    screens = {"overview": reverse("admin:index")}
    screens |= {name: reverse(f"admin:{model}_changelist") for name, model in LISTS.items()}
    too_wide, cut_off = [], {}
    for variant, scheme, size in VARIANTS if DRAWN else (VARIANTS[0], VARIANTS[-1]):
        page.set_viewport_size(size)
        page.emulate_media(color_scheme=scheme)
        for name, address in screens.items():
            answer = page.goto(address, wait_until="networkidle" if DRAWN else "load")
            assert answer is not None
            assert answer.ok, address
            if page.evaluate("document.documentElement.scrollWidth") > size["width"]:
                too_wide.append((name, variant))
            if cells := page.evaluate(CUT_OFF):
                cut_off[name, variant] = cells
            if DRAWN:
                page.screenshot(path=SCREENSHOTS / f"{name}-{variant}.png")
    assert too_wide == []
    assert cut_off == {}


def test_a_name_of_one_long_word_pushes_no_column_out_of_view(page: Page):
    make_jobs(1, project="p" * 60, batch=make_batch(project="p" * 60, name="n" * 200))
    page.goto(reverse("admin:jobs_batch_changelist"))
    state = page.locator("#result_list .field-state").bounding_box()
    assert state is not None
    assert state["x"] + state["width"] <= WIDE["width"]


def test_every_list_that_is_searched_says_what_is_looked_for():
    screens = {str(model._meta): screen for model, screen in admin.site._registry.items() if screen.search_fields}
    assert len(screens) > 20
    assert [name for name, screen in screens.items() if not screen.search_help_text] == []


def test_every_time_that_is_entered_or_shown_has_its_zone(page: Page):
    world = World.make("nightly import")
    for model in ("jobs_maintenancewindow", "jobs_schedule", "ratelimits_price", "tenancy_producerkey"):
        page.goto(reverse(f"admin:{model}_add"))
        fields = page.locator(".form-row:has(.vDateField)").all()
        assert fields
        for field in fields:
            assert "In UTC." in field.inner_text()
    page.goto(reverse("admin:ratelimits_price_change", args=[world.ids["ratelimits_price"]]))
    assert Price.objects.get().valid_from.strftime("%Y-%m-%d %H:%M UTC") in page.locator("#content").inner_text()


def test_members_of_a_pool_are_read_and_changed_on_a_phone(page: Page):
    world = World.make("nightly import")
    Credential.objects.update(name="of-the-team-that-pays-for-all-of-its-calls")
    page.set_viewport_size(PHONE)
    page.goto(reverse("admin:tenancy_credentialpool_change", args=[world.ids["tenancy_credentialpool"]]))
    for name in ("credential", "weight"):
        field = page.locator(f"tr.has_original td.field-{name}, tr.form-row:not(.empty-form) td.field-{name}").first
        shown = field.locator("input, .select2-container").first.bounding_box()
        assert shown is not None
        assert shown["x"] + shown["width"] <= PHONE["width"]
    assert page.locator("tr.form-row:visible").count() == 1  # the one that others are made from stays hidden
