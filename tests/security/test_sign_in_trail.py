"""Signing in and out in the audit trail, with the client's address."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from django.conf import settings as django_settings
from django.contrib.auth.models import User
from django.test import Client

from queueops.access.services import trail as sign_ins
from queueops.access.services.guard import Purpose, guarded
from queueops.audit import trail
from queueops.audit.models import AuditEntry

pytestmark = pytest.mark.django_db

PASSWORD = "a password of some length"
ADDRESS = "203.0.113.9"


@pytest.fixture
def anna() -> User:
    sign_ins._failures._until = 0.0
    return User.objects.create_superuser("anna", password=PASSWORD)


def sign_in(client: Client, password: str = PASSWORD, *, name: str = "anna", **headers: Any) -> int:
    given = {"username": name, "password": password}
    return client.post("/admin/login/", given, REMOTE_ADDR=ADDRESS, **headers).status_code


def told() -> list[tuple[str, str, str, str]]:
    return list(AuditEntry.objects.order_by("id").values_list("actor", "action", "target", "address"))


def test_signing_in_and_out_and_failing_are_told_with_the_address(anna, client):
    sign_in(client, "wrong")
    sign_in(client)
    client.post("/admin/logout/", REMOTE_ADDR=ADDRESS)
    actor = f"user:{anna.pk}"
    assert told() == [
        ("anonymous", "fail_sign_in", "sign-in anna", ADDRESS),
        (actor, "sign_in", "sign-in anna", ADDRESS),
        (actor, "sign_out", "sign-in anna", ADDRESS),
    ]
    assert AuditEntry.objects.earliest("id").after == {"wrong": "password", "attempt": 1}


def test_the_failure_that_locks_is_told_and_no_attempt_after_it(anna, client):
    for _ in range(django_settings.QUEUEOPS.lockout_failures + 3):
        sign_in(client, "wrong")
    assert [action for _, action, _, _ in told()] == ["fail_sign_in"] * 4 + ["lock_sign_in"]


def test_a_flood_of_failures_cannot_fill_the_trail_nor_show_what_was_mistyped(anna, client, monkeypatch):
    monkeypatch.setattr(sign_ins, "MAX_FAILURES_TOLD", 3)
    sign_ins._failures._until = 0.0
    for number in range(6):
        guarded(Purpose.PASSWORD, lambda: None, account=f"my secret {number}", address=ADDRESS)
    assert len(told()) == 3
    assert not any("secret" in target for _, _, target, _ in told())
    sign_in(client)
    assert told()[-1][1] == "sign_in", "who gets in is told whatever failed before"


def test_the_address_is_whom_the_proxy_serves(anna, client, settings):
    settings.QUEUEOPS = replace(django_settings.QUEUEOPS, tls_proxy=True)
    sign_in(client, HTTP_X_FORWARDED_FOR="198.51.100.1, 192.0.2.7")
    assert told()[-1][3] == "192.0.2.7"


def test_a_changed_password_is_told_with_who_changed_it(anna, client):
    other = User.objects.create_user("ben", password=PASSWORD)
    sign_in(client)
    form = {
        "old_password": PASSWORD,
        "new_password1": "another one of length",
        "new_password2": "another one of length",
    }
    assert client.post("/admin/password_change/", form, REMOTE_ADDR=ADDRESS).status_code == 302
    assert told()[-1] == (f"user:{anna.pk}", "change_password", "user anna", ADDRESS)
    other.set_password("given by a script")
    other.save()
    assert told()[-1] == ("system", "change_password", "user ben", "")


def test_a_first_password_is_no_change_and_one_that_is_given_on_its_page_is_told_once(anna, client):
    eve = User(username="eve")
    eve.set_password(PASSWORD)
    eve.save()
    assert told() == []
    sign_in(client)
    form = {"password1": "another one of length", "password2": "another one of length"}
    assert client.post(f"/admin/auth/user/{eve.pk}/password/", form, REMOTE_ADDR=ADDRESS).status_code == 302
    assert [(action, target) for _, action, target, _ in told()] == [
        ("sign_in", "sign-in anna"),
        ("set_password_of_user", f"user {eve.pk}"),
    ]


def test_a_wrong_code_and_a_right_one_are_told(anna):
    guarded(Purpose.CODE, lambda: None, account="anna")
    sign_ins.tell_second_factor(anna)
    assert [(action, target) for _, action, target, _ in told()] == [
        ("fail_sign_in", "sign-in anna"),
        ("show_second_factor", "sign-in anna"),
    ]


def test_what_an_operator_does_has_their_address_and_what_house_keeping_does_has_none(anna, client):
    sign_in(client)
    client.post("/admin/password_change/", {}, REMOTE_ADDR=ADDRESS)
    trail.record(actor="system", action="x", target="y")
    assert AuditEntry.objects.latest("id").address == ""
