"""axe finds nothing serious on any page, in either theme and on a phone."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from axe_playwright_python.sync_playwright import Axe
from django.contrib.admin.utils import quote
from django.urls import reverse
from playwright.sync_api import Page

from tests.browser.conftest import VARIANTS
from tests.security.world import World
from tests.support.screens import LISTS

pytestmark = pytest.mark.django_db(transaction=True)

FORMS = ("jobs_maintenancewindow", "access_personaltoken", "ratelimits_alertroute")  # that add a row
DRAWN_BY_SCRIPTS = {"/api/v1/docs/"}
SERIOUS = {"serious", "critical"}
OTHERS = ("/", "/find/?q=canary", "/find/?q=nobody-has-this", "/me/", "/nowhere/", "/api/v1/docs/")


def addresses(world: World) -> Iterator[str]:
    yield from OTHERS
    yield f"/me/jobs/{world.ids['jobs_job']}/"
    yield reverse("admin:jobs_job_kinds")
    yield reverse("admin:jobs_job_kind", args=["http.request"])
    yield reverse("admin:index")
    yield from (reverse(f"admin:{screen}_changelist") for screen in LISTS.values())
    yield from (reverse(f"admin:{screen}_add") for screen in FORMS)
    yield from (reverse(f"admin:{screen}_change", args=[quote(key)]) for screen, key in world.ids.items())


def found_on(page: Page, address: str) -> list[str]:
    page.goto(address, wait_until="networkidle" if address in DRAWN_BY_SCRIPTS else "load")
    result: dict[str, Any] = Axe().run(page).response
    return [
        f"{address}: {one['id']} ({one['impact']}) {len(one['nodes'])} x, such as {one['nodes'][0]['html'][:160]}"
        for one in result["violations"]
        if one["impact"] in SERIOUS
    ]


@pytest.mark.parametrize(
    ("scheme", "size"),
    [
        pytest.param(scheme, size, id=name, marks=[pytest.mark.soak] if name != "light" else [])
        for name, scheme, size in VARIANTS
    ],
)
def test_axe_finds_nothing_serious_on_any_page(page: Page, scheme: Any, size: Any):
    world = World.make("nightly import")
    page.set_viewport_size(size)
    page.emulate_media(color_scheme=scheme)
    faults = [fault for address in addresses(world) for fault in found_on(page, address)]
    assert faults == [], "\n".join(faults)
