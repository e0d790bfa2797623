"""Secrets of webhooks and alert routes: encrypted, and rotated like credentials."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from uuid import uuid4

import pytest
from cryptography.fernet import Fernet
from django.core.management import call_command
from django.db import connection, connections

from jobs.handlers.alert import AlertPayload
from jobs.handlers.errors import ProviderError
from jobs.handlers.registry import RunningJob, find_handler
from jobs.models import Webhook
from queueops.site.diagnosis.access import examine_credentials
from queueops.site.diagnosis.finding import DoctorVerdict
from queueops.tenancy.secrets.signing import open_signing_secret, seal_signing_secret
from ratelimits.models import AlertRoute
from tests.factories import SIGNING_SECRET, make_project, make_route, make_webhook
from tests.support.people import signed_in

pytestmark = pytest.mark.django_db

OLD, NEW = Fernet.generate_key().decode(), Fernet.generate_key().decode()


@pytest.fixture
def keys(settings):
    """Set the keys of this process; without arguments there are none, as in production."""

    def use(*words: str) -> None:
        settings.QUEUEOPS = replace(settings.QUEUEOPS, credential_keys=words, debug=False)

    use(OLD)
    return use


def again(row) -> str:
    """Its secret as it is stored now."""
    row.refresh_from_db()
    return open_signing_secret(row)


def test_rotation_and_the_doctor_see_to_both(keys):
    rows = make_webhook(make_project(), former_secret=seal_signing_secret("whsec_before")), make_route()
    make_route(name="on call", channel="email", target="ops@example.org", secret="")
    keys(NEW, OLD)
    call_command("rotate_credentials")
    keys(NEW)
    for row in rows:
        assert again(row) == SIGNING_SECRET
        assert row.rotated_at is not None
    assert open_signing_secret(rows[0], column="former_secret") == "whsec_before"
    assert examine_credentials().verdict is DoctorVerdict.OK
    keys(OLD)
    assert examine_credentials().observation == "no key opens pager, http://127.0.0.1:9/"


@pytest.mark.parametrize(
    ("page", "form"),
    [
        ("jobs/webhook", {"project": "acme", "url": "https://example.org/", "hears_batches": "on", "most_jobs": "100"}),
        (
            "ratelimits/alertroute",
            {"name": "a", "channel": "webhook", "target": "https://example.org/", "least_severity": "warning"},
        ),
    ],
)
def test_without_a_key_the_forms_say_so(keys, page, form):
    make_project()
    client = signed_in("administrator")
    keys()
    assert "QUEUEOPS_CREDENTIAL_KEYS must be set" in client.post(f"/admin/{page}/add/", form).content.decode()
    assert not Webhook.objects.exists()
    assert not AlertRoute.objects.exists()


@pytest.mark.parametrize("kind", ["jobs/webhook", "ratelimits/alertroute"])
def test_a_form_that_is_saved_after_a_rotation_does_not_bring_the_old_token_back(keys, kind):
    row = make_webhook(make_project()) if kind == "jobs/webhook" else make_route()
    client = signed_in("administrator")
    address = f"/admin/{kind}/{row.pk}/change/"
    rotated = False

    def rotate_first(execute, sql, *rest):
        nonlocal rotated
        if sql.startswith("UPDATE") and f'"{row._meta.db_table}"' in sql and not rotated:
            rotated = True
            keys(NEW, OLD)
            call_command("rotate_credentials")
        return execute(sql, *rest)

    form = {"url": "https://b.test/", "name": "b", "target": "https://b.test/", "least_severity": "critical"}
    form |= {"hears_batches": "on", "most_jobs": "100"}
    with connection.execute_wrapper(rotate_first):
        assert client.post(address, form).status_code == 302
    assert rotated
    keys(NEW)
    assert again(row) == SIGNING_SECRET


@pytest.mark.django_db(transaction=True)
def test_a_message_that_cannot_be_signed_is_not_sent_and_the_route_says_why(keys):
    route = make_route()
    keys(NEW)

    async def deliver() -> None:
        payload = AlertPayload(route=route.pk, service="alert-webhook", alert=None, event="test")
        job = RunningJob(
            id=uuid4(), payload=payload, project="acme", user_id=None,
            effect_key="x", attempt=1, report=lambda percent, message: None,
        )  # fmt: skip
        await find_handler("queueops.alert").function(job)

    with pytest.raises(ProviderError) as failed:
        asyncio.run(deliver())
    assert (failed.value.code, failed.value.outcome) == ("credential_unreadable", "refused")
    assert "No key in QUEUEOPS_CREDENTIAL_KEYS opens" in AlertRoute.objects.get().last_error
    connections.close_all()
