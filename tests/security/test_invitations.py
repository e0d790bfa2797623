"""Invitations: a colleague with a role, and a link that is good once."""

from __future__ import annotations

import re
from typing import Any

import pytest
from django.contrib.auth.models import Group, Permission, User
from django.core import mail
from django.test import Client
from django.urls import reverse

from queueops.access.services import invitations
from queueops.audit.models import AuditEntry
from queueops.site import roles
from tests.security.people import PASSWORD, is_signed_in, person, try_password
from tests.support.people import signed_in
from tests.support.racing import run_together

pytestmark = [pytest.mark.django_db, pytest.mark.proves("S9")]

INVITE = "/admin/auth/user/invite/"
ANNA = {"name": "anna", "email": "anna@example.com", "role": "operator"}
CHOSEN = "a password that anna chose"


def invited(client: Client, **given: Any) -> str:
    answer = client.post(INVITE, ANNA | given)
    assert answer.status_code == 200
    found = re.search(r"http://testserver(/admin/login/invited/[\w/=-]+)", answer.content.decode())
    assert found, answer.content.decode()
    return found[1]


def choose(link: str, *, client: Client | None = None, password: str = CHOSEN) -> Any:
    client = client or Client()
    page = client.get(link, follow=True)
    address = page.redirect_chain[-1][0] if page.redirect_chain else link
    return client.post(address, {"new_password1": password, "new_password2": password})


def test_a_colleague_invited_with_a_role_chooses_a_password_once_and_sees_what_the_role_says():
    administrator, colleague = signed_in("administrator"), Client()
    link = invited(administrator)
    anna = User.objects.get(username="anna")
    assert anna.is_staff
    assert not anna.has_usable_password()
    assert mail.outbox == []  # no mail server is configured
    for _ in range(2):  # a program that checks mail follows the link
        assert "invited as <strong>anna</strong>" in Client().get(link, follow=True).content.decode()
    assert choose(link, password="short").status_code == 200
    assert choose(link, client=colleague).status_code == 302
    assert colleague.get(reverse("admin:jobs_job_changelist")).status_code == 200
    assert colleague.get(reverse("admin:tenancy_credential_changelist")).status_code == 403
    assert "This link is over" in Client().get(link, follow=True).content.decode()
    assert is_signed_in(colleague)
    entries = AuditEntry.objects.filter(target=f"user {anna.pk}").order_by("pk")
    assert [entry.action for entry in entries] == ["invite_user", "accept_invitation"]
    assert CHOSEN not in str(list(entries.values()))


def test_an_invitation_ends_by_the_next_one_by_time_and_with_the_account(configure, settings):
    administrator = signed_in("administrator")
    first = invited(administrator)
    anna = User.objects.get(username="anna")
    again = f"/admin/auth/user/{anna.pk}/invite-again/"
    assert "Invite again" in administrator.get(f"/admin/auth/user/{anna.pk}/change/").content.decode()
    answer = administrator.post(again, {"confirmed": "yes"})
    [second] = re.findall(r"http://testserver(/admin/login/invited/[\w/=-]+)", answer.content.decode())
    over = "This link is over"
    assert over in Client().get(first, follow=True).content.decode()
    settings.PASSWORD_RESET_TIMEOUT = -1
    assert over in Client().get(second, follow=True).content.decode()
    settings.PASSWORD_RESET_TIMEOUT = 3600
    assert over not in Client().get(second, follow=True).content.decode()
    User.objects.filter(pk=anna.pk).update(is_active=False)
    assert over in Client().get(second, follow=True).content.decode()
    refused = administrator.post(again, {"confirmed": "yes"}, follow=True)
    assert "there is nothing to invite it to" in refused.content.decode()


def test_a_link_is_mailed_where_mail_is_configured_and_shown_where_it_fails(configure, settings):
    configure(email_url="smtp://localhost:1")
    administrator = signed_in("administrator")
    link = invited(administrator)
    [sent] = mail.outbox
    assert sent.to == ["anna@example.com"]
    assert link in sent.body
    settings.EMAIL_BACKEND = "django.core.mail.backends.smtp.EmailBackend"
    settings.EMAIL_HOST, settings.EMAIL_PORT = "127.0.0.1", 1
    answer = administrator.post(INVITE, ANNA | {"name": "bert", "email": "bert@example.com"}).content.decode()
    assert "could not be mailed to bert@example.com" in answer
    assert "/admin/login/invited/" in answer


def test_an_invitation_says_what_is_wrong_and_gives_nothing_that_its_giver_lacks(configure):
    administrator = signed_in("administrator")
    person("carl", email="carl@example.com")
    more = Group.objects.create(name="more")
    more.permissions.add(Permission.objects.get(codename="change_user"))
    cases = {
        "There is an account Carl already": {"name": "Carl"},
        "the address of the account carl": {"email": "CARL@example.com"},
        "Select a valid choice": {"role": "more"},
        "Enter a valid username": {"name": "anna and bert"},
        "Enter a valid email address": {"email": "anna"},
        "This field is required": {"role": ""},
    }
    for told, given in cases.items():
        assert told in administrator.post(INVITE, ANNA | given).content.decode()
    assert not User.objects.filter(username__iexact="anna").exists()
    asks = User.objects.get(username__startswith="administrator")
    with pytest.raises(invitations.RoleNotYours):
        invitations.invite(asks, name="anna", email="", role=more, base="/")
    configure(password_sign_in="superusers")
    assert "sign in by your provider" in administrator.post(INVITE, ANNA).content.decode()
    assert signed_in("operator").get(INVITE).status_code == 403


def test_nobody_invites_again_whose_account_holds_more_than_they_do():
    administrator = signed_in("administrator")
    root = User.objects.create_superuser("root")
    answer = administrator.post(f"/admin/auth/user/{root.pk}/invite-again/", {"confirmed": "yes"}, follow=True)
    assert "only roles all of whose permissions are yours" in answer.content.decode()


def test_whoever_gets_a_role_is_staff_whichever_way_it_was_given():
    roles.make_groups()
    viewer, root = Group.objects.get(name="viewer"), signed_in("superuser")
    dora = person("dora", is_staff=False)
    form = {"username": "dora", "email": "", "is_active": "on", "groups": [viewer.pk]}
    dates = {"last_login_0": "", "last_login_1": "", "date_joined_0": "2026-01-01", "date_joined_1": "10:00:00"}
    assert root.post(f"/admin/auth/user/{dora.pk}/change/", form | dates).status_code == 302
    assert try_password("dora", PASSWORD).status_code == 302
    assert User.objects.get(pk=dora.pk).is_staff
    refused = root.post(f"/admin/auth/user/{dora.pk}/change/", form | dates)  # which takes the tick away again
    assert "Whoever has a role is staff" in refused.content.decode()
    viewer.user_set.add(emil := person("emil", is_staff=False))
    assert User.objects.get(pk=emil.pk).is_staff


@pytest.mark.django_db(transaction=True)
@pytest.mark.concurrency
def test_of_two_who_open_a_link_at_once_one_chooses_the_password():
    asks = User.objects.create_superuser("root")
    role = Group.objects.get_or_create(name="viewer")[0]
    link = invitations.invite(asks, name="anna", email="", role=role, base="http://testserver").link
    token, anna = link.rstrip("/").rpartition("/")[2], User.objects.get(username="anna")
    taken = run_together(2, lambda number: invitations.accept(anna, token, f"password {number}"))
    assert sorted(one is None for one in taken) == [False, True]
