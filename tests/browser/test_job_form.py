"""A job is filled in, priced and submitted in a real browser, with the keyboard alone."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import Page, expect

from jobs.models import Job
from queueops.tenancy.models import Credential
from tests.browser.conftest import PHONE
from tests.factories import make_dead_letter, make_project

pytestmark = pytest.mark.django_db(transaction=True)


def test_a_job_is_filled_in_mended_priced_and_submitted_with_the_keyboard_alone(page: Page, shoot):
    credential = Credential.objects.create(name="nightly", service="openai")
    credential.projects.add(make_project())
    page.goto("/admin/jobs/job/")
    page.get_by_role("link", name="New job").focus()
    page.keyboard.press("Enter")
    page.get_by_label("Kind").focus()
    page.keyboard.type("llm.gen")
    shoot("job-form-choose")
    page.get_by_label("Kind").focus()
    page.keyboard.type("llm.gen")
    page.get_by_role("button", name="Next").press("Enter")
    shoot("job-form-empty")
    page.get_by_label("Provider").press("o")
    page.get_by_label("Model", exact=False).first.focus()
    page.keyboard.type("gpt-4o")
    page.get_by_label("Prompt").focus()
    page.keyboard.type("Name three rivers.\nOne a line.")
    page.get_by_label("Temperature").focus()
    page.keyboard.type("warm")
    page.get_by_label("Schema").focus()
    page.keyboard.type('{"type": ')
    page.get_by_role("button", name="Check and show the price").press("Enter")
    expect(page.get_by_role("alert")).to_contain_text("Nothing was submitted")
    expect(page.get_by_label("Temperature")).to_have_value("warm")
    expect(page.get_by_label("Prompt")).to_have_value("Name three rivers.\nOne a line.")
    shoot("job-form-errors")
    page.get_by_role("alert").get_by_role("link", name="Temperature").press("Enter")
    page.get_by_label("Temperature").fill("0.5")
    page.get_by_label("Schema").fill("")
    page.get_by_label("Credential").press("n")
    page.get_by_role("button", name="Check and show the price").press("Enter")
    expect(page.get_by_role("heading", name="Forecast, if submitted now")).to_be_visible()
    shoot("job-form-priced")
    assert not Job.objects.exists()
    page.get_by_role("button", name="Submit").press("Enter")
    page.wait_for_url(re.compile(r"/admin/jobs/job/[0-9a-f-]+/change/"))
    expect(page.get_by_text("Submitted. It starts as limits allow.")).to_be_visible()
    assert Job.objects.get().payload == {
        "provider": "openai",
        "credential": "nightly",
        "model": "gpt-4o",
        "prompt": "Name three rivers.\nOne a line.",
        "temperature": 0.5,
    }


def test_a_dead_letters_payload_is_changed_on_a_phone(page: Page, shoot):
    letter = make_dead_letter(
        payload='{"method": "PUT", "url": "https://api.example.org/7", "headers": {"X-Auth": "abc"}}'
    )
    page.set_viewport_size(PHONE)
    page.goto(f"/admin/jobs/deadletter/{letter.pk}/change/")
    page.goto(f"/admin/jobs/deadletter/{letter.pk}/with-changes/")
    shoot("job-form-again")
    page.set_viewport_size(PHONE)
    page.get_by_label("URL").fill("https://api.example.org/8")
    page.get_by_role("button", name="Check and show the price").click()
    page.get_by_role("button", name="Submit").click()
    page.wait_for_url(re.compile(r"/admin/jobs/job/[0-9a-f-]+/change/"))
    letter.refresh_from_db()
    new = letter.requeued_as
    assert new is not None
    assert (new.payload["url"], new.payload["headers"]) == ("https://api.example.org/8", {"X-Auth": "abc"})
