"""Every screen of the admin fits a phone; with WRITE_SCREENSHOTS set they are drawn for docs/screenshots/."""

from __future__ import annotations

import pytest
from django.urls import reverse
from playwright.sync_api import Page

from tests.browser.conftest import DRAWN, SCREENSHOTS, VARIANTS
from tests.security.world import World

pytestmark = [pytest.mark.browser, pytest.mark.django_db(transaction=True)]

# Those that other tests do not draw already, by the name of their picture.
LISTS = {
    "batches": "jobs_batch",
    "provider-batches": "jobs_providerbatch",
    "batch-policies": "jobs_batchpolicy",
    "pauses": "jobs_pauseswitch",
    "bulk-operations": "jobs_bulkoperation",
    "uploads": "jobs_upload",
    "alerts": "ratelimits_quotaalert",
    "objectives": "jobs_objective",
    "silences": "ratelimits_alertsilence",
    "user-quotas": "ratelimits_allowanceoverride",
    "executors": "jobs_executor",
    "pools": "jobs_pool",
    "breakers": "jobs_servicebreaker",
    "audit-trail": "audit_auditentry",
    "webhooks": "jobs_webhook",
    "deliveries": "jobs_webhookdelivery",
    "retry-policies": "jobs_retrypolicy",
    "aging-rules": "jobs_agingrule",
    "schedules": "jobs_schedule",
    "house-keeping": "django_q_schedule",
    "alert-routes": "ratelimits_alertroute",
    "projects": "tenancy_project",
    "producer-keys": "tenancy_producerkey",
    "credentials": "tenancy_credential",
    "credential-pools": "tenancy_credentialpool",
    "issuers": "tenancy_issuer",
    "accounts": "auth_user",
    "roles": "auth_group",
    "sign-in-counts": "access_signincount",
}


def test_every_list_fits_a_phone(page: Page):
    World.make("nightly import")
    screens = {"overview": reverse("admin:index")}
    screens |= {name: reverse(f"admin:{model}_changelist") for name, model in LISTS.items()}
    too_wide = []
    for variant, scheme, size in VARIANTS if DRAWN else VARIANTS[-1:]:
        page.set_viewport_size(size)
        page.emulate_media(color_scheme=scheme)
        for name, address in screens.items():
            answer = page.goto(address, wait_until="networkidle" if DRAWN else "load")
            assert answer is not None
            assert answer.ok, address
            if page.evaluate("document.documentElement.scrollWidth") > size["width"]:
                too_wide.append((name, variant))
            if DRAWN:
                page.screenshot(path=SCREENSHOTS / f"{name}-{variant}.png")
    assert too_wide == []
