"""The screens of issuers: secrets go in and never come out, tokens are tried and forgotten, all is audited."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from django.apps import apps
from django.test import Client

from queueops.audit.models import AuditEntry
from queueops.tenancy.callers.tokens import verify_token
from queueops.tenancy.models import Issuer, ProducerKey, Project, ProjectMove
from queueops.tenancy.secrets import credentials
from tests.factories import make_project
from tests.support.issuers import ISSUER, SECRET, USER, Signer, make_issuer, publishing, shared_token
from tests.support.people import signed_in

pytestmark = pytest.mark.django_db

LIST = "/admin/tenancy/issuer/"
FORM: dict[str, Any] = {
    "project": "acme",
    "name": "app",
    "enabled": "on",
    "issuer": ISSUER,
    "audiences": "authenticated",
    "leeway_seconds": "30",
    "scopes": ["read", "usage"],
    "jwks_url": "",
    "new_secret": "",
    "_save": "Save",
}
URL = "https://auth.example.org/.well-known/jwks.json"
GUARD = {"guard_percent": "20", "guard_first": "50", "guard_over": "200"}


@pytest.fixture
def admin(db: None) -> Client:
    make_project()
    return signed_in("administrator")


def add(admin: Client, **fields: Any) -> Any:
    return admin.post(f"{LIST}add/", {**FORM, **fields})


def change(admin: Client, issuer: Issuer, **fields: Any) -> Any:
    return admin.post(f"{LIST}{issuer.pk}/change/", {**FORM, **fields})


def faults(response: Any) -> str:
    assert response.status_code == 200, response.content
    return str(response.context["adminform"].form.errors.as_json())


def everything_stored() -> str:
    """Every column of every table, as a dump would show it."""
    return " ".join(str(list(model._base_manager.values())) for model in apps.get_models() if model._meta.managed)


def test_an_issuer_with_a_shared_secret_is_made_and_its_tokens_count(admin):
    assert add(admin, new_secret=SECRET).status_code == 302
    assert verify_token(shared_token()).user_id == USER
    issuer = Issuer.objects.get()
    assert (issuer.scopes, issuer.audiences, issuer.leeway_seconds) == (["read", "usage"], ["authenticated"], 30)
    [entry] = AuditEntry.objects.filter(action="add_issuer")
    assert (entry.after or {})["secret_replaced"] is True
    assert SECRET not in everything_stored()


def test_the_secret_is_on_no_page_not_even_beside_an_error(admin):
    assert SECRET not in add(admin, new_secret=SECRET, audiences="").content.decode()
    add(admin, new_secret=SECRET)
    for path in (LIST, f"{LIST}{Issuer.objects.get().pk}/change/"):
        page = admin.get(path).content.decode()
        assert SECRET not in page
        assert "gAAAAA" not in page


UNSAFE: list[tuple[dict[str, Any], str]] = [
    ({}, "either the address"),
    ({"jwks_url": URL, "new_secret": SECRET}, "either the address"),
    ({"new_secret": "x" * 31}, "At least 32 bytes"),
    ({"new_secret": SECRET, "audiences": ""}, "required"),
    ({"new_secret": SECRET, "scopes": ["operate"]}, "valid choice"),
    ({"new_secret": SECRET, "issuer": "https://a b"}, "without spaces"),
    ({"new_secret": SECRET, "issuer": "https://ä"}, "ASCII"),
    ({"new_secret": SECRET, "leeway_seconds": "301"}, "300"),
    ({"jwks_url": "http://169.254.169.254/jwks"}, "not a public address"),
    ({"jwks_url": "http://127.1/jwks"}, "valid URL"),
]


def test_what_would_not_be_safe_is_refused(admin):
    for fields, said in UNSAFE:
        assert said in faults(add(admin, **fields)), fields
    assert not Issuer.objects.exists()


def test_keys_come_over_https_alone_where_no_loopback_is_called(admin, settings: Any):
    settings.QUEUEOPS = replace(settings.QUEUEOPS, allow_loopback_targets=False)
    assert "https://" in faults(add(admin, jwks_url=URL.replace("https", "http")))
    assert add(admin, jwks_url=URL).status_code == 302


def test_an_empty_secret_keeps_the_one_stored(admin):
    add(admin, new_secret=SECRET)
    issuer = Issuer.objects.get()
    assert change(admin, issuer, name="new name").status_code == 302
    assert verify_token(shared_token()).issuer.id == issuer.pk
    assert (AuditEntry.objects.get(action="change_issuer").after or {})["secret_replaced"] is False


def test_the_kind_of_keys_can_change_and_nothing_of_the_other_stays(admin):
    with publishing(Signer()) as server:
        issuer = make_issuer()
        assert change(admin, issuer, jwks_url=server.url).status_code == 302
        issuer.refresh_from_db()
        assert issuer.secret is None
        admin.post(f"{LIST}{issuer.pk}/fetch/", {"confirmed": "yes"})
        assert len(Issuer.objects.get().jwks) == 1
        assert change(admin, issuer, jwks_url=URL).status_code == 302
        assert Issuer.objects.get().jwks == []  # those of the address before
        assert change(admin, issuer, new_secret=SECRET).status_code == 302
        assert verify_token(shared_token()).user_id == USER


def test_saving_the_form_does_not_bring_back_keys_or_a_secret_that_changed_meanwhile(admin, monkeypatch):
    issuer = make_issuer()
    newer = credentials.seal({"hs256": "another-secret-of-the-same-length-0123456"})
    original = Issuer.save

    def save(self: Issuer, *args: Any, **kwargs: Any) -> None:
        Issuer.objects.filter(pk=self.pk).update(secret=newer)
        original(self, *args, **kwargs)

    monkeypatch.setattr(Issuer, "save", save)
    change(admin, issuer, name="new name")
    assert bytes(Issuer.objects.get().secret or b"") == newer
    assert Issuer.objects.get().name == "new name"


def test_keys_are_fetched_when_told_and_a_failure_is_shown(admin):
    with publishing(Signer(), Signer("rsa", "RS256")) as server:
        issuer = make_issuer(jwks_url=server.url)
        address = f"{LIST}{issuer.pk}/fetch/"
        assert server.fetches == 0
        admin.get(address)
        assert server.fetches == 0
        for _ in range(2):  # whatever the cool-down
            page = admin.post(address, {"confirmed": "yes"}, follow=True).content.decode()
            assert "2 keys fetched" in page
        assert server.fetches == 2
        server.status = 503
        assert "answered with status 503" in admin.post(address, {"confirmed": "yes"}).content.decode()
        page = admin.get(f"{LIST}{issuer.pk}/change/").content.decode()
        assert "the last try failed" in page
        assert "first" in page
    assert AuditEntry.objects.filter(action="fetch_keys").count() == 2


TRIED = [
    (shared_token(), f"user {USER}"),
    (shared_token(aud="web"), "another audience"),
    (shared_token(exp=1), "has expired"),
    (shared_token(iss="https://other.example.org"), "another issuer"),
    (shared_token(secret="another-secret-of-the-same-length-0123456"), "signature does not fit"),
    ("<script>alert(1)</script>.b.c", "no token"),
    (shared_token("<script>alert(1)</script>", aud="web"), "&lt;script&gt;"),
]


def test_a_token_is_tried_and_forgotten(admin):
    issuer = make_issuer()
    for token, said in TRIED:
        response = admin.post(f"{LIST}{issuer.pk}/try/", {"confirmed": "yes", "token": token}, follow=True)
        page = response.content.decode()
        assert said in page
        assert token not in page
        assert "<script>alert" not in page
        assert not [name for name, morsel in admin.cookies.items() if token in morsel.value]
    stored = everything_stored()
    assert [token for token, _ in TRIED if token in stored] == []


def test_what_a_bad_token_says_of_itself_is_shown(admin):
    issuer = make_issuer()
    response = admin.post(f"{LIST}{issuer.pk}/try/", {"confirmed": "yes", "token": shared_token(aud="web", exp=7)})
    text = json.dumps(response.context["form"].errors.get_json_data())
    for part in ("HS256", "web", ISSUER, str(USER)):
        assert part in text


def test_a_token_of_an_issuer_that_is_off_can_be_tried_and_that_is_said(admin):
    issuer = make_issuer(enabled=False)
    response = admin.post(f"{LIST}{issuer.pk}/try/", {"confirmed": "yes", "token": shared_token()}, follow=True)
    assert "turned off" in response.content.decode()


def test_only_administrators_see_issuers():
    issuer = make_issuer()
    of_row = [f"{issuer.pk}/{page}/" for page in ("change", "try", "fetch", "delete")]
    for role in ("viewer", "operator", "limits manager"):
        client = signed_in(role)
        for path in ("", "add/", *of_row):
            assert client.get(LIST + path).status_code == 403, (role, path)
            sent = client.post(LIST + path, {**FORM, "confirmed": "yes", "token": "x"})
            assert sent.status_code == 403, (role, path)
    assert Issuer.objects.count() == 1


def test_deleting_an_issuer_is_audited(admin):
    issuer = make_issuer()
    admin.post(f"{LIST}{issuer.pk}/delete/", {"post": "yes"})
    assert (AuditEntry.objects.get(action="delete_issuer").before or {})["issuer"] == ISSUER


def test_a_project_is_opened_to_everybody_and_that_is_audited(admin):
    form = {"name": "acme", "weight": "1", "max_waiting_jobs": "10", "anonymous_read": "on", "_save": "Save", **GUARD}
    assert admin.post("/admin/tenancy/project/acme/change/", form).status_code == 302
    assert Project.objects.get().anonymous_read
    entry = AuditEntry.objects.get()
    assert [(told or {})["anonymous_read"] for told in (entry.before, entry.after)] == [False, True]
    assert entry.project_id == "acme", "otherwise the trail of the project lacks it"
    assert "everybody" in admin.get("/admin/tenancy/project/").content.decode()


def test_a_project_that_has_moved_is_not_changed_here_and_its_form_says_why(admin):
    Project.objects.update(move=ProjectMove.MOVED, moved_to="https://b.example.org")
    page = "/admin/tenancy/project/acme/change/"
    form = {"name": "acme", "weight": "1", "max_waiting_jobs": "10", "anonymous_read": "on", "_save": "Save", **GUARD}
    answer = admin.post(page, form, follow=True)
    assert answer.redirect_chain == [(page, 302)]
    assert "acme has moved to https://b.example.org." in answer.content.decode()
    assert not Project.objects.get().anonymous_read
    assert not AuditEntry.objects.exists()


def test_the_rate_of_a_key_is_set_when_it_is_issued_and_changed_later(admin):
    form = {"project": "acme", "name": "slow", "scopes": ["read"], "requests_per_minute": "60"}
    admin.post("/admin/tenancy/producerkey/add/", form)
    key = ProducerKey.objects.get()
    assert key.requests_per_minute == 60
    address = f"/admin/tenancy/producerkey/{key.pk}/change_rate/"
    admin.post(address, {"confirmed": "yes", "requests_per_minute": "120", "reason": "asked for it"})
    key.refresh_from_db()
    assert key.requests_per_minute == 120
    entry = AuditEntry.objects.get(action="change_key_rate")
    assert (entry.before, entry.after, entry.reason) == (
        {"requests_per_minute": 60},
        {"requests_per_minute": 120},
        "asked for it",
    )
    admin.post(address, {"confirmed": "yes", "requests_per_minute": ""})
    key.refresh_from_db()
    assert key.requests_per_minute is None
    admin.post(address, {"confirmed": "yes", "requests_per_minute": "0"})
    assert ProducerKey.objects.get().requests_per_minute is None
