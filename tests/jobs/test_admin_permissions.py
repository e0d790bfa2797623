"""Who may do what in the admin: every screen, every verb, every role."""

from __future__ import annotations

import pytest
from django.contrib.auth.models import Group, Permission
from django.core.files.uploadedfile import SimpleUploadedFile
from django.urls import reverse

from jobs.admin.batches.verbs import BATCH_VERBS
from jobs.admin.dead_letters.verbs import DEAD_LETTER_VERBS
from jobs.admin.jobs.verbs import JOB_VERBS
from jobs.admin.jobs.verbs import REQUEUE as REQUEUE_JOB
from jobs.admin.operations import STOP
from jobs.admin.pauses import RESUME as RESUME_SCOPE
from jobs.models import BulkOperation, DeadLetter, Dependency, Job, JobEvent, PauseSwitch, SavedFilter, Upload
from jobs.services.submit.uploads import store_upload
from jobs.states import JobState
from queueops.audit.models import AuditEntry
from queueops.site import roles
from queueops.tenancy.admin.projects import REVOKE
from queueops.tenancy.models import ProducerKey
from tests.factories import make_batch, make_dead_letter, make_job, make_project
from tests.support import screens
from tests.support.people import signed_in

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
STATE_OF = {"reset": JobState.IN_PROGRESS, "requeue": JobState.FAILED, "again": JobState.COMPLETED}


def a_job(verb):
    if verb is REQUEUE_JOB:
        return make_dead_letter().job
    if verb.name == "go-on":
        return waits(make_job(held=True), of_batch=False)
    return make_job(state=STATE_OF.get(verb.name, JobState.RETRIED))


def a_batch(verb):
    batch = make_batch(paused=verb.name == "resume")
    make_job(batch=batch)
    return waits(batch, of_batch=True) if verb.name == "go-on" else batch


def waits(row, *, of_batch):
    """The job or batch, which waits for another job."""
    named = {"on_id": make_job().pk, "on_batch": False, "on_failure": "hold", "project_id": "acme"}
    Dependency.objects.create(owner_id=row.pk, of_batch=of_batch, **named)
    return row


VERBS = [
    *(("jobs_job", verb, a_job) for verb in JOB_VERBS),
    *(("jobs_batch", verb, a_batch) for verb in BATCH_VERBS),
    *(("jobs_deadletter", verb, lambda verb: make_dead_letter()) for verb in DEAD_LETTER_VERBS),
    (
        "jobs_bulkoperation",
        STOP,
        lambda verb: BulkOperation.objects.create(action="cancel_jobs", parameters={}, total=1),
    ),
    ("jobs_pauseswitch", RESUME_SCOPE, lambda verb: PauseSwitch.objects.create(scope="kind", key="x")),
    ("tenancy_producerkey", REVOKE, lambda verb: ProducerKey.issue(make_project(), name="x")[0]),
]
IDS = [f"{screen}-{verb.name}" for screen, verb, _ in VERBS]


def address_of(screen, verb, row):
    return reverse(f"admin:{screen}_change", args=[row.pk]).replace("/change/", f"/{verb.name}/")


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


@pytest.mark.parametrize(("screen", "verb", "make"), VERBS, ids=IDS)
@pytest.mark.parametrize("role", [None, "viewer", "operator", "administrator", "superuser"])
def test_a_verb_is_carried_out_for_those_with_its_permission_only(screen, verb, make, role):
    row = make(verb)
    before = everything()
    client = signed_in(role)
    response = client.post(address_of(screen, verb, row), FORM)
    if role == "superuser" or (role and verb.permission in roles.ROLES[role]):
        assert response.status_code == 302
        assert everything() != before
        assert AuditEntry.objects.filter(actor__startswith="user:").exists()
    else:
        assert response.status_code == 403
        assert everything() == before


@pytest.mark.parametrize(("screen", "verb", "make"), VERBS, ids=IDS)
def test_a_get_shows_what_would_happen_and_changes_nothing(screen, verb, make):
    row = make(verb)
    before = everything()
    response = signed_in("superuser").get(address_of(screen, verb, row))
    assert response.status_code == 200
    assert "<strong>1</strong> will be" in response.content.decode()
    assert everything() == before


@pytest.mark.parametrize(("screen", "verb", "make"), VERBS, ids=IDS)
def test_a_post_without_confirmation_only_asks(screen, verb, make):
    row = make(verb)
    before = everything()
    response = signed_in("superuser").post(
        address_of(screen, verb, row), {k: v for k, v in FORM.items() if k != "confirmed"}
    )
    assert response.status_code == 200
    assert everything() == before


@pytest.mark.parametrize(
    ("screen", "verb", "make"),
    [one for one in VERBS if one[1].overrides and one[1] is not STOP],
    ids=[f"{screen}-{verb.name}" for screen, verb, _ in VERBS if verb.overrides and verb is not STOP],
)
def test_what_destroys_or_overrides_wants_a_reason(screen, verb, make):
    row = make(verb)
    before = everything()
    response = signed_in("superuser").post(address_of(screen, verb, row), {**FORM, "reason": " "})
    assert response.status_code == 200
    assert "This field is required" in response.content.decode()
    assert everything() == before


SELECTABLE = [one for one in VERBS if one[1].name not in {"edit", "again"}]


@pytest.mark.parametrize(("screen", "verb", "make"), SELECTABLE, ids=[f"{s}-{v.name}" for s, v, _ in SELECTABLE])
@pytest.mark.parametrize("role", ["viewer", "superuser"])
def test_the_lists_action_asks_first_and_is_refused_without_permission(screen, verb, make, role):
    row = make(verb)
    before = everything()
    client = signed_in(role)
    name = f"{verb.name.replace('-', '_')}_selected"
    chosen = {"action": name, "_selected_action": [str(row.pk)]}
    asked = client.post(reverse(f"admin:{screen}_changelist"), chosen)
    assert everything() == before
    done = client.post(reverse(f"admin:{screen}_changelist"), {**chosen, **FORM})
    if role == "superuser":
        assert "will be" in asked.content.decode()
        assert done.status_code == 302
        assert everything() != before
    else:
        assert everything() == before


@pytest.mark.parametrize("role", ["viewer", "operator", "administrator"])
def test_the_shipped_roles_have_what_they_list_and_nothing_else(role):
    signed_in(role)
    group = Group.objects.get(name=role)
    held = {f"{one.content_type.app_label}.{one.codename}" for one in group.permissions.select_related("content_type")}
    assert held == roles.ROLES[role]


def test_a_role_that_an_administrator_changed_stays_changed():
    roles.make_groups()
    Group.objects.get(name="viewer").permissions.clear()
    assert roles.make_groups() == []
    assert not Group.objects.get(name="viewer").permissions.exists()


def test_every_list_opens_for_a_superuser_and_is_closed_to_staff_without_a_role():
    nobody, superuser = signed_in(None), signed_in("superuser")
    for model, _ in screens.registered():
        address = reverse(f"admin:{screens.address_name(model)}_changelist")
        assert superuser.get(address).status_code == 200, address
        assert nobody.get(address).status_code == 403, address


@pytest.mark.parametrize("model", ["schedule", "ormq", "success", "failure"])
def test_the_house_keepings_screens_are_for_superusers_even_when_permissions_are_granted(model):
    client = signed_in("administrator")
    group = Group.objects.get(name="administrator")
    group.permissions.add(*Permission.objects.filter(content_type__app_label="django_q"))
    assert client.get(reverse(f"admin:django_q_{model}_changelist")).status_code == 403
    assert signed_in("superuser").get(reverse(f"admin:django_q_{model}_changelist")).status_code == 200


@pytest.mark.parametrize("name", ["all_requeue", "all_discard", "csv", "ndjson"])
def test_a_viewer_may_not_act_on_all_that_match(name):
    make_dead_letter()
    before = everything()
    assert signed_in("viewer").post(reverse(f"admin:jobs_deadletter_{name}"), FORM).status_code == 403
    assert everything() == before


def test_a_viewer_may_not_pause_work():
    assert signed_in("viewer").post("/admin/jobs/pauseswitch/pause/", {"scope": "global"}).status_code == 403
    assert not PauseSwitch.objects.exists()


JOB_TOOLS = ["all_run_now", "all_schedule", "all_priority", "all_cancel"]


@pytest.mark.parametrize("name", JOB_TOOLS)
@pytest.mark.parametrize("role", [None, "viewer", "limits manager", "operator", "superuser"])
def test_acting_on_every_job_that_matches_needs_the_verbs_permission(name, role):
    make_job(state=JobState.RETRIED)
    before = everything()
    client = signed_in(role)
    address = f"{reverse(f'admin:jobs_job_{name}')}?project=acme"
    may = role in {"operator", "superuser"}
    assert client.get(address).status_code == (200 if may else 403)
    assert everything() == before
    assert client.post(address, FORM).status_code == (302 if may else 403)
    assert BulkOperation.objects.count() == int(may)
    assert AuditEntry.objects.count() == int(may)


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
