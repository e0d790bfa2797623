"""The screens of credential pools, and putting members back."""

from __future__ import annotations

from typing import Any
from uuid import uuid4

import pytest
from django.urls import reverse

from jobs.features.watches.watch_credentials import watch_credentials
from jobs.services.operate.credential_pools import put_back_members
from queueops.audit.models import AuditEntry
from queueops.tenancy.credential_pools import pools, refusals
from queueops.tenancy.credential_pools.refusals import RefusedCall
from queueops.tenancy.models import Credential, CredentialPool, CredentialPoolMember
from ratelimits.limits import catalogue
from ratelimits.models import Limit, QuotaAlert
from tests.factories import make_project
from tests.support.credential_pools import make_pool, secret_of
from tests.support.people import signed_in

pytestmark = pytest.mark.django_db

LIST = "admin:tenancy_credentialpool_changelist"
# The parts of the form for what a credential's server takes, and for http.request.
NO_SETTINGS = {"settings-TOTAL_FORMS": 0, "settings-INITIAL_FORMS": 0, "placement": "bearer"}


@pytest.fixture(autouse=True)
def nothing_kept():
    pools.forget()
    catalogue.forget()
    yield
    pools.forget()
    catalogue.forget()


def credential(name: str, *, service: str = "openai", **fields: Any) -> Credential:
    counted = {"quota_project": name, **fields}
    return Credential.objects.create(name=name, service=service, secret=b"x", **counted)


def form_of(*members: Credential, name: str = "keys", service: str = "openai", hosts: str = "") -> dict[str, Any]:
    form = {"name": name, "service": service, "projects": [make_project().pk], "members-TOTAL_FORMS": len(members)}
    form |= {"hosts": hosts, "members-INITIAL_FORMS": 0, "members-MIN_NUM_FORMS": 0, "members-MAX_NUM_FORMS": 1000}
    for place, member in enumerate(members):
        form |= {f"members-{place}-credential": member.pk, f"members-{place}-weight": "2"}
    return form


def refuse_calls(name: str, reason: str) -> None:
    """Take a credential out for the project acme."""
    jobs = [uuid4() for _ in range(refusals.CALLS_OF_EVIDENCE)]
    refusals.record(RefusedCall(name, "acme", job, job, reason) for job in jobs)
    pools.forget()


def add(*members: Credential, **form: Any) -> str:
    answer = signed_in("administrator").post(reverse("admin:tenancy_credentialpool_add"), form_of(*members, **form))
    return answer.content.decode() if answer.status_code == 200 else ""


def test_a_pool_is_made_with_its_members_and_the_trail_tells():
    assert add(credential("key-1"), credential("key-2")) == ""
    pool = CredentialPool.objects.get()
    assert {member.credential.name: member.weight for member in pool.members.all()} == {"key-1": 2, "key-2": 2}
    entry = AuditEntry.objects.get(action="add_credential_pool")
    assert entry.after == {
        "name": "keys",
        "service": "openai",
        "projects": ["acme"],
        "hosts": [],
        "members": {"key-1": 2, "key-2": 2},
    }


def test_what_cannot_be_a_pool_is_refused_where_it_is_wrong():
    taken, foreign, nobody = (
        credential("keys"),
        credential("sheet", service="google"),
        credential("k", quota_project=""),
    )
    assert "A credential has this name" in add(taken)
    assert "It is for google, not for openai" in add(foreign, name="mine")
    assert "Name its quota project first" in add(nobody, name="mine")
    twin = credential("twin", quota_project="keys")
    assert "The limits count it as keys" in add(taken, twin, name="mine")
    assert "Add a credential: jobs that name a pool without one wait" in add(name="mine")
    assert not CredentialPool.objects.exists()


def test_a_pools_hosts_are_hosts_of_each_member():
    wide, narrow = credential("key-1", hosts=["*.example.org"]), credential("key-2", hosts=["b.test"])
    assert "It may not be sent to a.example.org" in add(wide, narrow, hosts="a.example.org")
    assert "is no host" in add(wide, hosts="https://a.example.org/")
    assert add(wide, hosts="A.example.org") == ""
    assert CredentialPool.objects.get().hosts == ["a.example.org"]


def test_a_credential_takes_no_pools_name_and_stays_what_its_pool_needs():
    pool = make_pool(service="openai", members=["key-1"])
    member = pool.members.get().credential
    client = signed_in("administrator")
    form = {
        "name": "keys",
        "service": "openai",
        "new_secret": '{"api_key": "x"}',
        "quota_project": "",
        "quota_user": "",
        **NO_SETTINGS,
    }
    answer = client.post(reverse("admin:tenancy_credential_add"), form)
    assert "A pool of credentials has this name" in answer.content.decode()
    answer = client.post(reverse("admin:tenancy_credential_change", args=[member.pk]), {**form, "service": "gemini"})
    assert "whose members count apart" in answer.content.decode()
    assert "which is of openai" in answer.content.decode()


def test_the_pages_show_who_is_in_with_what_room_and_who_was_taken_out():
    pool = make_pool(service="openai", members=["key-1", "key-2"])
    Limit.objects.all().delete()
    Limit.objects.create(name="calls", service="openai", call_type="write", scope="project", capacity=7)
    catalogue.forget()
    refuse_calls("key-2", "openai answered 401")
    client = signed_in("viewer")
    listed = client.get(reverse(LIST)).content.decode()
    assert "key-1" in listed
    assert "key-2" in listed
    page = (
        signed_in("administrator").get(reverse("admin:tenancy_credentialpool_change", args=[pool.pk])).content.decode()
    )
    assert "writes: 7" in page
    assert "taken out for acme" in page
    assert "after 3 calls of acme: openai answered 401" in page


def test_a_pool_whose_last_member_is_taken_out_is_shown_as_such():
    pool = make_pool(service="openai", members=["key-1"])
    form = form_of(pool.members.get().credential) | {"members-INITIAL_FORMS": 1, "members-0-DELETE": "on"}
    form |= {"members-0-id": pool.members.get().pk, "members-0-pool": pool.pk}
    client = signed_in("administrator")
    address = reverse("admin:tenancy_credentialpool_change", args=[pool.pk])
    said = client.post(address, form, follow=True).content.decode()
    assert not pool.members.exists()
    assert "It has no credential any more: jobs that name it wait until it has one." in said
    assert "none: its jobs wait" in said


def test_the_list_of_credentials_says_by_whom_each_is_used(django_assert_max_num_queries):
    pool = make_pool(service="openai", members=["key-1", "key-2"])
    pool.members.get(credential__name="key-2").credential.projects.add(make_project())
    credential("key-3")
    client = signed_in("administrator")
    with django_assert_max_num_queries(16):
        page = client.get(reverse("admin:tenancy_credential_changelist"))
    shown = {row.name: page.context["cl"].model_admin.used_by(row) for row in page.context["cl"].result_list}
    assert shown == {"key-1": "pool keys", "key-2": "acme, pool keys", "key-3": "nobody"}
    assert "acme, pool keys" in page.content.decode()


def test_an_empty_list_says_what_pools_are_for():
    assert "There are no pools of credentials" in signed_in("administrator").get(reverse(LIST)).content.decode()


def test_a_member_is_put_back_once_its_provider_takes_it_again(sandbox):
    pool = make_pool(service="openai", members=["key-1", "key-2"], url=sandbox.url)
    refuse_calls("key-1", "401")
    refuse_calls("key-2", "401")
    sandbox.revoke(secret_of("key-2"))
    answer = signed_in("operator").post(
        reverse(LIST),
        {"action": "put_back_selected", "_selected_action": [pool.pk], "confirmed": "1", "reason": "renewed"},
        follow=True,
    )
    said = answer.content.decode()
    assert "Put back: key-1." in said
    assert "key-2 stays out: It was answered with 401." in said
    assert [one.credential for one in refusals.absences()] == ["key-2"]
    assert [one.credential for one in pools.members_of("keys", "acme")] == ["key-1"]
    entry = AuditEntry.objects.get(action="put_back_credential")
    assert entry.before is not None
    assert (entry.before["credential"], entry.after, entry.reason) == ("key-1", {"tried": True}, "renewed")


def test_a_new_secret_puts_a_credential_back_and_ends_its_alert():
    pool = make_pool(service="openai", members=["key-1"])
    refuse_calls("key-1", "openai answered 401")
    watch_credentials()
    alert = QuotaAlert.objects.get()
    assert (alert.severity, alert.resolved_at) == ("critical", None)
    member = pool.members.get().credential
    client = signed_in("administrator")
    form = {"service": "openai", "quota_project": "key-1", "quota_user": "", **NO_SETTINGS}
    for secret, left in (("", [member.name]), ('{"api_key": "renewed"}', [])):
        address = reverse("admin:tenancy_credential_change", args=[member.pk])
        assert client.post(address, {**form, "new_secret": secret}).status_code == 302
        assert [one.credential for one in refusals.absences()] == left
    assert [one.is_on_trial for one in pools.members_of("keys", "acme")] == [False]
    watch_credentials()
    alert.refresh_from_db()
    assert alert.resolved_at is not None


def test_what_nobody_can_try_is_put_back_on_trust():
    make_pool(service="ours", members=["key-1"])
    refuse_calls("key-1", "401")
    done = put_back_members([CredentialPoolMember.objects.get().pk], actor="user:1")
    assert (done.put_back, done.refused, done.untried) == (("key-1",), {}, ("key-1",))


def test_who_may_only_look_puts_nothing_back():
    pool = make_pool(service="ours", members=["key-1"])
    refuse_calls("key-1", "401")
    address = reverse("admin:tenancy_credentialpool_changelist") + f"{pool.pk}/put_back/"
    assert signed_in("viewer").post(address, {"confirmed": "1"}).status_code == 403
    assert refusals.absences()
