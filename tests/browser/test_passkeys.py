"""Passkeys in Chromium, whose virtual authenticator stands in for a phone or a key."""

from __future__ import annotations

from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect

from queueops.access.models import Passkey
from tests.browser.conftest import PASSWORD, WIDE, sign_in

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.proves("S9")]


def authenticator(page: Page) -> tuple[Any, str]:
    """A platform's authenticator that always agrees."""
    devtools = page.context.new_cdp_session(page)
    devtools.send("WebAuthn.enable")
    options = {
        "protocol": "ctap2",
        "transport": "internal",
        "hasUserVerification": True,
        "isUserVerified": True,
        "automaticPresenceSimulation": True,
    }
    made = devtools.send("WebAuthn.addVirtualAuthenticator", {"options": options})
    return devtools, made["authenticatorId"]


def test_a_person_adds_a_passkey_signs_in_with_it_and_removes_it(
    page: Page, shoot: Any, chromium: Browser, live_server: Any
):
    complaints: list[str] = []
    page.on("console", lambda line: complaints.append(line.text) if line.type == "error" else None)
    page.goto("/admin/second-factor/")
    page.get_by_role("link", name="Add a passkey").click()
    page.get_by_label("Name").fill("office key")
    page.get_by_label("Password").fill(PASSWORD)
    page.get_by_role("button", name="Add").click()
    devtools, device = authenticator(page)
    page.get_by_role("button", name="Create it").click()
    expect(page.get_by_text("office key is one of your passkeys now.")).to_be_visible()
    shoot("passkeys")
    [credential] = devtools.send("WebAuthn.getCredentials", {"authenticatorId": device})["credentials"]
    assert complaints == []

    context = chromium.new_context(base_url=live_server.url, viewport=WIDE)
    other = context.new_page()
    theirs, another_device = authenticator(other)
    other.goto("/admin/jobs/job/")
    sign_in(other, "operator")
    other.wait_for_url("**/login/code/")
    other.get_by_role("button", name="Use a passkey").click()
    expect(other.get_by_role("alert").first).to_contain_text("cancelled, or took too long")
    theirs.send("WebAuthn.addCredential", {"authenticatorId": another_device, "credential": credential})
    other.get_by_role("button", name="Use a passkey").click()
    other.wait_for_url("**/admin/jobs/job/")
    context.close()
    assert Passkey.objects.get().used_at is not None

    page.goto("/admin/second-factor/passkeys/")
    page.get_by_role("link", name="Remove office key").click()
    page.get_by_label("Password").fill(PASSWORD)
    page.get_by_role("button", name="Remove it").click()
    expect(page.get_by_text("office key is removed.")).to_be_visible()
    assert not Passkey.objects.exists()
    page.goto("/admin/")
    expect(page.get_by_role("heading", name="Overview").first).to_be_visible()
