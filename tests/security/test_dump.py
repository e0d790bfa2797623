"""S2: whoever gets hold of a dump of the database has no key, token, session or secret that could be used."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator

import pytest
from django.db import connection
from django.test import Client

from jobs.models import Webhook
from queueops.access.services import second_factor
from queueops.tenancy.models import Credential, Issuer, ProducerKey
from queueops.tenancy.secrets.credentials import seal, unseal
from queueops.tenancy.secrets.signing import open_signing_secret
from ratelimits.models import AlertRoute
from tests.api.conftest import SPEC
from tests.factories import make_project
from tests.security.people import PASSWORD, person, try_password
from tests.support.issuers import SECRET, Signer, make_issuer, publishing, shared_token
from tests.support.people import signed_in

pytestmark = [pytest.mark.django_db, pytest.mark.proves("S2")]


def dump() -> Iterator[str]:
    """Every row of every table as text, as pg_dump writes it."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT oid::regclass::text FROM pg_class"
            " WHERE relkind IN ('r', 'p', 'm') AND relnamespace = current_schema()::regnamespace"
        )
        tables = [table for (table,) in cursor.fetchall()]
        assert {"tenancy_producerkey", "tenancy_issuer", "django_session", "jobs_idempotencyrecord"} <= set(tables)
        for table in tables:
            cursor.execute(f"SELECT row_to_json(r)::text FROM {table} AS r")  # noqa: S608 - from the catalogue
            yield from (f"{table} {text}" for (text,) in cursor.fetchall())


def spellings(secret: str | bytes) -> set[str]:
    """How a text or its bytes may stand in a dump."""
    raw = secret.encode() if isinstance(secret, str) else secret
    told = {raw.hex(), base64.b64encode(raw).decode().rstrip("="), base64.urlsafe_b64encode(raw).decode().rstrip("=")}
    return told | ({secret, json.dumps(secret)[1:-1]} if isinstance(secret, str) else set())


def found_in_dump(secrets: dict[str, str | bytes]) -> list[tuple[str, str]]:
    rows = list(dump())
    return [
        (name, row.partition(" ")[0])
        for name, secret in secrets.items()
        for row in rows
        if any(spelling in row for spelling in spellings(secret))
    ]


def test_a_dump_holds_nothing_that_could_be_used():
    project = make_project()
    key = ProducerKey.issue(project, name="app", scopes=["read", "submit"])[1]
    revoked = ProducerKey.issue(project, name="old")[1]
    make_issuer(issuer="https://shared.example.org")
    token = shared_token(iss="https://shared.example.org")
    Credential.objects.create(name="robot", service="svc", secret=seal({"api_key": "AIza-the-providers-own-key"}))
    totp = second_factor.new_secret()
    ann = person("ann")
    codes = second_factor.set_up(ann, totp, second_factor.code_at(totp, second_factor.current_step()), actor="user:1")[
        1
    ]
    browser = signed_in("administrator")
    hook = {"project": project.pk, "url": "https://example.org/hook", "hears_batches": "on", "most_jobs": "100"}
    route = {"name": "pager", "channel": "webhook", "target": "https://example.org/", "least_severity": "warning"}
    for page, form in (("jobs/webhook", hook), ("ratelimits/alertroute", route)):
        assert "whsec_" in browser.post(f"/admin/{page}/add/", form).content.decode()
    signer = Signer("rsa", "RS256")
    with publishing(signer) as server:
        make_issuer(jwks_url=server.url)
        # Used at every door, well and badly, so that whatever keeps something keeps it.
        for number, secret in enumerate((key, token, signer.token(), revoked, f"{key}x", f"{token}x")):
            headers = {"Authorization": f"Bearer {secret}", "Idempotency-Key": f"once-{number}"}
            Client(headers=headers).post("/api/v1/jobs/", SPEC, content_type="application/json")
    issuer = Issuer.objects.get(jwks_url="")
    browser.post(f"/admin/tenancy/issuer/{issuer.pk}/try/", {"confirmed": "yes", "token": token})
    producer = Client()
    producer.post("/me/sign-in", {"key": key})
    try_password("ann", PASSWORD)
    try_password(PASSWORD, "the name in the wrong field")
    secrets: dict[str, str | bytes] = {
        "key": key,
        "revoked key": revoked,
        "issuer's secret": SECRET,
        "token": token,
        "signature of a token": token.rpartition(".")[2],
        "provider's key": "AIza-the-providers-own-key",
        "webhook's secret": open_signing_secret(Webhook.objects.get()),
        "alert route's secret": open_signing_secret(AlertRoute.objects.get()),
        "second factor": totp,
        "second factor as it is typed": second_factor.typed(totp),
        "password": PASSWORD,
        "session": browser.cookies["sessionid"].value,
        **{f"recovery code {number}": code for number, code in enumerate(codes)},
    }
    if "sessionid" in producer.cookies:
        secrets["session of a producer"] = producer.cookies["sessionid"].value
    assert found_in_dump(secrets) == []
    assert found_in_dump({"what is no secret": "https://shared.example.org"}) != []
    assert unseal(bytes(issuer.secret or b"")) == {"hs256": SECRET}  # with the key, which no dump has


def test_an_upright_session_goes_on_and_a_stolen_row_opens_nothing():
    browser = signed_in("administrator")
    assert browser.get("/admin/").status_code == 200
    with connection.cursor() as cursor:
        cursor.execute("SELECT session_key FROM django_session")
        stolen = [row[0] for row in cursor.fetchall()]
    assert stolen
    for session_key in stolen:
        thief = Client()
        thief.cookies["sessionid"] = session_key
        assert thief.get("/admin/").status_code == 302
