"""Signing in with a second factor: set up, shown, recovered, required, reset."""

from __future__ import annotations

import base64
import re
import time

import pytest
from cryptography.fernet import Fernet
from django.contrib.auth.models import User
from django.core.management import call_command
from django.test import Client

from queueops.access import pending
from queueops.access.backend import GuardedBackend
from queueops.access.models import Authenticator, RecoveryCode
from queueops.access.services import second_factor
from queueops.audit.models import AuditEntry
from queueops.tenancy.secrets import credentials
from tests.factories import make_project
from tests.security.people import (
    CODE,
    LOGIN,
    SET_UP,
    code_now,
    is_signed_in,
    person,
    try_password,
    with_second_factor,
    wrong_code,
)
from tests.support.people import signed_in
from tests.support.racing import run_together

pytestmark = [pytest.mark.django_db, pytest.mark.proves("S9")]

RFC_SECRET = b"12345678901234567890"


@pytest.mark.parametrize(
    ("seconds", "code"),
    [(59, "287082"), (1111111109, "081804"), (1111111111, "050471"), (1234567890, "005924"), (2000000000, "279037")],
)
def test_codes_are_those_of_rfc_6238(seconds, code):
    assert second_factor.code_at(RFC_SECRET, seconds // 30) == code


def past_password(user: User) -> Client:
    client = Client()
    assert try_password(user.username, client=client).status_code == 302
    return client


def test_without_a_second_factor_the_password_is_one_step():
    client = past_password(person())
    assert is_signed_in(client)


def test_the_password_alone_signs_nobody_in_who_has_a_second_factor():
    user = person(role="viewer")
    secret, _ = with_second_factor(user)
    client = Client()
    answer = try_password("ann", client=client)
    assert answer.headers["Location"] == CODE
    assert not is_signed_in(client)
    make_project("acme")
    assert client.get("/api/v1/jobs/?project=acme").status_code == 401
    assert "_auth_user_id" not in client.session
    answer = client.post(CODE, {"code": code_now(secret)})
    assert answer.headers["Location"] == "/admin/"
    assert is_signed_in(client)


def test_after_the_code_one_goes_where_one_wanted_to_but_to_no_other_host():
    user = person(role="viewer")
    secret, _ = with_second_factor(user)
    for wanted, found in (("/admin/jobs/job/", "/admin/jobs/job/"), ("https://evil.example/", "/admin/")):
        Authenticator.objects.update(last_step=0)
        client = Client()
        client.post(f"{LOGIN}?next={wanted}", {"username": "ann", "password": "a long enough password"})
        assert client.post(CODE, {"code": code_now(secret)}).headers["Location"] == found


def test_a_wrong_code_and_one_of_another_time_sign_nobody_in():
    user = person()
    secret, _ = with_second_factor(user)
    client = past_password(user)
    step = second_factor.current_step()
    for code in (wrong_code(secret), second_factor.code_at(secret, step - 5), "", "12345", "AAAA-BBBB-CCCC-DDDD"):
        assert client.post(CODE, {"code": code}).status_code == 200
        assert not is_signed_in(client)


def test_a_code_is_good_once():
    user = person()
    secret, _ = with_second_factor(user)
    code = code_now(secret)
    assert past_password(user).post(CODE, {"code": code}).status_code == 302
    again = past_password(user)
    assert again.post(CODE, {"code": code}).status_code == 200
    assert not is_signed_in(again)


def shown_together(authenticator: Authenticator, code: str) -> list[bool]:
    return run_together(8, lambda _: bool(second_factor.show(authenticator, code)))


@pytest.mark.django_db(transaction=True)
def test_one_code_in_many_requests_at_once_lets_one_in():
    user = person()
    secret, recovery_codes = with_second_factor(user)
    authenticator = Authenticator.objects.get()
    for code in (code_now(secret), recovery_codes[0]):
        assert sum(shown_together(authenticator, str(code))) == 1


def test_a_recovery_code_signs_in_once_however_it_is_typed():
    user = person()
    _, codes = with_second_factor(user)
    assert len(set(codes)) == 10
    client = past_password(user)
    typed = codes[0].lower().replace("-", " ")
    answer = client.post(CODE, {"code": typed}, follow=True)
    assert "Recovery codes left: 9" in answer.content.decode()
    assert is_signed_in(client)
    assert past_password(user).post(CODE, {"code": codes[0]}).status_code == 200
    assert past_password(user).post(CODE, {"code": codes[1]}).status_code == 302


def test_neither_the_secret_nor_a_recovery_code_can_be_read_from_the_database():
    user = person()
    secret, codes = with_second_factor(user)
    dump = str(list(Authenticator.objects.values())) + str(list(RecoveryCode.objects.values()))
    dump += str(list(AuditEntry.objects.values()))
    for plain in (second_factor.typed(secret), secret.hex(), str(secret), *codes, *(c.replace("-", "") for c in codes)):
        assert plain not in dump


def test_guessing_codes_locks_even_from_many_addresses(configure):
    configure(lockout_failures=3)
    user = person()
    secret, _ = with_second_factor(user)
    for number in range(3):
        client = past_password(user)
        assert client.post(CODE, {"code": wrong_code(secret)}, REMOTE_ADDR=f"10.2.0.{number}").status_code == 200
    client = past_password(user)
    answer = client.post(CODE, {"code": code_now(secret)}, REMOTE_ADDR="10.2.0.99")
    assert answer.status_code == 429
    assert int(answer.headers["Retry-After"]) > 0
    assert not is_signed_in(client)


def test_the_second_step_ends_with_its_time_and_with_the_password(monkeypatch):
    user = person()
    secret, _ = with_second_factor(user)
    late = past_password(user)
    now = time.time()
    monkeypatch.setattr("queueops.access.pending.time.time", lambda: now + pending.LASTS_SECONDS + 1)
    assert late.post(CODE, {"code": code_now(secret)}).headers["Location"] == LOGIN
    monkeypatch.undo()
    changed = past_password(user)
    user.set_password("another long password")
    user.save()
    assert changed.post(CODE, {"code": code_now(secret)}).headers["Location"] == LOGIN
    user.set_password("a long enough password")
    user.save()
    deactivated = past_password(user)
    User.objects.update(is_active=False)
    assert deactivated.post(CODE, {"code": code_now(secret)}).headers["Location"] == LOGIN


def set_up_through_the_page(client: Client, **password: str) -> list[str]:
    assert client.post(SET_UP, {"step": "begin", **password}).status_code == 302
    page = client.get(SET_UP).content.decode()
    assert page.count("<svg") == 1
    [typed] = re.findall(r'<code class="qo-id">([A-Z2-7 ]+)</code>', page)
    secret = base64.b32decode(typed.replace(" ", ""))
    refused = client.post(SET_UP, {"step": "confirm", "code": wrong_code(secret)})
    assert refused.status_code == 200
    assert not Authenticator.objects.exists()
    shown = client.post(SET_UP, {"step": "confirm", "code": code_now(secret)})
    assert "no-store" in shown.headers["Cache-Control"]
    codes = re.findall(r"<li class=\"qo-id\">([A-Z2-7-]{19})</li>", shown.content.decode())
    assert len(codes) == 10
    return codes


def test_somebody_sets_one_up_sees_the_recovery_codes_once_and_stays_signed_in():
    user = person(role="viewer")
    client = past_password(user)
    other = past_password(user)
    assert client.post(SET_UP, {"step": "begin", "password": "wrong"}).status_code == 200
    codes = set_up_through_the_page(client, password="a long enough password")
    assert is_signed_in(client)
    assert not is_signed_in(other)  # it has shown a password only
    page = client.get(SET_UP).content.decode()
    assert "<svg" not in page
    assert not [code for code in codes if code in page]
    assert past_password(user).post(CODE, {"code": codes[3]}).status_code == 302
    assert AuditEntry.objects.get(action="set_up_second_factor").target == f"user {user.pk}"


def test_looking_at_the_page_changes_nothing():
    client = past_password(person())
    before = dict(client.session)
    for _ in range(2):
        assert client.get(SET_UP).status_code == 200
    assert {key: value for key, value in client.session.items() if key != "seen_at"} == {
        key: value for key, value in before.items() if key != "seen_at"
    }
    assert not Authenticator.objects.exists()


def test_new_recovery_codes_and_turning_it_off_want_a_code():
    user = person()
    secret, old = with_second_factor(user)
    client = past_password(user)
    client.post(CODE, {"code": old[0]})
    for step in ("codes", "off"):
        assert "wrong" in client.post(SET_UP, {"step": step, "code": wrong_code(secret)}).content.decode()
    assert RecoveryCode.objects.filter(used_at=None).count() == 9
    shown = client.post(SET_UP, {"step": "codes", "code": code_now(secret)}).content.decode()
    new = re.findall(r"<li class=\"qo-id\">([A-Z2-7-]{19})</li>", shown)
    assert past_password(user).post(CODE, {"code": old[1]}).status_code == 200
    assert client.post(SET_UP, {"step": "off", "code": new[0]}).status_code == 302
    assert not Authenticator.objects.exists()
    assert is_signed_in(client)
    assert is_signed_in(past_password(user))


def test_where_it_is_required_nobody_gets_in_before_one_is_set_up(configure):
    user = person(role="viewer")
    before = past_password(user)
    configure(second_factor="required")
    assert not is_signed_in(before)  # a session from before the rule
    client = Client()
    assert try_password("ann", client=client).headers["Location"] == SET_UP
    assert not is_signed_in(client)
    assert "requires it of everybody" in client.get(SET_UP).content.decode()
    set_up_through_the_page(client)
    assert is_signed_in(client)
    secret = second_factor.unseal(bytes(Authenticator.objects.get().secret))
    Authenticator.objects.update(last_step=0)
    answer = client.post(SET_UP, {"step": "off", "code": code_now(secret)})
    assert answer.status_code == 200
    assert Authenticator.objects.exists()


@pytest.mark.django_db(transaction=True)
def test_of_many_set_ups_at_once_one_is_stored_and_the_others_are_told():
    user = person()
    secret = second_factor.new_secret()
    code = code_now(secret)

    def set_up(_: int) -> bool:
        try:
            second_factor.set_up(user, secret, code, actor="user:1")
        except second_factor.AlreadySetUp:
            return False
        return True

    assert sum(run_together(4, set_up)) == 1


def test_the_code_that_set_it_up_is_not_good_for_signing_in():
    secret = second_factor.new_secret()
    code = code_now(secret)
    authenticator, _ = second_factor.set_up(person(), secret, code, actor="user:1")
    assert second_factor.show(authenticator, code) is None


def test_guessing_while_setting_up_locks_too(configure):
    configure(lockout_failures=2, second_factor="required")
    client = past_password(person(role="viewer"))
    client.post(SET_UP, {"step": "begin"})
    secret = second_factor.unseal(client.session["second_factor_being_set_up"].encode())
    guesses = [client.post(SET_UP, {"step": "confirm", "code": wrong_code(secret)}).status_code for _ in range(3)]
    assert guesses == [200, 200, 429]
    assert client.post(SET_UP, {"step": "confirm", "code": code_now(secret)}).status_code == 429
    assert not Authenticator.objects.exists()


def test_the_password_of_somebody_else_ends_the_session_before_it():
    with_second_factor(person("bob"))
    client = past_password(person())
    assert is_signed_in(client)
    before = client.session.session_key
    assert try_password("bob", client=client).headers["Location"] == CODE
    assert not is_signed_in(client)
    assert client.session.session_key != before


def test_a_half_signed_in_person_cannot_replace_a_second_factor():
    user = person()
    with_second_factor(user)
    client = past_password(user)
    assert client.get(SET_UP).status_code == 302
    assert client.post(SET_UP, {"step": "begin"}).status_code == 302
    assert Authenticator.objects.count() == 1


def test_nobody_sets_one_up_for_a_stranger():
    assert Client().get(SET_UP).headers["Location"].startswith(LOGIN)
    assert Client().post(SET_UP, {"step": "begin"}).headers["Location"].startswith(LOGIN)
    assert Client().post(CODE, {"code": "123456"}).headers["Location"] == LOGIN
    not_staff = Client()
    not_staff.force_login(person("bob", is_staff=False))
    assert not_staff.get(SET_UP).status_code == 302


def test_an_administrator_resets_a_second_factor_with_a_reason_and_an_audit_row():
    user = person()
    with_second_factor(user)
    address = f"/admin/auth/user/{user.pk}/reset-second-factor/"
    form = {"confirmed": "yes", "reason": "lost her phone"}
    for role in (None, "viewer", "operator", "limits manager"):
        assert signed_in(role).post(address, form).status_code == 403
    assert Authenticator.objects.exists()
    client = signed_in("administrator")
    assert "<strong>1</strong> will be reset" in client.get(address).content.decode()
    assert client.post(address, {"confirmed": "yes", "reason": " "}).status_code == 200
    assert Authenticator.objects.exists()
    assert client.post(address, form).status_code == 302
    entry = AuditEntry.objects.get(action="reset_second_factor")
    assert (entry.target, entry.reason) == (f"user {user.pk}", "lost her phone")
    assert is_signed_in(past_password(user))


def test_an_administrator_cannot_reset_a_superusers():
    user = person(is_superuser=True)
    with_second_factor(user)
    address = f"/admin/auth/user/{user.pk}/reset-second-factor/"
    form = {"confirmed": "yes", "reason": "give me"}
    assert "Only a superuser" in signed_in("administrator").post(address, form).content.decode()
    assert Authenticator.objects.exists()
    assert signed_in("superuser").post(address, form).status_code == 302
    assert not Authenticator.objects.exists()


def test_a_command_resets_the_only_administrators(capsys):
    user = person(is_superuser=True)
    with_second_factor(user)
    call_command("reset_second_factor", "ann", reason="fell into the lake")
    assert "1 second factor taken away" in capsys.readouterr().out
    assert is_signed_in(past_password(user))
    entry = AuditEntry.objects.get(action="reset_second_factor")
    assert (entry.actor, entry.reason) == ("system:reset_second_factor", "fell into the lake")


def test_a_replaced_key_opens_what_was_rotated_and_lost_keys_leave_the_recovery_codes(configure):
    old, new = Fernet.generate_key().decode(), Fernet.generate_key().decode()
    configure(credential_keys=(old,))
    user = person()
    secret, codes = with_second_factor(user)
    configure(credential_keys=(new, old))
    call_command("rotate_credentials")
    configure(credential_keys=(new,))
    assert past_password(user).post(CODE, {"code": code_now(secret)}).status_code == 302
    configure(credential_keys=(old,))
    assert credentials.unreadable_credentials() == ("second factor of ann",)
    answer = past_password(user).post(CODE, {"code": "123456"})
    assert "No key in QUEUEOPS_CREDENTIAL_KEYS opens" in answer.content.decode()
    assert past_password(user).post(CODE, {"code": codes[0]}).status_code == 302


def test_without_keys_in_production_setting_one_up_says_what_is_missing(configure):
    configure(debug=False, credential_keys=())
    client = past_password(person())
    answer = client.post(SET_UP, {"step": "begin", "password": "a long enough password"})
    assert "QUEUEOPS_CREDENTIAL_KEYS must be set" in answer.content.decode()


def test_signing_in_reads_the_second_factor_with_the_person(django_assert_num_queries):
    with_second_factor(person())
    pk = User.objects.get().pk
    with django_assert_num_queries(1):
        assert second_factor.authenticator_of(GuardedBackend().get_user(pk)) is not None
