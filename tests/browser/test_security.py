"""What Chromium says of our pages, and the second factor as a person meets it."""

from __future__ import annotations

import base64
import re
from typing import Any

import pytest
from django.contrib.auth.models import User
from playwright.sync_api import Browser, Page, expect

from queueops.access.models import Authenticator
from queueops.access.services import second_factor
from tests.browser.conftest import PASSWORD, WIDE, sign_in
from tests.security.people import code_now
from tests.security.world import World

pytestmark = pytest.mark.django_db(transaction=True)

HOSTILE = "<img src=x onerror=alert(1)>\"'><script>alert(2)</script>"
PAGES = [
    "/",
    "/me/",
    "/admin/",
    "/admin/second-factor/",
    "/admin/second-factor/passkeys/",
    "/admin/jobs/job/",
    "/admin/jobs/batch/",
    "/admin/jobs/deadletter/",
    "/admin/jobs/deadletter/by-cause/",
    "/admin/audit/auditentry/",
    "/admin/jobs/upload/",
    "/admin/ratelimits/limit/",
    "/admin/ratelimits/limit/add/",
    "/admin/auth/user/",
    "/admin/access/signincount/",
    "/api/v1/docs/",
]
OF_ROWS = [
    "jobs_job",
    "jobs_batch",
    "jobs_deadletter",
    "jobs_upload",
    "jobs_agingrule",
    "ratelimits_limit",
    "auth_user",
]


@pytest.fixture
def complaints(page: Page) -> list[str]:
    """What the console says about what a policy forbids."""
    said: list[str] = []

    def listen(message: Any) -> None:
        if "Content Security Policy" in message.text:
            said.append(f"{page.url}: {message.text}")

    page.on("console", listen)
    return said


@pytest.mark.proves("S7", "S12")
def test_no_page_does_what_its_policy_forbids_even_with_hostile_texts(page: Page, complaints):
    world = World.make(HOSTILE)
    rows = [f"/admin/{screen.replace('_', '/')}/{world.ids[screen]}/change/" for screen in OF_ROWS]
    for address in (*PAGES, *rows):
        answer = page.goto(address)
        assert answer is not None
        assert answer.status == 200, address
        page.wait_for_load_state("load")
        page.locator("body").click(position={"x": 2, "y": 2})
    # A policy that let everything through would pass, too: this page must not be able to run it.
    page.goto("/")
    page.evaluate("document.body.insertAdjacentHTML('beforeend', '<div onclick=\"alert(3)\" id=probe>x</div>')")
    page.locator("#probe").dispatch_event("click")
    assert [line for line in complaints if "inline event handler" in line]
    assert [line for line in complaints if "inline event handler" not in line] == []


@pytest.mark.proves("S9")
def test_a_person_sets_up_a_second_factor_and_signs_in_with_it(page: Page, shoot, chromium: Browser, live_server: Any):
    page.goto("/admin/second-factor/")
    page.get_by_label("Password").fill(PASSWORD)
    page.get_by_role("button", name="Begin").click()
    expect(page.get_by_role("img", name="QR code").locator("svg")).to_be_visible()
    shoot("second-factor")
    typed = page.locator("code.qo-id").inner_text()
    secret = base64.b32decode(typed.replace(" ", ""))
    page.get_by_role("textbox", name="Code").fill(code_now(secret))
    page.get_by_role("button", name="Turn it on").click()
    codes = page.get_by_label("Recovery codes").locator("li")
    expect(codes).to_have_count(10)
    recovery_code = codes.first.inner_text()
    page.get_by_role("link", name="I have them").click()
    expect(page.get_by_text("Your second factor is on")).to_be_visible()
    context = chromium.new_context(base_url=live_server.url, viewport=WIDE)
    other = context.new_page()
    other.goto("/admin/jobs/job/")
    sign_in(other, "operator")
    other.wait_for_url("**/login/code/")
    other.get_by_label("Code").fill("123")
    other.get_by_role("button", name="Sign in").click()
    expect(other.get_by_text("The code is wrong")).to_be_visible()
    other.get_by_label("Code").fill(recovery_code)
    other.get_by_role("button", name="Sign in").click()
    other.wait_for_url("**/admin/jobs/job/")
    expect(other.get_by_text("Recovery codes left: 9")).to_be_visible()
    context.close()
    assert Authenticator.objects.get().user == User.objects.get()
    assert re.fullmatch(r"[A-Z2-7-]{19}", recovery_code)
    assert second_factor.authenticator_of(User.objects.select_related("authenticator").get()) is not None
