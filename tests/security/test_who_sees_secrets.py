"""Who is shown the secrets in payloads, results, errors and events: a project's key, on every surface; nobody else."""

from __future__ import annotations

import json
from uuid import UUID

import pytest
from django.contrib.auth.models import User
from django.contrib.sessions.backends.base import SessionBase
from django.db import connection
from django.test import Client

from dashboards.live.socket import LiveSocket
from dashboards.live.subjects import Refused, open_batch, open_job, open_me, open_ops
from dashboards.live.viewer import Viewer, viewer_of_key, viewer_of_session, viewer_of_token
from jobs.models import BulkOperation, DeadLetter, Job, ServiceBreaker, Upload
from jobs.services.explain.event_log import Cursor
from queueops.audit.models import AuditEntry
from queueops.site import roles
from queueops.tenancy.models import ProducerKey, Project, Scope
from tests.security.addresses import every_address, send
from tests.security.world import PROJECT, World, cursor_before_its_events, everything
from tests.support.issuers import make_issuer, shared_token
from tests.support.people import signed_in

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("without_sidebar"), pytest.mark.proves("S11")]

SECRET = "sk-live-51H8canary"
USER = UUID("018f6a52-0000-7000-8000-000000000001")
DOCUMENT = {
    "method": "GET",
    "url": f"https://someone:{SECRET}@api.example.org/",
    "headers": {"Authorization": f"Bearer {SECRET}", "X-Api-Key": SECRET},
    "body": {"password": SECRET, "rows": [{"client_secret": SECRET}]},
}
MESSAGE = f"401: Authorization: Bearer {SECRET} was refused, token={SECRET}"
# The one way for a person: it needs a permission of its own, and leaves an entry in the audit trail.
EXPORTS = {"admin/jobs/deadletter/export.csv", "admin/jobs/deadletter/export.ndjson"}
MAY_EXPORT = {"operator", "administrator", "superuser"}


@pytest.fixture
def world() -> World:
    """Whatever a job, a provider or a file can have told us holds the secret."""
    made = World.make()
    Job.objects.update(
        payload=DOCUMENT, result=DOCUMENT, progress_message=MESSAGE, last_error_message=MESSAGE, user_id=USER
    )
    DeadLetter.objects.update(
        payload=DOCUMENT,
        error_message=MESSAGE,
        remediation=MESSAGE,
        note=MESSAGE,
        attempts=[{"at": "2026-01-01T00:00:00", "message": MESSAGE, "details": DOCUMENT}],
    )
    with connection.cursor() as cursor:
        for job in Job.objects.all():
            cursor.execute(
                "INSERT INTO jobs_jobevent (job_id, project_id, user_id, batch_id, event_type, message, data)"
                " VALUES (%s, %s, %s, %s, 'error', %s, %s)",
                [job.pk, PROJECT, USER, job.batch_id, MESSAGE, json.dumps({"details": DOCUMENT, "message": MESSAGE})],
            )
    BulkOperation.objects.update(parameters={"project_id": PROJECT, "payload": DOCUMENT}, error=MESSAGE, reason=MESSAGE)
    ServiceBreaker.objects.update(last_error=MESSAGE)
    Upload.objects.update(
        errors=[{"line": 1, "code": "x", "message": MESSAGE, "fields": {"payload": [MESSAGE]}}],
        sample=[{"line": 1, "kind": "http.request", "payload": DOCUMENT}],
    )
    AuditEntry.objects.create(project_id=PROJECT, actor="x", action="x", target="x", after={"payload": DOCUMENT})
    return made


def key() -> str:
    return ProducerKey.issue(Project.objects.get(pk=PROJECT), name="own", scopes=list(Scope.values))[1]


def token() -> str:
    make_issuer(issuer="https://shared.example.org", scopes=["read", "submit", "usage"])
    return shared_token(USER, iss="https://shared.example.org")


def shown_by(client: Client, world: World) -> set[str]:
    """The addresses whose answer has the secret."""
    found = set()
    for address in every_address():
        status, text = send(client, "GET", address, world)
        assert status < 500, address.route
        found |= {address.route} if SECRET in text else set()
    return found


@pytest.mark.parametrize(
    "role",
    [
        pytest.param(role, marks=[] if role in {"viewer", "operator", "superuser"} else [pytest.mark.soak])
        for role in (*roles.ROLES, "superuser")
    ],
)
@pytest.mark.proves("S1")
@pytest.mark.matrix
def test_looking_shows_no_person_a_secret_and_changes_nothing_but_by_an_export_that_is_audited(world: World, role: str):
    client = signed_in(role)
    user = User.objects.get(pk=client.session["_auth_user_id"])
    in_project = Client(headers={"X-Project": PROJECT})
    in_project.cookies = client.cookies
    before = everything(signed_in=user)
    assert shown_by(in_project, world) == (EXPORTS if role in MAY_EXPORT else set())
    after = everything(signed_in=user)
    told = {entry["action"] for entry in after["audit.AuditEntry"] if entry not in before["audit.AuditEntry"]}
    assert {action for action in told if not action.startswith("export_")} == set()
    assert {**after, "audit.AuditEntry": []} == {**before, "audit.AuditEntry": []}
    exported = AuditEntry.objects.filter(action="export_dead_letters").count()
    assert exported == (2 if role in MAY_EXPORT else 0)


def test_an_end_user_is_not_shown_what_the_apps_backend_put_into_their_jobs(world: World):
    assert shown_by(Client(headers={"Authorization": f"Bearer {token()}"}), world) == set()


def test_anybody_is_not(world: World):
    Project.objects.update(anonymous_read=True)
    anybody = Client(headers={"X-Project": PROJECT})
    assert anybody.get(f"/api/v1/jobs/{world.ids['jobs_job']}/").status_code == 200
    assert shown_by(anybody, world) == set()


def test_the_projects_key_is_shown_its_own_work_as_it_is(world: World):
    client = Client(headers={"Authorization": f"Bearer {key()}"})
    shown = shown_by(client, world)
    jobs, letters = "api/v1/jobs/<uuid:pk>/", "api/v1/dead-letters/<uuid:pk>/"
    assert {jobs, f"{jobs}events/", letters, "api/v1/batches/<uuid:pk>/results/"} <= shown
    assert {route.split("/")[0] for route in shown} == {"api", "openai", "anthropic"}
    assert client.get(f"/api/v1/jobs/{world.ids['jobs_job']}/").json()["payload"] == DOCUMENT


def staff(role: str) -> Viewer:
    session: SessionBase = signed_in(role).session
    viewer = viewer_of_session(session)
    assert viewer is not None
    return viewer


def seen_over_sockets(viewer: Viewer, world: World) -> set[str]:
    """The sockets whose snapshot, or whose events, have the secret."""
    job, batch = UUID(world.ids["jobs_job"]), UUID(world.ids["jobs_batch"])
    openers = {
        "job": lambda: open_job(viewer, job),
        "batch": lambda: open_batch(viewer, batch),
        "me": lambda: open_me(viewer),
        "ops": lambda: open_ops(viewer),
    }
    found, opened = set(), 0
    for name, open_it in openers.items():
        try:
            subject = open_it()
        except Refused:
            continue
        opened += 1
        events = [
            LiveSocket(viewer, subject)._body(event) for event in subject.missed(cursor_before_its_events()) or []
        ]
        assert events
        found |= {name} if SECRET in f"{subject.read(Cursor(0, ''))} {events}" else set()
    assert opened >= 2
    return found


def test_no_socket_shows_a_person_a_secret(world: World):
    seen = {role: seen_over_sockets(staff(role), world) for role in (*roles.ROLES, "superuser")}
    assert {role: found for role, found in seen.items() if found} == {}


def test_no_socket_shows_one_to_an_end_user(world: World):
    Job.objects.update(user_id=USER)
    viewer = viewer_of_token(token())
    assert viewer is not None
    subject = open_job(viewer, UUID(world.ids["jobs_job"]))
    events = [LiveSocket(viewer, subject)._body(event) for event in subject.missed(cursor_before_its_events()) or []]
    assert events
    assert SECRET not in f"{subject.read(Cursor(0, ''))} {events}"


def test_a_projects_key_is_shown_its_own_jobs_over_sockets_as_they_are(world: World):
    viewer = viewer_of_key(key())
    assert viewer is not None
    assert seen_over_sockets(viewer, world) == {"job", "batch"}


def test_sockets_that_are_shown_different_things_share_no_snapshot(world: World):
    job = UUID(world.ids["jobs_job"])
    own = viewer_of_key(key())
    assert own is not None
    assert open_job(own, job).key != open_job(staff("viewer"), job).key
