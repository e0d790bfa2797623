"""Payloads that are encrypted at rest: what a dump of the database shows of them, and to whom they are shown."""

from __future__ import annotations

import json
import logging
import subprocess
import threading
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from io import StringIO
from typing import Any
from uuid import uuid4

import pytest
from cryptography.fernet import Fernet
from django.apps import apps
from django.conf import settings as django_settings
from django.contrib.auth.models import Permission
from django.core.management import CommandError, call_command
from django.db import connection, transaction
from django.db.models.functions import Now
from django.test import Client
from django.utils import timezone
from pydantic import BaseModel

from jobs.door.files import store_file
from jobs.door.models import DoorBatch, DoorFilePart
from jobs.executor.loop import HandlerLoop
from jobs.features.encryption import encrypt_payloads
from jobs.features.served_kinds import served_kinds as kinds_service
from jobs.features.served_kinds.unserved import tend_unserved
from jobs.features.uploads.uploads import store_upload, submit_upload
from jobs.features.watches.watch import tend_alerts
from jobs.handlers import registry
from jobs.handlers.errors import ProviderError
from jobs.handlers.registry import Coalesce, Done, RunningJob, handler
from jobs.models import BulkOperation, DeadLetter, Job, JobEvent, PauseSwitch, Schedule, Tag, Upload
from jobs.services.claim.claim import claim_jobs
from jobs.services.claim.fair_share import ClassTurns
from jobs.services.explain.waiting import explain_waiting
from jobs.services.finish.finish import record_outcomes, retry_policies
from jobs.services.operate.bulk import start_bulk_requeue
from jobs.services.operate.bulk_run import cancel_bulk, run_bulk_chunk
from jobs.services.operate.dead_letters import requeue_dead_letters
from jobs.services.submit.spec import JobSpec
from jobs.services.submit.submit import submit_job
from jobs.services.upkeep.retention import keep_timelines
from jobs.states import WAITING, JobState
from jobs.testing import drain
from jobs.transitions import Move, move_jobs
from queueops.access.services.personal_tokens import issue_token
from queueops.audit.models import AuditEntry
from queueops.core import sealing
from queueops.core.embedded.host import client_programs
from queueops.site import backup
from queueops.site.diagnosis.access import examine_payload_keys
from queueops.site.diagnosis.finding import DoctorVerdict
from queueops.site.roles import ROLES
from queueops.tenancy.models import Project
from queueops.tenancy.secrets import encryption
from ratelimits.models import QuotaAlert
from tests.api.conftest import Api, error_of, key_for
from tests.factories import make_batch, make_job, make_project, make_schedule
from tests.security.people import person
from tests.support.assistants import Assistant
from tests.support.processes import wait_for
from tests.support.sample_app import tasks

pytestmark = pytest.mark.django_db(transaction=True)

OLD, NEW = ("k1", Fernet.generate_key().decode()), ("k2", Fernet.generate_key().decode())
WORD = "zebra-crossing"  # in every payload; nowhere else


class Note(BaseModel):
    text: str
    fails: bool = False


@pytest.fixture(autouse=True)
def kinds(monkeypatch) -> None:
    monkeypatch.setattr(registry, "_handlers", dict(registry._handlers))
    monkeypatch.setattr(kinds_service, "KINDS_LOOK_SECONDS", 0.1)
    monkeypatch.setattr(encrypt_payloads, "SETTING_KNOWN_SECONDS", 0.0)
    monkeypatch.setattr(encrypt_payloads, "FOLLOW_SECONDS", 0.1)
    encryption.forget_encrypted()

    @handler(kind="test.note", service="test", payload=Note, idempotent=True, retry="none", searchable=("text",))
    async def note(job: RunningJob[Note]) -> Done:
        job.progress(50, f"half of {job.payload.text}")
        logging.getLogger("app").warning("carries out %s", job.payload.text)
        if job.payload.fails:
            said = f"will not have {job.payload.text}"
            raise ProviderError(400, said, code="bad", outcome="answered", details={"was": job.payload.text})
        return Done({"echo": job.payload.text})

    @handler(
        kind="test.together",
        service="test",
        payload=Note,
        idempotent=True,
        coalesce=Coalesce(key=lambda given: given.text, max_items=10, max_bytes=10_000),
    )
    async def together(group: list[RunningJob[Note]]) -> list[Done]:
        return [Done(len(group)) for _ in group]


@pytest.fixture
def keys(settings) -> Callable[..., None]:
    def set_to(*pairs: tuple[str, str]) -> None:
        settings.QUEUEOPS = replace(django_settings.QUEUEOPS, payload_keys=pairs, debug=False)

    set_to(OLD)
    return set_to


def make_encrypted(name: str = "acme") -> Project:
    project = make_project(name)
    Project.objects.filter(pk=name).update(encrypted=True)
    encryption.forget_encrypted()
    return project


def submit(project: str = "acme", **payload: Any) -> Job:
    done = submit_job(
        JobSpec(kind="test.note", payload={"text": WORD, **payload}), project_id=project, actor="key:test"
    )
    return Job.objects.get(pk=done.id)


def dumped() -> list[str]:
    program = [str(client_programs() / "pg_dump"), "--data-only", "--enable-row-security"]
    done = subprocess.run(program, env=backup._environ(), capture_output=True, text=True, check=True)
    return [line for line in done.stdout.splitlines() if WORD in line or WORD.encode().hex() in line]


def encrypt(*options: str) -> str:
    out = StringIO()
    call_command("encrypt_payloads", *options, stdout=out, stderr=StringIO())
    return out.getvalue()


def do_everything(project: str) -> None:
    """Leave a payload's word wherever the platform keeps pieces of one."""
    api = Api(key_for(project))
    api.post("/jobs/", {"kind": "test.note", "payload": {"text": WORD}}, Idempotency_Key="once")
    api.post("/jobs/", {"kind": "test.together", "payload": {"text": WORD}})
    api.post("/jobs/", {"kind": "test.note", "payload": {"text": WORD, "fails": True}})
    api.lines(
        json.dumps({"kind": "test.note", "payload": {"text": WORD}}) + f'\n{{"kind": "{WORD}", "payload": {{}}}}\n',
        "?partial=true",
        Idempotency_Key="lines",
    )
    drain()
    keep_timelines(timezone.now() + timedelta(days=1), 100)
    make_schedule(project=project, jobs=[{"kind": "test.note", "payload": {"text": WORD}}])
    content = json.dumps({"kind": "test.note", "payload": {"text": WORD}}).encode() + b'\n{"kind": "zebra-crossing"}\n'
    store_upload(content, project_id=project, actor="user:1", file_name="jobs.ndjson")
    store_file([WORD.encode() * 9], project_id=project, actor="user:1", file_name="in", purpose="batch")
    told = {"metadata": {"text": WORD}, "errors": [WORD]}
    DoorBatch.objects.create(project_id=project, complete_by=timezone.now(), **told)
    start_bulk_requeue({"project_id": project}, actor="user:1", payload={"text": WORD})
    tend_alerts()


def test_a_dump_shows_nothing_of_an_encrypted_project_and_everything_of_another(keys):
    make_encrypted()
    do_everything("acme")
    assert dumped() == []
    make_project("plain")
    do_everything("plain")
    found = "\n".join(dumped())
    for piece in ('"echo":"', "will not have ", "half of ", "carries out ", '"was": "', "|", "text="):
        assert piece + WORD in found, piece


def test_what_is_encrypted_is_read_as_before(keys):
    make_encrypted()
    do_everything("acme")
    job = Job.objects.get(kind="test.note", status=JobState.FAILED)
    assert job.payload == {"text": WORD, "fails": True}
    assert job.last_error_message == f"will not have {WORD}"
    letter = DeadLetter.objects.get(job=job)
    assert (letter.payload, letter.error_message) == (job.payload, job.last_error_message)
    assert letter.attempts[0]["message"] == f"will not have {WORD}"
    assert letter.attempts[0]["details"]["was"] == WORD
    assert {event.message for event in JobEvent.objects.filter(event_type="progress")} == {f"half of {WORD}"}
    assert Job.objects.filter(status=JobState.COMPLETED, kind="test.note")[0].result == {"echo": WORD}
    assert Schedule.objects.get().jobs[0]["payload"] == {"text": WORD}
    upload = Upload.objects.get()
    assert upload.sample[0]["payload"] == {"text": WORD}
    submitted = submit_upload(upload.pk, actor="user:1", partial=True)
    assert Job.objects.get(batch=submitted.batch_id).payload == {"text": WORD}
    api = Api(key_for("acme"))
    told = api.get(f"/jobs/{job.pk}/").json()
    assert told["payload"] == job.payload
    assert api.get("/project/").json()["encrypted"] is True
    again = api.post("/jobs/", {"kind": "test.note", "payload": {"text": WORD}}, Idempotency_Key="once")
    assert again.headers["Idempotency-Replayed"] == "true"


def test_what_a_worker_without_the_key_gives_back_keeps_no_other_outcome_from_being_written(keys):
    make_encrypted()
    closed = submit()
    other = submit(project=make_project("plain").pk)
    keys()
    claimed = claim_jobs(uuid4(), wanted=2, lease_seconds=30, turns=ClassTurns(0.0))
    loop = HandlerLoop(slots=2, wake=lambda: None)
    loop.start()
    try:  # the first came too late to be sent, before anybody looked whether its payload can be read
        loop.carry_out([job._replace(send_by=0.0) if job.id == closed.pk else job for job in claimed])
        wait_for(lambda: not loop.active)
    finally:
        loop.stop()
    outcomes, notes = loop.collect()
    record_outcomes(outcomes, notes, policies=retry_policies())
    closed.refresh_from_db()
    assert (closed.status, Job.objects.get(pk=other.pk).status) == (JobState.RETRIED, JobState.COMPLETED)
    drain(seconds=10)
    closed.refresh_from_db()
    assert (closed.held, closed.last_error_code) == (True, "payload_key_missing")
    tend_alerts()
    assert "the payload key k1" in QuotaAlert.objects.get(kind="unserved").message


def test_who_may_not_read_what_an_idempotency_key_was_answered_is_told_so(keys):
    make_encrypted()
    browser = person_with("p", "jobs.add_job")
    job = {"kind": "test.note", "payload": {"text": WORD}}

    def post(path: str, body: dict[str, Any], **headers: str) -> Any:
        given = {"X-Project": "acme", **{name.replace("_", "-"): value for name, value in headers.items()}}
        return browser.post(f"/api/v1{path}", body, content_type="application/json", headers=given)

    once = {"Idempotency_Key": "once"}
    assert post("/jobs/", job, **once).status_code == 201
    assert error_of(post("/jobs/", job, **once), 409)["code"] == "payload_unreadable"
    named = {**job, "idempotency_key": "named"}
    assert post("/jobs/", named).status_code == 201
    assert error_of(post("/jobs/", named), 409)["code"] == "payload_unreadable"
    api = Api(key_for("acme"))
    keys(NEW)  # and the key that the first was encrypted with is missing
    assert error_of(api.post("/jobs/", job, **once), 409)["code"] == "payload_unreadable"
    assert error_of(api.post("/jobs/", named), 409)["code"] == "payload_unreadable"
    keys(NEW, OLD)
    assert api.post("/jobs/", named).status_code == 200
    assert Job.objects.count() == 2


def test_work_that_takes_the_place_of_other_work_is_encrypted_too(keys):
    make_encrypted()
    for text in ("first", WORD):
        spec = JobSpec.model_validate(
            {"kind": "test.note", "payload": {"text": text}, "unique_key": "a", "if_pending": "replace"}
        )
        submit_job(spec, project_id="acme", actor="key:test")
    assert Job.objects.get().payload == {"text": WORD}
    assert dumped() == []


def test_jobs_of_one_group_leave_together_although_their_key_is_hidden(keys):
    make_encrypted()
    for _ in range(3):
        submit_job(JobSpec(kind="test.together", payload={"text": WORD}), project_id="acme", actor="key:test")
    drain()
    assert [job.result for job in Job.objects.all()] == [3, 3, 3]


def test_tasks_of_django_run_and_are_found(keys):
    make_encrypted("tasks")
    result = tasks.shout.enqueue(WORD)
    drain()
    result.refresh()
    assert str(result.return_value) == f"{WORD.upper()}!"
    assert dumped() == []
    keys(NEW)
    with pytest.raises(encryption.CannotRead):
        result.refresh()


def test_a_requeued_dead_letter_stays_encrypted(keys):
    make_encrypted()
    job = submit(fails=True)
    drain()
    letter = DeadLetter.objects.get(job=job)
    [new] = requeue_dead_letters([letter.pk], actor="user:1").moved.values()
    assert Job.objects.get(pk=new).payload == {"text": WORD, "fails": True}
    letters = requeue_dead_letters([letter.pk], actor="user:1")
    assert not letters.moved
    assert dumped() == []


def test_an_operation_that_goes_on_keeps_its_payload_encrypted_whoever_lets_it_go_on(keys):
    make_encrypted()
    submit(fails=True)
    drain()
    stopped = start_bulk_requeue({"project_id": "acme"}, actor="user:1", payload={"text": WORD})
    cancel_bulk(stopped.pk, actor="user:1")
    browser = person_with("p", "jobs.view_bulkoperation", "jobs.change_bulkoperation")
    browser.post(f"/admin/jobs/bulkoperation/{stopped.pk}/go-on/", {"confirmed": "yes"})
    assert dumped() == []
    run_bulk_chunk(BulkOperation.objects.get(status="running").pk)
    assert Job.objects.get(origin__isnull=False).payload["text"] == WORD


@pytest.mark.django_db
def test_an_idempotency_key_is_compared_with_what_was_encrypted(keys):
    make_encrypted()
    spec = JobSpec(kind="test.note", payload={"text": WORD}, idempotency_key="a")
    first = submit_job(spec, project_id="acme", actor="key:test")
    assert submit_job(spec, project_id="acme", actor="key:test").id == first.id
    api = Api(key_for("acme"))
    other = api.post("/jobs/", {"kind": "test.note", "payload": {"text": "other"}, "idempotency_key": "a"})
    assert error_of(other, 422)["code"] == "idempotency_key_reused"


def test_nobody_has_a_token_of_a_dump_opened(keys):
    """
    Not as a payload, a result, an error, a progress, a log line, a reason, or in an answer that is given again, in a
    project that is not encrypted.
    """
    token = sealing.seal_value(WORD)
    make_project("plain")
    refused = Api(key_for("plain")).post("/jobs/", {"kind": "test.note", "payload": {"text": token}})
    assert error_of(refused, 422)["fields"] == {"payload": ["'queueops!sealed!' cannot be stored"]}

    @handler(kind="test.echo", service="test", payload=Note, idempotent=True, retry="none")
    async def echo(job: RunningJob[Note]) -> Done:
        said = job.payload.text.replace("_", "!", 2)
        job.progress(50, said)
        logging.getLogger("app").warning(said)
        if job.payload.fails:
            raise ProviderError(400, said, code="bad", outcome="answered", details={"was": said})
        return Done(said)

    one = {"kind": "test.note", "payload": {"text": "a"}}
    for _ in range(2):
        batch = {"jobs": [one, {**one, token: 1}], "partial": True}
        answer = Api(key_for("plain")).post("/batches/", batch, **{"Idempotency-Key": "again"})
        assert answer.json()["error_count"] == 1
        assert WORD not in answer.content.decode()
    assert answer["Idempotency-Replayed"] == "true"
    smuggled = token.replace("!", "_", 2)
    for fails in (False, True):
        spec = JobSpec(kind="test.echo", payload={"text": smuggled, "fails": fails})
        submit_job(spec, project_id="plain", actor="key:test")
    drain()
    job = make_job(project="plain")
    Api(key_for("plain")).post(f"/jobs/{job.pk}/cancel/", {"reason": token})
    assert dumped() == []
    shown = [
        *Job.objects.values_list("result", "last_error_message", "progress_message"),
        *JobEvent.objects.values_list("message", "data"),
        *DeadLetter.objects.values_list("error_message", "attempts"),
    ]
    assert "queueops sealed k1" in str(shown)
    assert WORD not in str(shown)


def person_with(name: str, *permissions: str) -> Client:
    one = person(name, is_staff=True)
    for named in permissions:
        app, _, codename = named.partition(".")
        one.user_permissions.add(Permission.objects.get(content_type__app_label=app, codename=codename))
    client = Client()
    client.force_login(one)
    return client


def test_people_see_it_with_the_permission_alone(keys):
    make_encrypted()
    job = submit(fails=True)
    drain()
    letter = DeadLetter.objects.get(job=job)
    views = ["jobs.view_job", "jobs.view_deadletter", "jobs.export_deadletter"]
    pages = [
        f"/admin/jobs/job/{job.pk}/change/",
        f"/admin/jobs/deadletter/{letter.pk}/change/",
        "/admin/jobs/deadletter/",
        f"/api/v1/jobs/{job.pk}/?project=acme",
    ]
    for may in (False, True):
        seer = person_with(f"p{may}", *views, *(["tenancy.decrypt_project"] if may else []))
        for page in pages:
            answer = seer.get(page, headers={"X-Project": "acme"})
            assert answer.status_code == 200, page
            assert (WORD in answer.content.decode()) is may, page
        for form in ("ndjson", "csv"):
            exported = seer.get(f"/admin/jobs/deadletter/export.{form}")
            assert exported.status_code == 200
            assert (WORD in exported.getvalue().decode()) is may
    assert "tenancy.decrypt_project" in ROLES["operator"] - ROLES["viewer"]


def test_a_person_with_a_token_reads_it_with_the_permission_alone(keys):
    make_encrypted()
    batch = make_batch(project="acme", name="nightly")
    job = submit(fails=True)
    Job.objects.filter(pk=job.pk).update(batch=batch)
    drain()
    asked: list[tuple[str, dict[str, Any]]] = [
        ("look_at_job", {"job": str(job.pk)}),
        ("look_at_batch", {"batch": "nightly"}),
        ("causes_of_dead_letters", {}),
    ]
    for role in ("viewer", "operator"):
        owner = person(role, role=role)
        _, secret = issue_token(owner, name="on call", expires_at=timezone.now() + timedelta(days=1), actor="user:1")
        for tool, arguments in asked:
            answer = Assistant(secret).call(tool, project="acme", **arguments)
            assert answer.error == {}, (role, tool)
            assert (WORD in json.dumps(answer.data)) is (role == "operator"), (role, tool)
    for tool, arguments in asked:
        assert WORD in json.dumps(Assistant(key_for("acme")).call(tool, **arguments).data), tool


def test_a_job_whose_key_is_missing_waits_and_is_carried_out_when_it_is_back(keys):
    make_encrypted()
    keys(NEW)
    other = submit()
    keys(OLD)
    job = submit()
    drain(seconds=10)
    job_held = Job.objects.get(pk=other.pk)
    assert (job_held.status in WAITING, job_held.held, job_held.retry_count) == (True, True, 0)
    assert job_held.last_error_code == "payload_key_missing"
    waiting = explain_waiting(job_held)
    assert waiting is not None
    assert "the key k2, which is not among QUEUEOPS_PAYLOAD_KEYS" in str(waiting.text)
    assert Job.objects.get(pk=job.pk).status == JobState.COMPLETED
    Job.objects.filter(pk=other.pk).update(updated_at=Now() - timedelta(days=400))
    assert tend_unserved() == 0
    tend_alerts()
    assert "none becomes a dead letter" in QuotaAlert.objects.get(kind="unserved").message
    found = examine_payload_keys()
    assert (found.verdict, "k2" in found.observation) == (DoctorVerdict.FAIL, True)
    keys(NEW, OLD)
    wait_for(lambda: drained(other), seconds=60)
    assert Job.objects.get(pk=other.pk).result == {"echo": WORD}
    assert not PauseSwitch.objects.exists()


def drained(job: Job) -> bool:
    drain(seconds=5)
    return Job.objects.get(pk=job.pk).status == JobState.COMPLETED


@pytest.mark.django_db
def test_a_missing_key_is_told_of_and_breaks_no_page(keys):
    make_encrypted()
    job = submit()
    keys(NEW)
    told = Api(key_for("acme")).get(f"/jobs/{job.pk}/")
    assert told.status_code == 200
    assert told.json()["payload"] == "(encrypted; the key k1 is not set here)"
    keys()
    refused = Api(key_for("acme")).post("/jobs/", {"kind": "test.note", "payload": {"text": "new"}})
    assert error_of(refused, 503)["code"] == "payload_keys_missing"


@pytest.mark.django_db
def test_what_could_not_be_read_does_not_take_the_place_of_what_was(keys):
    make_encrypted()
    make_schedule(jobs=[{"kind": "test.note", "payload": {"text": WORD}}])
    keys(NEW)
    with pytest.raises(encryption.CannotRead), transaction.atomic():
        Schedule.objects.get().save()
    keys(NEW, OLD)
    assert Schedule.objects.get().jobs[0]["payload"] == {"text": WORD}


def test_the_command_encrypts_what_there_was_and_tells_it(keys):
    make_project("plain")
    do_everything("acme")
    do_everything("plain")
    of_acme = len(dumped())
    make_encrypted()
    assert examine_payload_keys().verdict == DoctorVerdict.WARN
    assert "would be encrypted" in encrypt("--dry-run")
    assert len(dumped()) == of_acme
    assert AuditEntry.objects.filter(action="encrypt_payloads").count() == 0
    told = encrypt()
    assert "of jobs_job" in told
    assert "of jobs_jobevent" in told
    left = [line for line in dumped() if "acme" in line]
    assert left == []
    assert dumped()  # the other project is as it was
    entry = AuditEntry.objects.get(action="encrypt_payloads")
    assert (entry.project_id, entry.moved) == ("acme", sum((entry.after or {})["rows"].values()))
    assert "acme: encrypted: nothing." in encrypt()
    assert examine_payload_keys().verdict == DoctorVerdict.OK
    assert bytes(DoorFilePart.objects.get(project="acme").content).startswith(b"queueops!")
    for job in Job.objects.filter(project="acme", kind="test.note", status=JobState.FAILED):
        assert job.payload == {"text": WORD, "fails": True}
        letter = DeadLetter.objects.get(job=job)
        assert letter.attempts[0]["details"]["was"] == WORD
        assert letter.timeline["events"][-1]["message"] == f"will not have {WORD}"
        assert not Tag.objects.filter(project="acme", name__contains=WORD).exists()


def test_the_command_knows_every_column_that_is_sealed():
    known = {(place.table, column) for place in encrypt_payloads.PLACES for column in (*place.wholes, *place.texts)}
    known |= {(place.table, column) for place in encrypt_payloads.PLACES for column in (*place.parts, *place.contents)}
    sealed = {
        (model._meta.db_table, field.column)
        for model in apps.get_models()
        for field in model._meta.concrete_fields
        if isinstance(field, (encryption.SealedJSONField, encryption.SealedTextField))
    }
    assert sealed - known == {("jobs_bulkoperation", "parameters")}  # hidden with what names no single row


def test_the_command_waits_for_who_may_still_write_as_it_was_set(keys):
    make_project()
    written, let_go = threading.Event(), threading.Event()

    def insert() -> None:
        with transaction.atomic():
            submit()
            written.set()
            let_go.wait(60)
        connection.close()

    writer = threading.Thread(target=insert)
    writer.start()
    assert written.wait(60)
    make_encrypted()
    threading.Timer(1.0, let_go.set).start()
    encrypt()
    writer.join()
    assert dumped() == []


def test_jobs_that_ran_as_it_was_turned_on_are_followed_to_their_end(keys):
    payload = json.dumps({"text": WORD})
    job = make_job(kind="test.note", payload=payload, state=JobState.IN_PROGRESS)
    make_encrypted()

    def run() -> None:
        encrypt()
        connection.close()

    command = threading.Thread(target=run)
    command.start()
    wait_for(lambda: sealing.MARK in "".join(dumped_rows()), what="its payload's turn")
    result = json.dumps({"echo": WORD})  # as an executor writes it that claimed it before
    assert move_jobs("complete", [Move(job.pk, token=job.fencing_token, result=result)]) == {job.pk}
    command.join(60)
    assert not command.is_alive()
    assert dumped() == []
    assert Job.objects.get().result == {"echo": WORD}


def test_a_new_key_takes_the_place_of_an_old_one_in_chunks(keys, monkeypatch):
    monkeypatch.setattr(encrypt_payloads, "SEALED_AT_ONCE", 2)
    make_encrypted()
    do_everything("acme")
    jobs = [submit() for _ in range(5)]
    keys(NEW)
    with pytest.raises(CommandError, match="Put back into QUEUEOPS_PAYLOAD_KEYS: k1"):
        encrypt()
    assert examine_payload_keys().verdict == DoctorVerdict.FAIL
    keys(NEW, OLD)
    done = 0

    def interrupt(*given: Any) -> None:
        nonlocal done
        done += 1
        if done == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        encrypt_payloads.encrypt_project(Project.objects.get(pk="acme"), actor="system:test", tell=interrupt)
    assert AuditEntry.objects.filter(action="encrypt_payloads").exists()  # what it did is told
    encrypt()
    keys(NEW)
    assert Job.objects.get(pk=jobs[0].pk).payload == {"text": WORD}
    assert examine_payload_keys().verdict == DoctorVerdict.OK
    drain()
    assert dumped() == []


@pytest.mark.django_db
def test_a_key_is_missed_of_a_row_that_has_what_another_key_opens(keys):
    make_encrypted()
    job = submit()
    keys(NEW, OLD)
    Job.objects.filter(pk=job.pk).update(last_error_message=sealing.seal_text("of the new key"))
    assert encrypt_payloads.keys_needed(["acme"], ["k1"]) == {"k2": "jobs_job"}
    assert encrypt_payloads.keys_used("acme") == {"k1", "k2"}


def test_the_command_decrypts_a_project_that_is_no_longer_to_be_encrypted(keys):
    make_encrypted()
    do_everything("acme")
    Project.objects.filter(pk="acme").update(encrypted=False)
    assert "decrypted" in encrypt("--project", "acme")
    keys()
    assert Job.objects.filter(kind="test.note")[0].payload["text"] == WORD
    assert not any(sealing.MARK in line for line in dumped_rows())


def dumped_rows() -> list[str]:
    """Of the tables of jobs, but for bulk operations, which stay as they were."""
    tables = ["--table=jobs_*", "--exclude-table=jobs_bulkoperation"]
    program = [str(client_programs() / "pg_dump"), "--data-only", "--enable-row-security", *tables]
    return subprocess.run(
        program, env=backup._environ(), capture_output=True, text=True, check=True
    ).stdout.splitlines()


@pytest.mark.django_db
def test_the_project_page_turns_it_on_and_says_what_hinders(keys, admin_client: Client):
    make_project("acme", anonymous_read=True)
    fields = {"name": "acme", "weight": 1, "max_waiting_jobs": 10, "user_address": "", "encrypted": "on"}
    fields |= {"guard_percent": 20, "guard_first": 50, "guard_over": 200}
    page = "/admin/tenancy/project/acme/change/"
    assert "there is nothing to hide" in admin_client.post(page, {**fields, "anonymous_read": "on"}).content.decode()
    keys()
    assert "set QUEUEOPS_PAYLOAD_KEYS" in admin_client.post(page, fields).content.decode()
    keys(OLD)
    assert admin_client.post(page, fields).status_code == 302
    assert Project.objects.get(pk="acme").encrypted
    assert (AuditEntry.objects.get(action="change_project").after or {})["encrypted"] is True


@pytest.mark.django_db
def test_jobs_of_other_projects_are_stored_as_they_were(keys, django_assert_num_queries):
    make_encrypted()
    make_project("plain")
    submit("plain")
    with django_assert_num_queries(0):
        assert not encryption.is_encrypted("plain")  # its submission has read it, in a statement that was there before
