"""Guessing passwords and codes is counted, locked and unlocked."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth import authenticate
from django.core.management import CommandError, call_command
from django.db.models.functions import Now
from django.test import Client, RequestFactory

from queueops.access.models import SignInCount
from queueops.access.services import guard
from queueops.access.services.guard import Purpose, SignInLocked, guarded
from queueops.audit.models import AuditEntry
from queueops.core.web.client_address import client_address
from queueops.tenancy.models import ProducerKey
from tests.factories import make_project
from tests.security.people import PASSWORD, is_signed_in, person, try_password
from tests.support.people import signed_in
from tests.support.racing import run_together

pytestmark = [pytest.mark.django_db, pytest.mark.proves("S9")]


def fail(name: str, times: int, address: str = "10.0.0.1") -> list[int]:
    return [try_password(name, "wrong", address=address).status_code for _ in range(times)]


def test_after_so_many_failures_even_the_right_password_is_refused_with_a_time_to_come_back(configure):
    configure(lockout_failures=3, lockout_minutes=15)
    person("ann")
    assert fail("ann", 3) == [200, 200, 200]
    client = Client()
    answer = try_password("ann", client=client)
    assert answer.status_code == 429
    assert 890 <= int(answer.headers["Retry-After"]) <= 900
    assert "Too many failed attempts. Try again in 15 minutes" in answer.content.decode()
    assert not is_signed_in(client)


def test_another_address_is_not_locked_until_the_account_is(configure):
    configure(lockout_failures=2, lockout_account_failures=5)
    person("ann")
    fail("ann", 3, "10.0.0.1")
    assert try_password("ann", address="10.0.0.2").status_code == 302
    assert fail("ann", 2, "10.0.0.3") == [200, 200]
    assert fail("ann", 2, "10.0.0.4") == [200, 200]
    assert fail("ann", 1, "10.0.0.5") == [200]
    assert try_password("ann", address="10.0.0.6").status_code == 429
    assert try_password("ann", "wrong", address="10.0.0.7").status_code == 429


def test_success_forgets_the_failures_before_it(configure):
    configure(lockout_failures=3)
    person("ann")
    for _ in range(3):
        fail("ann", 2)
        assert try_password("ann").status_code == 302
    assert not SignInCount.objects.exists()


def test_a_name_that_nobody_has_is_locked_alike_and_not_kept(configure):
    configure(lockout_failures=2)
    person("ann")
    known = [try_password("ann", "wrong") for _ in range(3)]
    unknown = [try_password("hunter2", "wrong", address="10.0.0.9") for _ in range(3)]
    assert [answer.status_code for answer in known] == [answer.status_code for answer in unknown] == [200, 200, 429]
    assert "hunter2" not in str(list(SignInCount.objects.values()))


def test_a_lock_opens_by_itself_and_being_tried_does_not_prolong_it(configure):
    configure(lockout_failures=2)
    person("ann")
    fail("ann", 2)
    until = SignInCount.objects.get(address="10.0.0.1").forget_at
    assert fail("ann", 5) == [429] * 5
    assert SignInCount.objects.get(address="10.0.0.1").forget_at == until
    SignInCount.objects.update(forget_at=Now() - timedelta(seconds=1))
    assert fail("ann", 2) == [200, 200]
    assert fail("ann", 1) == [429]


def test_counts_that_are_over_are_cleared_away_by_whoever_comes_next():
    over = [SignInCount(purpose="key", address=f"10.1.0.{n}", failures=1, forget_at=Now()) for n in range(50)]
    SignInCount.objects.bulk_create(over)
    person("ann")
    fail("ann", 1)
    assert {count.account for count in SignInCount.objects.all()} == {"ann"}


def test_every_way_to_check_a_password_is_guarded(configure):
    configure(lockout_failures=2)
    person("ann")
    for _ in range(2):
        assert authenticate(None, username="ann", password="wrong") is None
    assert authenticate(None, username="ann", password=PASSWORD) is None
    assert authenticate(RequestFactory().get("/"), username="ann", password=PASSWORD) is not None


def test_an_open_session_cannot_guess_the_password_on_the_page_that_changes_it(configure):
    configure(lockout_failures=2)
    client = Client()
    client.force_login(person("ann"))
    new = "another one of length"

    def change(old: str, address: str = "10.0.0.1") -> Any:
        form = {"old_password": old, "new_password1": new, "new_password2": new}
        return client.post("/admin/password_change/", form, REMOTE_ADDR=address)

    assert client.get("/admin/password_change/").status_code == 200
    wrong = [change("wrong") for _ in range(2)]
    assert [answer.status_code for answer in wrong] == [200, 200]
    assert all("Your old password was entered incorrectly" in answer.content.decode() for answer in wrong)
    assert list(AuditEntry.objects.order_by("id").values_list("action", "target")) == [
        ("fail_sign_in", "sign-in ann"),
        ("lock_sign_in", "sign-in ann"),
    ]
    locked = change(PASSWORD)
    assert (locked.status_code, "Too many failed attempts" in locked.content.decode()) == (429, True)
    assert int(locked.headers["Retry-After"]) > 0
    assert try_password("ann").status_code == 429, "both pages count together"
    assert change(PASSWORD, "10.0.0.2").status_code == 302
    assert try_password("ann", new, address="10.0.0.2").status_code == 302


def test_producer_keys_are_guarded_by_address(configure):
    configure(lockout_failures=2)
    for _ in range(2):
        assert guarded(Purpose.KEY, lambda: None, address="10.0.0.1") is None
    with pytest.raises(SignInLocked) as refused:
        guarded(Purpose.KEY, lambda: "a key", address="10.0.0.1")
    assert (refused.value.status, refused.value.code) == (429, "sign_in_locked")
    assert refused.value.retry_after > 0
    assert guarded(Purpose.KEY, lambda: "a key", address="10.0.0.2") == "a key"


@pytest.mark.django_db(transaction=True)
def test_of_many_guesses_at_once_no_more_than_the_limit_are_checked(configure):
    configure(lockout_failures=5)
    person("ann")
    checked: list[int] = []

    def guess(number: int) -> bool:
        try:
            guarded(Purpose.PASSWORD, lambda: checked.append(number), account="ann", address="10.0.0.1")
        except SignInLocked:
            return True
        return False

    refused = sum(run_together(16, guess))
    assert (len(checked), refused) == (5, 11)


def test_a_guess_is_counted_before_it_is_checked_and_stays_counted_when_the_check_breaks():
    def broken() -> None:
        raise RuntimeError("the process dies here")

    with pytest.raises(RuntimeError):
        guarded(Purpose.PASSWORD, broken, account="ann", address="10.0.0.1")
    assert list(SignInCount.objects.values_list("failures", flat=True)) == [1, 1]


def test_an_administrator_unlocks_with_a_reason_and_an_audit_row(configure):
    configure(lockout_failures=2)
    person("ann")
    fail("ann", 3)
    count = SignInCount.objects.get(address="10.0.0.1")
    address = f"/admin/access/signincount/{count.pk}/unlock/"
    form = {"confirmed": "yes", "reason": "she called"}
    for role in (None, "viewer", "operator", "limits manager"):
        assert signed_in(role).post(address, form).status_code == 403
    assert try_password("ann").status_code == 429
    client = signed_in("administrator")
    assert "locked" in client.get("/admin/access/signincount/").content.decode()
    assert client.post(address, {"confirmed": "yes", "reason": ""}).status_code == 200
    assert client.post(address, form).status_code == 302
    entry = AuditEntry.objects.get(action="unlock_sign_in")
    assert (entry.target, entry.reason, entry.moved) == ("sign-in ann", "she called", 2)
    assert try_password("ann").status_code == 302


def test_a_command_shows_and_unlocks_who_is_locked(configure, capsys):
    configure(lockout_failures=2)
    person("ann")
    fail("ann", 3)
    call_command("unlock_sign_in")
    assert capsys.readouterr().out == "ann\n"
    call_command("unlock_sign_in", "ann")
    assert capsys.readouterr().out == "Unlocked: ann.\n"
    assert AuditEntry.objects.get(action="unlock_sign_in").actor == "system:unlock_sign_in"
    assert try_password("ann").status_code == 302
    with pytest.raises(CommandError, match="no failed sign-ins of ann"):
        call_command("unlock_sign_in", "ann")


def test_the_command_unlocks_addresses_and_everybody(configure, capsys):
    configure(lockout_failures=1)
    guarded(Purpose.KEY, lambda: None, address="10.0.0.1")
    guarded(Purpose.KEY, lambda: None, address="10.0.0.2")
    call_command("unlock_sign_in", "10.0.0.1")
    assert guard.locked_names() == ["10.0.0.2"]
    call_command("unlock_sign_in", "--all")
    assert guard.locked_names() == []


def test_behind_our_proxy_the_address_is_the_one_that_the_proxy_saw(configure):
    request = RequestFactory().get("/", headers={"X-Forwarded-For": "1.1.1.1, 2.2.2.2"}, REMOTE_ADDR="10.0.0.1")
    assert client_address(request) == "10.0.0.1"
    configure(tls_proxy=True)
    assert client_address(request) == "2.2.2.2"


def test_the_list_of_failures_is_for_administrators():
    SignInCount.objects.create(purpose="password", account="ann", failures=1, forget_at=Now() + timedelta(minutes=1))
    for role in (None, "viewer", "operator", "limits manager"):
        assert signed_in(role).get("/admin/access/signincount/").status_code == 403
    assert signed_in("administrator").get("/admin/access/signincount/").status_code == 200


def test_the_form_of_producers_is_guarded(configure):
    configure(lockout_failures=2)
    _, key = ProducerKey.issue(make_project("acme"), name="nightly")
    wrong = [Client().post("/me/sign-in", {"key": "qo_wrong"}) for _ in range(2)]
    assert [answer.status_code for answer in wrong] == [403, 403]
    locked = Client().post("/me/sign-in", {"key": key})
    assert locked.status_code == 429
    assert int(locked.headers["Retry-After"]) > 0
    assert "Too many failed attempts" in locked.content.decode()
    assert Client().post("/me/sign-in", {"key": key}, REMOTE_ADDR="10.0.0.2").status_code == 302


def test_who_has_signed_in_with_a_browser_is_not_locked_out_of_it_by_strangers(configure):
    configure(lockout_failures=3, lockout_account_failures=5)
    person("ann")
    person("bob")
    own, open_session, of_bob = Client(), Client(), Client()
    for client, name in ((own, "ann"), (open_session, "ann"), (of_bob, "bob")):
        assert try_password(name, client=client).status_code == 302
    own.post("/admin/logout/")
    for number in range(5):
        fail("ann", 1, f"10.0.1.{number}")
    assert try_password("ann", address="10.0.0.6").status_code == 429, "for everybody else"
    assert try_password("ann", client=of_bob, address="10.0.0.7").status_code == 429, (
        "another's browser is a stranger's"
    )
    assert is_signed_in(open_session)
    page = open_session.post("/admin/second-factor/", {"step": "begin", "password": PASSWORD})
    assert page.status_code == 302, "who is signed in shows the password once more"
    assert try_password("ann", client=own, address="10.0.0.8").status_code == 302
    own.post("/admin/logout/")
    assert [try_password("ann", "wrong", client=own).status_code for _ in range(4)] == [200, 200, 200, 429]
    assert try_password("ann", client=open_session).status_code == 302, "each browser is counted by itself"
    own.cookies["queueops_known_browser"] = own.cookies["queueops_known_browser"].value + "x"
    assert try_password("ann", client=own, address="10.0.0.9").status_code == 429, "a cookie that we did not sign"
    assert guard.unlock("ann", actor="user:1") >= 2
    assert try_password("ann", address="10.0.0.6").status_code == 302
