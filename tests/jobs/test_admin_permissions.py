"""Who may do what in the admin: every screen, every verb, every role."""

from __future__ import annotations

import re
from html import unescape
from urllib.parse import urljoin

import pytest
from django.contrib.auth.models import Group, Permission
from django.core.files.uploadedfile import SimpleUploadedFile
from django.urls import reverse

from jobs.features.uploads.uploads import store_upload
from jobs.models import Batch, BulkOperation, DeadLetter, Job, JobEvent, PauseSwitch, SavedFilter, Upload
from jobs.states import JobState
from queueops.audit.models import AuditEntry
from queueops.site import roles
from queueops.tenancy.models import ProducerKey
from tests.factories import make_dead_letter, make_job
from tests.security.world import World
from tests.support.people import signed_in
from tests.support.screens import address_name, registered
from tests.support.undone import undone

pytestmark = pytest.mark.django_db

FORM = {
    "confirmed": "yes",
    "reason": "tested",
    "delay": "5",
    "priority": "urgent",
    "spread_seconds": "0",
    "note": "tested",
    "payload": '{"method": "GET", "url": "http://127.0.0.1:9/"}',
}
LINE = b'{"kind": "http.request", "payload": {"method": "GET", "url": "http://127.0.0.1:9/"}}'


def everything():
    """What an action could have changed."""
    return (
        list(Job.objects.order_by("pk").values()),
        list(DeadLetter.objects.order_by("pk").values()),
        list(BulkOperation.objects.order_by("pk").values()),
        list(PauseSwitch.objects.order_by("pk").values()),
        list(ProducerKey.objects.order_by("pk").values()),
        AuditEntry.objects.count(),
        JobEvent.objects.count(),
    )


def test_the_shipped_roles_have_what_they_list_and_nothing_else():
    roles.make_groups()
    held: dict[str, set[str]] = {group.name: set() for group in Group.objects.all()}
    for one in Permission.objects.select_related("content_type").prefetch_related("group_set"):
        for group in one.group_set.all():
            held[group.name].add(f"{one.content_type.app_label}.{one.codename}")
    assert held == roles.ROLES


def test_a_role_that_an_administrator_changed_stays_changed():
    roles.make_groups()
    Group.objects.get(name="viewer").permissions.clear()
    assert roles.make_groups() == []
    assert not Group.objects.get(name="viewer").permissions.exists()


def test_the_house_keepings_screens_are_for_superusers_even_when_permissions_are_granted():
    client, superuser = signed_in("administrator"), signed_in("superuser")
    group = Group.objects.get(name="administrator")
    group.permissions.add(*Permission.objects.filter(content_type__app_label="django_q"))
    for model in ("schedule", "ormq", "success", "failure"):
        address = reverse(f"admin:django_q_{model}_changelist")
        assert (client.get(address).status_code, superuser.get(address).status_code) == (403, 200), model


def test_a_viewer_may_not_act_on_all_that_match():
    make_dead_letter()
    viewer, before = signed_in("viewer"), everything()
    names = ("all_requeue", "all_discard", "csv", "ndjson")
    asked = {name: viewer.post(reverse(f"admin:jobs_deadletter_{name}"), FORM).status_code for name in names}
    assert asked == dict.fromkeys(names, 403)
    assert everything() == before


def test_acting_on_every_job_that_matches_needs_the_verbs_permission():
    make_job(state=JobState.RETRIED)
    faults = {}
    for role in (None, "viewer", "limits manager", "operator", "superuser"):
        client, may = signed_in(role), role in {"operator", "superuser"}
        before = everything()
        for name in ("all_run_now", "all_schedule", "all_priority", "all_cancel"):
            address = f"{reverse(f'admin:jobs_job_{name}')}?project=acme"
            with undone():
                asked = client.get(address).status_code, everything() == before
                done = client.post(address, FORM).status_code
                told = done, BulkOperation.objects.count(), AuditEntry.objects.count()
            if (asked, told) != (((200, True), (302, 1, 1)) if may else ((403, True), (403, 0, 0))):
                faults[role, name] = (asked, told)
    assert faults == {}


@pytest.mark.parametrize("role", [None, "viewer", "limits manager", "operator"])
def test_a_file_is_uploaded_and_submitted_by_those_who_may(role):
    make_job()
    upload = store_upload(LINE, project_id="acme", actor="user:1", file_name="a.ndjson")
    before = everything()
    client = signed_in(role)
    may = role == "operator"
    assert client.get("/admin/jobs/upload/add/").status_code == (200 if may else 403)
    file = SimpleUploadedFile("b.ndjson", LINE)
    sent = client.post("/admin/jobs/upload/add/", {"file": file, "project": "acme", "kind": "", "name": ""})
    assert sent.status_code == (302 if may else 403)
    assert Upload.objects.count() == 1 + may
    submit = reverse("admin:jobs_upload_submit", args=[upload.pk])
    assert client.get(submit).status_code == (302 if may else 403)
    assert Job.objects.count() == 1
    assert client.post(submit).status_code == (302 if may else 403)
    assert Job.objects.count() == 1 + may
    if not may:
        assert everything() == before


def test_a_saved_filter_is_shared_by_those_who_may_and_forgotten_by_its_owner_alone():
    viewer, operator, other = signed_in("viewer"), signed_in("operator"), signed_in("operator")
    save = f"{reverse('admin:jobs_job_save_filter')}?priority=urgent&before=x"
    assert signed_in(None).post(save, {"name": "mine"}).status_code == 403
    viewer.post(save, {"name": "mine", "shared": "on"})
    operator.post(save, {"name": "ours", "shared": "on"})
    assert list(SavedFilter.objects.order_by("name").values_list("name", "shared", "query")) == [
        ("mine", False, "priority=urgent"),
        ("ours", True, "priority=urgent"),
    ]
    listed = viewer.get(reverse("admin:jobs_job_changelist")).content.decode()
    assert "ours" in listed
    assert "mine" in listed
    assert ">mine<" not in other.get(reverse("admin:jobs_job_changelist")).content.decode()
    ours = SavedFilter.objects.get(name="ours")
    forget = reverse("admin:jobs_job_forget_filter", args=[ours.pk])
    assert other.post(forget).status_code == 403
    assert viewer.post(forget).status_code == 403
    mine = SavedFilter.objects.get(name="mine")
    assert other.post(reverse("admin:jobs_job_forget_filter", args=[mine.pk])).status_code == 404
    assert operator.get(forget).status_code == 200
    assert SavedFilter.objects.count() == 2
    assert operator.post(forget).status_code == 302
    assert [entry.action for entry in AuditEntry.objects.order_by("id")] == ["share_filter", "forget_filter"]


def test_an_existing_role_gets_what_a_migration_adds_and_keeps_what_was_taken_from_it(monkeypatch):
    roles.make_groups()
    operator = Group.objects.get(name="operator")
    taken = Permission.objects.get(codename="cancel_job")
    new = Permission.objects.get(codename="add_upload")
    operator.permissions.remove(taken, new)
    monkeypatch.setattr(roles, "_before", None)  # restored afterwards
    roles.remember_permissions()
    roles.make_groups()
    assert not operator.permissions.filter(pk__in=[taken.pk, new.pk]).exists()
    assert roles._before is not None
    monkeypatch.setattr(roles, "_before", roles._before - {"jobs.add_upload"})
    roles.make_groups()
    assert list(operator.permissions.filter(pk__in=[taken.pk, new.pk])) == [new]


@pytest.mark.matrix
def test_every_link_of_every_page_opens_for_whoever_sees_it():
    world = World.make("nightly import")
    guard = {"first": 50, "percent": 20, "code": "http_400", "ended": 50, "failed": 40}
    Batch.objects.update(paused=True, guard=guard, guard_state="stopped")
    client = signed_in("viewer")
    pages = ["/admin/", reverse("admin:jobs_deadletter_groups"), reverse("admin:jobs_job_kinds")]
    for model, _ in registered():
        name = address_name(model)
        pages.append(reverse(f"admin:{name}_changelist"))
        pages += [reverse(f"admin:{name}_change", args=[world.ids[name]])] if name in world.ids else []
    answers = {page: client.get(page) for page in pages}
    opens = {page: answer.status_code == 200 for page, answer in answers.items()}
    assert sum(opens.values()) > 40
    refused = set()
    for page, answer in answers.items():
        for found in re.findall(r'href="([^"]+)"', answer.content.decode()) if opens[page] else ():
            link = urljoin(page, unescape(found)).partition("#")[0]
            address = link.partition("?")[0]
            if address.startswith("/admin/"):
                if address not in opens:
                    with undone():
                        opens[address] = client.get(link).status_code not in {403, 404}
                refused |= set() if opens[address] else {(link, page)}
    assert refused == set()
