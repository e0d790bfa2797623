"""axe, with the rules of WCAG 2.2, finds nothing serious on any page, in either theme and on a phone."""

from __future__ import annotations

from collections.abc import Iterator
from http import HTTPStatus
from typing import Any

import pytest
from axe_playwright_python.sync_playwright import Axe
from django.contrib.admin.utils import quote
from django.contrib.auth.models import User
from django.test import Client
from django.urls import reverse
from playwright.sync_api import Page

from tests.browser.conftest import PHONE, VARIANTS
from tests.security.addresses import every_address
from tests.security.world import World
from tests.support.screens import LISTS

pytestmark = pytest.mark.django_db(transaction=True)

FORMS = ("jobs_maintenancewindow", "access_personaltoken", "ratelimits_alertroute")  # that add a row
DRAWN_BY_SCRIPTS = {"/api/v1/docs/"}
SERIOUS = {"serious", "critical"}
# axe leaves WCAG 2.2's size of targets out unless it is asked for.
WCAG = {"resultTypes": ["violations"], "rules": {"target-size": {"enabled": True}}}
OTHERS = ("/", "/find/?q=canary", "/find/?q=nobody-has-this", "/me/", "/nowhere/", "/api/v1/docs/")
# One of each sort of page that a list or a row does not lead to; all of them are looked at in the soak.
ADMIN_PAGES = (
    *("auth/user/invite/", "login/invited/x/y/", "second-factor/", "second-factor/passkeys/"),
    *(
        "jobs/deadletter/groups/",
        "jobs/pauseswitch/pause/",
        "jobs/upload/add/",
        "jobs/job/new/",
        "ratelimits/usagetracking/top/",
    ),
)
ROW_PAGES = (
    ("ratelimits_counter", "override"),
    ("jobs_job", "history"),
    ("jobs_deadletter", "requeue"),
    ("jobs_deadletter", "with_changes"),
)


def addresses(world: World) -> Iterator[str]:
    yield from OTHERS
    yield f"/me/jobs/{world.ids['jobs_job']}/"
    yield reverse("admin:jobs_job_kinds")
    yield reverse("admin:jobs_job_kind", args=["http.request"])
    yield f"{reverse('admin:jobs_job_new')}?kind=llm.generate&project=acme"
    yield reverse("admin:index")
    yield from (reverse(f"admin:{screen}_changelist") for screen in LISTS.values())
    yield from (reverse(f"admin:{screen}_add") for screen in FORMS)
    yield from (f"/admin/{page}" for page in ADMIN_PAGES)
    yield from (reverse(f"admin:{screen}_{page}", args=[quote(world.ids[screen])]) for screen, page in ROW_PAGES)
    yield from (reverse(f"admin:{screen}_change", args=[quote(key)]) for screen, key in world.of_screens.items())


def every_page(world: World, user: User) -> Iterator[str]:
    """All addresses that answer with a page, read from the resolver."""
    client = Client(raise_request_exception=False)
    for path in sorted({address.path(world) for address in every_address()} - {"/admin/logout/"}):
        client.force_login(user)
        answer = client.get(path)
        # The admin's search answers with a part of a page.
        if answer.status_code == HTTPStatus.OK and not answer.streaming and b"<html" in answer.content:
            yield path


def found_on(page: Page, address: str) -> list[str]:
    page.goto(address, wait_until="networkidle" if address in DRAWN_BY_SCRIPTS else "load")
    found = serious(page)
    if found:
        # The bar that stays at the bottom covers what may be scrolled away from it.
        page.evaluate("document.querySelectorAll('*').forEach(one => one.scrollTo?.(0, 1e6))")
        found &= serious(page)
    return [f"{address}: {rule}, {html[:160]}" for rule, html in sorted(found)]


def serious(page: Page) -> set[tuple[str, str]]:
    """Each rule that is broken, with the element."""
    result: dict[str, Any] = Axe().run(page, options=WCAG).response
    return {
        (f"{one['id']} ({one['impact']})", node["html"])
        for one in result["violations"]
        if one["impact"] in SERIOUS
        for node in one["nodes"]
    }


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
    looked_at = dict.fromkeys(addresses(world))
    if scheme == "dark" or size == PHONE:
        looked_at |= dict.fromkeys(every_page(world, User.objects.get(username="operator")))
    faults = [fault for address in looked_at for fault in found_on(page, address)]
    assert faults == [], "\n".join(faults)
