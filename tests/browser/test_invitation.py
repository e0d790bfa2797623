"""A colleague is invited with a role, signs in by the link, and sees what the role says."""

from __future__ import annotations

from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect

from queueops.site import roles
from tests.browser.conftest import PASSWORD, WIDE

pytestmark = pytest.mark.django_db(transaction=True)


def test_an_invited_colleague_signs_in_and_sees_what_the_role_says(
    page: Page, shoot: Any, chromium: Browser, live_server: Any
):
    roles.make_groups()
    page.goto("/admin/auth/user/")
    page.get_by_role("link", name="Invite…").click()
    page.get_by_label("Name").fill("anna")
    page.get_by_label("Role").select_option("viewer")
    shoot("invite")
    page.get_by_label("Name").fill("anna")
    page.get_by_label("Role").select_option("viewer")
    page.get_by_role("button", name="Invite").click()
    link = page.locator(".qo-secret").inner_text()

    context = chromium.new_context(base_url=live_server.url, viewport=WIDE)
    colleague = context.new_page()
    colleague.goto(link)
    colleague.get_by_label("Password").fill(PASSWORD)
    colleague.get_by_label("The same once more").fill(PASSWORD)
    colleague.get_by_role("button", name="Sign in").click()
    expect(colleague.get_by_role("heading", name="Overview").first).to_be_visible()
    colleague.goto("/admin/jobs/job/")
    expect(colleague.locator("#changelist")).to_be_visible()
    expect(colleague.get_by_role("link", name="Credentials", exact=True)).to_have_count(0)
    colleague.goto(link)
    expect(colleague.get_by_text("This link is over")).to_be_visible()
    context.close()

    page.goto("/admin/auth/user/")
    page.get_by_role("link", name="anna").first.click()
    expect(page.get_by_label("Staff status")).not_to_be_visible()  # folded with the raw permissions
    page.get_by_text("Raw permissions").click()
    expect(page.get_by_label("Staff status")).to_be_checked()
