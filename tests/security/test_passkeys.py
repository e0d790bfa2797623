"""Passkeys as second factor: added, shown, removed, and what is not taken."""

from __future__ import annotations

import json
import re
from html import unescape
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client, RequestFactory

from queueops.access.models import Passkey
from queueops.access.services import passkeys, second_factor
from queueops.audit.models import AuditEntry
from tests.security.people import (
    CODE,
    LOGIN,
    PASSWORD,
    SET_UP,
    code_now,
    is_signed_in,
    person,
    try_password,
    with_second_factor,
)
from tests.support.passkeys import SoftPasskey
from tests.support.people import signed_in
from tests.support.racing import run_together

pytestmark = [pytest.mark.django_db, pytest.mark.proves("S9")]

PASSKEYS = "/admin/second-factor/passkeys/"


def options_of(answer: Any) -> str:
    return unescape(answer.content.decode().partition('data-options="')[2].partition('"')[0])


def past_password(user: User) -> Client:
    client = Client()
    assert try_password(user.username, client=client).status_code == 302
    return client


def add(client: Client, passkey: SoftPasskey, *, name: str = "office key") -> Any:
    client.post(PASSKEYS, {"step": "begin", "name": name, "password": PASSWORD})
    return client.post(PASSKEYS, {"step": "add", "credential": passkey.create(options_of(client.get(PASSKEYS)))})


def with_passkey(user: User, **fields: Any) -> tuple[Client, SoftPasskey]:
    """The browser in which it was added, and the passkey."""
    client, passkey = past_password(user), SoftPasskey(**fields)
    assert add(client, passkey).status_code == 302
    return client, passkey


def show(client: Client, passkey: SoftPasskey) -> Any:
    return client.post(CODE, {"credential": passkey.get(options_of(client.get(CODE)))})


def test_a_passkey_is_a_second_factor_of_its_own():
    user = person()
    first, passkey = with_passkey(user)
    assert is_signed_in(first), "who has added the first one stays signed in"
    client = past_password(user)
    assert not is_signed_in(client)
    assert show(client, passkey).headers["Location"] == "/admin/"
    assert is_signed_in(client)
    assert Passkey.objects.get().used_at is not None
    actions = list(AuditEntry.objects.order_by("id").values_list("action", flat=True))
    assert actions == ["sign_in", "add_passkey", "show_second_factor", "sign_in"]


def test_it_stands_beside_the_app_and_recovers_from_its_loss():
    user = person()
    secret, _ = with_second_factor(user)
    client = past_password(user)
    client.post(CODE, {"code": code_now(secret)})
    passkey = SoftPasskey()
    add(client, passkey)
    again = past_password(user)
    page = again.get(CODE).content.decode()
    assert "Use a passkey" in page
    assert "or a code" in page
    show(again, passkey)
    assert is_signed_in(again)
    again.post(SET_UP, {"step": "off", "code": second_factor.code_at(secret, second_factor.current_step() + 1)})
    assert second_factor.factors_of(User.objects.get(pk=user.pk)) == [f"passkey:{Passkey.objects.get().pk}"]
    assert is_signed_in(again)
    assert not is_signed_in(client), "it had shown a code of the app"


def test_who_has_only_a_passkey_cannot_pass_it_by_setting_up_codes():
    user = person()
    with_passkey(user)
    client = past_password(user)
    for path in (SET_UP, PASSKEYS):
        assert client.get(path).headers["Location"].startswith(LOGIN)
        assert client.post(path, {"step": "begin", "name": "mine"}).headers["Location"].startswith(LOGIN)
    assert not is_signed_in(client)


def test_other_sessions_end_when_the_first_passkey_is_added():
    user = person()
    elsewhere = past_password(user)
    assert is_signed_in(elsewhere)
    with_passkey(user)
    assert not is_signed_in(elsewhere)


@pytest.mark.parametrize("origin", ["http://evil.example", "http://testserver:81", "https://testserver"])
def test_an_answer_of_another_page_is_not_taken(origin):
    user = person()
    client = past_password(user)
    assert b"This passkey is not taken" in add(client, SoftPasskey(origin=origin)).content
    assert not Passkey.objects.exists()
    _, passkey = with_passkey(user)
    passkey.origin = origin
    client = past_password(user)
    assert show(client, passkey).status_code == 200
    assert not is_signed_in(client)


def test_an_answer_is_good_once_and_for_its_own_challenge():
    user = person()
    _, passkey = with_passkey(user, counts=False)
    client = past_password(user)
    answer = passkey.get(options_of(client.get(CODE)))
    again = past_password(user)
    again.get(CODE)
    assert again.post(CODE, {"credential": answer}).status_code == 200, "it answers the other browser's"
    assert client.post(CODE, {"credential": answer}).status_code == 302
    for browser in (client, again):
        browser.post("/admin/logout/")
        assert not is_signed_in(browser)


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("counts", [True, False])
def test_one_answer_in_many_requests_at_once_lets_one_in(counts):
    user = person()
    _, passkey = with_passkey(user, counts=counts)
    client = past_password(user)
    answer = passkey.get(options_of(client.get(CODE)))
    state = client.session["passkey_asked_for"]

    def send(_: int) -> bool:
        request = RequestFactory().post(CODE)
        request.session = {"passkey_asked_for": state}  # type: ignore[assignment]  # each as it was read
        return passkeys.show(request, user, json.loads(answer)) is not None

    assert sum(run_together(8, send)) == 1


def test_a_copy_whose_count_lags_is_not_taken():
    user = person()
    _, passkey = with_passkey(user)
    show(past_password(user), passkey)
    passkey.count = 0
    client = past_password(user)
    assert b"This passkey is not taken" in show(client, passkey).content
    assert not is_signed_in(client)


def test_somebody_elses_passkey_signs_nobody_in():
    ann, bob = person(), person("bob")
    with_passkey(ann)
    _, bobs = with_passkey(bob)
    client = past_password(ann)
    show(client, bobs)
    assert not is_signed_in(client)


@pytest.mark.parametrize(
    "answer", ["", "null", "{}", "[1]", '{"id": "x"}', "no JSON", '{"rawId": "AA", "response": {}}']
)
def test_nonsense_is_answered_with_a_page(answer):
    user = person()
    client, _ = with_passkey(user)
    client.post(PASSKEYS, {"step": "begin", "name": "x", "password": PASSWORD})
    refused = [client.post(PASSKEYS, {"step": "add", "credential": answer})]
    waiting = past_password(user)
    waiting.get(CODE)
    refused.append(waiting.post(CODE, {"credential": answer}))
    for page in refused:
        assert page.status_code == 200
        assert re.search(r'<p class="qo-error" role="alert">[^<]', page.content.decode())
    assert not is_signed_in(waiting)


def test_wrong_passkeys_lock_as_wrong_codes_do_and_the_right_one_opens_all_the_same(configure):
    configure(lockout_failures=2)
    user = person()
    _, passkey = with_passkey(user)
    client = past_password(user)
    stranger = SoftPasskey(id=passkey.id)
    assert [show(client, stranger).status_code for _ in range(3)] == [200, 200, 429]
    assert not is_signed_in(client)
    assert show(client, passkey).status_code == 302
    assert is_signed_in(client)


def test_adding_and_removing_want_the_password(configure):
    user = person()
    client, _ = with_passkey(user)
    passkey = Passkey.objects.get()
    answer = client.post(PASSKEYS, {"step": "begin", "name": "another", "password": "wrong"})
    assert b"The password is wrong" in answer.content
    assert f"Remove {passkey.name}?" in client.get(f"{PASSKEYS}?remove={passkey.pk}").content.decode()
    client.post(PASSKEYS, {"step": "remove", "passkey": passkey.pk, "password": "wrong"})
    assert Passkey.objects.exists()
    configure(second_factor="required")
    answer = client.post(PASSKEYS, {"step": "remove", "passkey": passkey.pk, "password": PASSWORD})
    assert b"requires a second factor" in answer.content
    assert Passkey.objects.exists()
    configure(second_factor="optional")
    client.post(PASSKEYS, {"step": "remove", "passkey": passkey.pk, "password": PASSWORD})
    assert not Passkey.objects.exists()
    assert is_signed_in(client)
    assert AuditEntry.objects.filter(action="remove_passkey", before={"name": "office key"}).exists()


def test_nobody_removes_somebody_elses():
    ann, bob = person(), person("bob")
    with_passkey(ann)
    client = past_password(bob)
    client.post(PASSKEYS, {"step": "remove", "passkey": Passkey.objects.get().pk, "password": PASSWORD})
    assert Passkey.objects.exists()


def test_one_passkey_is_added_once_and_no_more_than_ten():
    user = person()
    client, passkey = with_passkey(user)
    assert b"is one of yours already" in add(client, passkey).content
    for number in range(9):
        add(client, SoftPasskey(), name=f"key {number}")
    assert Passkey.objects.count() == 10
    answer = client.post(PASSKEYS, {"step": "begin", "name": "one more", "password": PASSWORD})
    assert b"as many passkeys as one person may have" in answer.content


def test_where_a_second_factor_is_required_a_passkey_does_as_the_first(configure):
    configure(second_factor="required")
    user = person()
    client = past_password(user)
    assert client.get(PASSKEYS).status_code == 200
    client.post(PASSKEYS, {"step": "begin", "name": "phone"})
    client.post(PASSKEYS, {"step": "add", "credential": SoftPasskey().create(options_of(client.get(PASSKEYS)))})
    assert is_signed_in(client)


def test_an_administrator_resets_passkeys_too():
    user = person()
    with_passkey(user)
    client = signed_in("administrator")
    address = f"/admin/auth/user/{user.pk}/reset-second-factor/"
    assert "<strong>1</strong> will be reset" in client.get(address).content.decode()
    client.post(address, {"confirmed": "yes", "reason": "lost the key"})
    assert not Passkey.objects.exists()
    assert AuditEntry.objects.get(action="reset_second_factor").reason == "lost the key"
    assert is_signed_in(past_password(user))
