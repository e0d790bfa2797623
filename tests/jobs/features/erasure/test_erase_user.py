"""Of an erased user nothing is left in a dump of the database or in the archive, and of others everything."""

from __future__ import annotations

import gzip
import json
import subprocess
import zlib
from dataclasses import replace
from datetime import timedelta
from io import StringIO
from pathlib import Path
from typing import Any
from unittest.mock import patch
from uuid import UUID, uuid4

import pytest
from cryptography.fernet import Fernet
from django.contrib.auth.models import User
from django.core.management import CommandError, call_command
from django.db import connection
from django.db.models import F
from django.utils import timezone

from jobs.door import files
from jobs.door.models import DoorBatch
from jobs.features.erasure import erase_user as erasing
from jobs.features.erasure import proof
from jobs.models import (
    Batch,
    BulkOperation,
    DeadLetter,
    IdempotencyRecord,
    Job,
    JobEvent,
    SavedFilter,
    Schedule,
    ServiceBreaker,
    Upload,
    Webhook,
    WebhookDelivery,
)
from jobs.states import JobState
from queueops.audit import trail
from queueops.audit.models import AuditEntry
from queueops.core import sealing
from queueops.core.embedded.host import client_programs
from queueops.core.stores.directory import DirectoryStore
from queueops.site import backup
from queueops.tenancy.models import Project, UserLabel
from queueops.tenancy.secrets.encryption import forget_encrypted
from ratelimits.models import (
    AllowanceOverride,
    Budget,
    BudgetHold,
    BudgetPeriod,
    CallTally,
    Charge,
    Counter,
    Limit,
    LimitOverride,
    QuotaAlert,
    Spend,
    UsageEvent,
    UsageReservation,
    UsageTracking,
)
from ratelimits.money import standings
from tests.factories import (
    KIND,
    PAYLOAD,
    make_batch,
    make_dead_letter,
    make_jobs,
    make_project,
    make_schedule,
    make_usage_month,
)

pytestmark = pytest.mark.django_db(transaction=True)

SECRET = "pa55-of-"  # and whose


def live(name: str, user: UUID, at: str = "acme") -> None:
    """Leave everything behind that a user leaves: what is theirs says SECRET and their name."""
    secret = SECRET + name
    own: dict[str, Any] = {"user_id": user}
    project = make_project(at)
    payload = json.dumps({"text": secret})
    batch = make_batch(name=secret, submitted_by=f"token:1:{user}", project=at, **own)
    [done] = make_jobs(1, state=JobState.COMPLETED, payload=payload, batch=batch, tags=[secret], project=at, **own)
    Job.objects.filter(pk=done.pk).update(
        result={"text": secret}, progress_message=secret, idempotency_key=secret, effect_key=secret,
        coalesce_key=secret, unique_key=f"/{secret}", takes={"taken": True, "model": secret},
    )  # fmt: skip
    wrong: dict[str, Any] = {"error_message": secret, "attempts": [{"error": secret}], "note": secret}
    letter = make_dead_letter(payload=payload, project=at, **wrong, **own)
    DeadLetter.objects.filter(pk=letter.pk).update(timeline={"events": [{"message": secret}]}, remediation=secret)
    Job.objects.filter(pk=letter.job_id).update(last_error_message=secret)
    make_jobs(1, payload=payload, project=at, **own)  # it has not ended
    with connection.cursor() as cursor:
        cursor.execute(
            "INSERT INTO jobs_jobevent (job_id, project_id, user_id, event_type, message, data)"
            " VALUES (%s, %s, %s, 'error', %s, %s)",
            [done.pk, at, user, secret, json.dumps({"traceback": secret, "log": [secret]})],
        )
    webhook = Webhook.objects.get_or_create(project=project, url="https://hook.example")[0]
    [message] = make_jobs(1, payload='{"delivery": 1}', project=at)
    WebhookDelivery.objects.create(webhook=webhook, batch=batch, job=message)
    Job.objects.filter(pk=message.pk).update(last_error_message=secret)
    for answer in ({"id": str(done.pk), "text": secret}, {"user_id": str(user), "text": secret}):
        key = f"{secret} {uuid4()}"
        IdempotencyRecord.objects.create(project=project, key=key, request_digest="x", answer=answer)
    UserLabel.objects.create(project=project, user_id=user, label=secret)
    month = make_usage_month(user, project=at)
    UsageEvent.objects.create(
        event_id=uuid4(), project=project, amount=3, month_year=month.month_year, occurred_at=timezone.now(), **own
    )
    UsageReservation.objects.create(
        project=project, amount=1, month_year=month.month_year, expires_at=timezone.now(), status="expired",
        idempotency_key=secret, remaining=1, **own,
    )  # fmt: skip
    AllowanceOverride.objects.create(project=project, quota=5, note=secret, **own)
    under_way: dict[str, Any] = {"project": project, "provider": "s", "at": timezone.now(), **own}
    Spend.objects.create(job_id=done.pk, token=1, money=3, **under_way)
    for scope, key in (("project", ""), ("each_user", str(user))):
        budget = Budget.objects.get_or_create(project=project, name=scope, scope=scope, amount=10)[0]
        period = BudgetPeriod.objects.get_or_create(
            budget=budget, project=project, key=key, starts_at=standings.begin_of(budget, timezone.now())
        )[0]
        BudgetPeriod.objects.filter(pk=period.pk).update(held=F("held") + 2)
        BudgetHold.objects.create(
            period=period,
            job_id=done.pk,
            token=2,
            amount=2,
            expires_at=timezone.now() + timedelta(hours=1),
            **under_way,
        )
    limit = Limit.objects.first() or Limit.objects.create(
        name="a", service="s", scope="project_user", algorithm="concurrency", capacity=1
    )
    key = f"project:{at}/user:{user}"
    Counter.objects.create(id=f"a:{key}", limit=limit, key=key, blocked_reason=secret)
    LimitOverride.objects.create(limit=limit, key=key, capacity=2, note=secret)
    Charge.objects.create(
        holder=f"job:{done.pk}:1", entries=[[f"a:{key}", "requests", 1, 0]], expires_at=timezone.now()
    )
    CallTally.objects.create(service="s", call_type="read", user=str(user), project=at, calls=1, tokens=1)
    for about in (
        {"kind": "usage", "limit": limit, "subject": f"a:{key}", "message": secret},
        {"kind": "allowance", "subject": f"2026-11/{at}/{user}", "message": f"{secret} {user}"},
        {"kind": "failing", "subject": name, "message": secret, "figures": {"projects": [at], "key": key}},
    ):
        QuotaAlert.objects.create(severity="notice", **about)
    BulkOperation.objects.create(
        action="cancel_jobs", parameters={"filter": {"project_id": at, "user_id": str(user)}}, reason=secret,
        actor="user:1", total=0, status="done", finished_at=timezone.now(),
    )  # fmt: skip
    people = User.objects.get_or_create(username="anna")[0]
    SavedFilter.objects.create(owner=people, screen="job", name=secret, query=f"project={at}&user_id={user}")
    shared = {"project": project, "format": "ndjson", "size_bytes": 1, "lines": 1, "error_count": 0, "errors": []}
    line = json.dumps({"user_id": str(user), "payload": secret})
    for found in ({"sample": [line]}, {"sample": [], "content": zlib.compress(line.encode())}):
        Upload.objects.create(file_name=secret, uploaded_by="user:1", **shared, **found)
    with patch.object(files, "FILE_PART_BYTES", 20):  # their id lies across two parts
        files.store_file([line.encode()], project_id=at, actor="user:1", file_name=secret, purpose="batch")
    told = {"metadata": {"user": str(user), "said": secret}, "errors": [secret]}
    DoorBatch.objects.create(project=project, file_name=secret, complete_by=timezone.now(), **told)


def erase(user: UUID, *options: str, at: str = "acme") -> str:
    out = StringIO()
    call_command("erase_user", at, str(user), *options, stdout=out)
    return out.getvalue()


def dumped() -> list[str]:
    """The lines that pg_dump writes of everything."""
    program = [str(client_programs() / "pg_dump"), "--data-only", "--enable-row-security"]
    done = subprocess.run(program, env=backup._environ(), capture_output=True, text=True, check=True)
    return str(done.stdout).splitlines()


def of(name: str, user: UUID) -> list[str]:
    return sorted(line for line in dumped() if SECRET + name in line or str(user) in line)


def age() -> None:
    with connection.cursor() as cursor:
        cursor.execute("SET session_replication_role = replica")
        cursor.execute(
            "UPDATE jobs_job SET created_at = created_at - %s::interval, finished_at = finished_at - %s::interval"
            " WHERE finished_at IS NOT NULL",
            ["40 days", "40 days"],
        )
        cursor.execute("UPDATE jobs_deadletter SET resolution = 'discarded'")
        cursor.execute("SET session_replication_role = origin")


@pytest.mark.parametrize("kept", [True, False], ids=["in the database", "in the archive"])
def test_nothing_is_left_of_an_erased_user_and_everything_of_another(tmp_path: Path, kept: bool):
    user, other = uuid4(), uuid4()
    for name, who in (("eva", user), ("ada", other)):
        live(name, who)
    ServiceBreaker.objects.create(service="s", project_id="acme", last_error=SECRET + "eva")
    trail.record(actor=f"token:1:{user}", action="submit", target="x")
    trail.record(
        actor="user:1", action="set_override", target="limit a", before={"key": f"user:{user}"}, after={"n": 1}
    )
    archive = tmp_path / "archive"
    archive.mkdir()
    if not kept:
        age()
        call_command("archive", "--to", str(archive), stdout=StringIO())
    before, months, jobs = of("ada", other), UsageTracking.objects.count(), Job.objects.count()
    assert len(of("eva", user)) > 20
    report = tmp_path / "report.json"
    said = erase(user, "--yes", "--cancel", "--prove", "--report", str(report), "--archive", str(archive))

    left = of("eva", user)
    assert [line for line in left if SECRET in line] == []
    assert len(left) == 2  # the trail is append-only
    assert of("ada", other) == before
    assert (UsageTracking.objects.count(), Job.objects.count()) == (months, jobs)
    packed = b"".join(gzip.decompress(path.read_bytes()) for path in archive.rglob("*.gz"))
    assert SECRET.encode() + b"eva" not in packed
    assert str(user).encode() not in packed
    assert (SECRET.encode() + b"ada" in packed) is not kept
    if not kept:
        call_command("unarchive", "--from", str(archive), "--verify", stdout=StringIO())
    wrote = json.loads(report.read_text())
    assert wrote["user"] == str(user)
    whole = BudgetPeriod.objects.get(key="")  # what the erased one's call held is spent, and held no more
    assert (whole.held, whole.spent) == (2, 2)
    assert wrote["rows_with_the_id"] == {}
    assert wrote["audit_entries"] == 2
    assert [(one["action"], one["fields"]) for one in wrote["untouched"]] == [
        ("submit", ["actor"]),
        ("set_override", ["before"]),
    ]
    assert all("append-only" in one["why"] for one in wrote["untouched"])
    assert "set_override: in before" in said
    assert wrote["erased"]["usage events"] == 1
    assert wrote["called_now"] in said
    entry = AuditEntry.objects.get(action="erase_user")
    assert (entry.target, entry.project_id) == (f"user {wrote['called_now']}", "acme")
    assert "There is nothing." in erase(user)


def test_what_another_project_has_of_the_same_user_stays():
    user = uuid4()
    live("eva", user)
    live("ada", user, at="beta")
    limit = Limit.objects.get()
    Counter.objects.create(id=f"a:user:{user}", limit=limit, key=f"user:{user}")
    make_project("gamma")  # it has never had a job of the user's
    LimitOverride.objects.create(limit=limit, key=f"project:gamma/user:{user}", capacity=3)
    CallTally.objects.create(service="s", call_type="read", user=str(user), project="gamma", calls=1, tokens=1)

    def theirs() -> list[str]:
        return [line for line in of("ada", user) if SECRET + "eva" not in line and "acme" not in line]

    before = theirs()
    assert len(before) > 20
    erase(user, "--yes", "--cancel")
    assert [line for line in of("eva", user) if SECRET + "eva" in line or "acme" in line] == []
    assert theirs() == before
    erase(user, "--yes", "--cancel", at="beta")
    assert [line for line in of("ada", user) if "gamma" not in line] == []
    assert len(of("ada", user)) == 2


def test_what_is_sealed_is_looked_into(settings):
    """Otherwise a schedule of an encrypted project would go on submitting jobs of the erased user."""
    user, other = str(uuid4()), str(uuid4())
    settings.QUEUEOPS = replace(settings.QUEUEOPS, payload_keys=(("k1", Fernet.generate_key().decode()),))
    project = make_project()
    Project.objects.filter(pk="acme").update(encrypted=True)
    forget_encrypted()
    ours, theirs = ({"kind": KIND, "payload": json.loads(PAYLOAD), "user_id": one} for one in (user, other))
    make_schedule("theirs alone", jobs=[ours])
    make_schedule("shared", jobs=[ours, theirs])
    job, _ = make_jobs(2, state=JobState.COMPLETED, user_id=user)
    for named in ({"user_id": user}, {"id": str(job.pk)}, {"user_id": other}):
        answer = sealing.seal_value(named)
        IdempotencyRecord.objects.create(project=project, key=str(named), request_digest="x", answer=answer)
    BulkOperation.objects.create(
        action="requeue", parameters={"payload": sealing.seal_value({"of": user})}, total=0, finished_at=timezone.now()
    )
    erase(UUID(user), "--yes")
    assert [one.jobs for one in Schedule.objects.all()] == [[theirs]]
    assert [one.key for one in IdempotencyRecord.objects.all()] == [str({"user_id": other})]
    assert BulkOperation.objects.get().parameters == {}
    assert not Schedule.objects.filter(jobs__contains=[{"user_id": other}]).exists(), "it is sealed as before"
    make_schedule("again", jobs=[ours])
    settings.QUEUEOPS = replace(settings.QUEUEOPS, payload_keys=(("k2", Fernet.generate_key().decode()),))
    with pytest.raises(CommandError, match="encrypted with the key k1"):
        erase(UUID(user), "--yes")


@pytest.mark.parametrize("column", ["sample", "errors", "metadata"])
def test_what_cannot_be_opened_is_told_and_not_taken_for_somebody_elses(settings, column: str):
    user = str(uuid4())
    settings.QUEUEOPS = replace(settings.QUEUEOPS, payload_keys=(("k1", Fernet.generate_key().decode()),))
    project = make_project()
    Project.objects.filter(pk="acme").update(encrypted=True)
    forget_encrypted()
    named, kept = [{"message": f"of {user}"}], settings.QUEUEOPS
    if column == "metadata":
        told = {"door": "openai", "endpoint": "/v1/x", "window": "24h", "complete_by": timezone.now()}
        one: Any = DoorBatch.objects.create(project=project, metadata=named, digest="d", asked="d", **told)
    else:  # it was submitted, so its file is gone
        told = {"sample": [], "errors": [], "size_bytes": 1, "lines": 1, "error_count": 1, "format": "ndjson"}
        one = Upload.objects.create(project=project, file_name="x", uploaded_by="user:1", **{**told, column: named})
    settings.QUEUEOPS = replace(kept, payload_keys=(("k2", Fernet.generate_key().decode()),))
    with pytest.raises(CommandError, match="encrypted with the key k1"):
        erase(UUID(user), "--yes")
    settings.QUEUEOPS = kept
    erase(UUID(user), "--yes")
    left = type(one).objects.filter(pk=one.pk).first()
    assert left is None or left.metadata is None


def test_without_a_yes_it_counts_and_with_unfinished_jobs_it_refuses():
    user = uuid4()
    live("eva", user)
    before = of("eva", user)
    assert "4 jobs, 1 batches, 1 labels" in erase(user)
    with pytest.raises(CommandError, match="2 jobs of this user have not ended"):
        erase(user, "--yes")
    assert of("eva", user) == before


def test_a_report_that_cannot_be_written_is_told_before_anything_is_erased(tmp_path: Path):
    user = uuid4()
    live("eva", user)
    before = of("eva", user)
    (tmp_path / "there").write_text("another's")
    for name, told in (("there", "exists. Name a new file"), ("there/report", "Not a directory. Nothing was erased.")):
        with pytest.raises(CommandError, match=told):
            erase(user, "--yes", "--cancel", "--report", str(tmp_path / name))
    with pytest.raises(CommandError, match="have not ended"):
        erase(user, "--yes", "--report", str(tmp_path / "report"))
    assert of("eva", user) == before
    assert [(path.name, path.read_text()) for path in tmp_path.iterdir()] == [("there", "another's")]


def test_an_erasure_that_was_cut_off_goes_on(monkeypatch):
    user = uuid4()
    live("eva", user)
    with monkeypatch.context() as cut:
        cut.setattr(erasing, "ERASED_AT_ONCE", 1)
        cut.setattr(erasing, "_erase_rows", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            erase(user, "--yes", "--cancel")
    assert not JobEvent.objects.filter(user_id=user).exists()
    erase(user, "--yes")
    assert of("eva", user) == []


def test_an_erasure_of_the_archive_that_was_cut_off_leaves_no_old_file(tmp_path: Path, monkeypatch):
    user = uuid4()
    live("eva", user)
    age()
    call_command("archive", "--to", str(tmp_path), stdout=StringIO())
    with monkeypatch.context() as cut:
        cut.setattr(DirectoryStore, "remove", lambda *_: 1 / 0)  # the manifest names the new file, and the old is there
        with pytest.raises(ZeroDivisionError):
            erase(user, "--yes", "--cancel", "--archive", str(tmp_path))
    [day] = {path.parent for path in tmp_path.rglob("jobs-*+1.ndjson.gz")}
    (day / "jobs-0009.ndjson.gz.partial").touch()
    elsewhere = tmp_path / "beta" / day.name / "jobs-0001.ndjson.gz.partial"
    elsewhere.parent.mkdir(parents=True)
    elsewhere.touch()
    erase(user, "--yes", "--archive", str(tmp_path))
    packed = b"".join(gzip.decompress(path.read_bytes()) for path in tmp_path.rglob("*.gz"))
    assert SECRET.encode() + b"eva" not in packed
    assert list(tmp_path.rglob("*.partial")) == [elsewhere]
    call_command("unarchive", "--from", str(tmp_path), "--verify", stdout=StringIO())


def test_archived_files_without_their_manifest_are_not_taken_for_rests(tmp_path: Path):
    user = uuid4()
    live("eva", user)
    age()
    call_command("archive", "--to", str(tmp_path), stdout=StringIO())
    files = list(tmp_path.rglob("*.gz"))
    for manifest in tmp_path.rglob("manifest.json"):
        manifest.rename(tmp_path / manifest.parent.name)
    with pytest.raises(CommandError, match="named by no manifest"):
        erase(user, "--yes", "--cancel", "--archive", str(tmp_path))
    assert list(tmp_path.rglob("*.gz")) == files


def test_rows_that_come_meanwhile_are_told_of(monkeypatch):
    user, erased = uuid4(), erasing._erase_rows

    def late(*arguments: Any) -> Any:
        make_jobs(1, user_id=user)
        return erased(*arguments)

    make_project()
    monkeypatch.setattr(erasing, "_erase_rows", late)
    with pytest.raises(CommandError, match="have come: 1 jobs"):
        erase(user, "--yes")


def test_an_archive_that_is_not_named_is_not_forgotten(tmp_path: Path):
    make_project()
    call_command("archive", "--to", str(tmp_path), stdout=StringIO())
    with pytest.raises(CommandError, match="There is an archive"):
        erase(uuid4(), "--yes")


def test_what_cannot_be_done_is_said(tmp_path: Path):
    with pytest.raises(CommandError, match="no project"):
        erase(uuid4())
    make_project()
    with pytest.raises(CommandError, match="it is no directory"):
        erase(uuid4(), "--yes", "--archive", str(tmp_path / "none"))
    (tmp_path / "report").touch()
    with pytest.raises(CommandError, match="exists"):
        erase(uuid4(), "--yes", "--report", str(tmp_path / "report"))


def test_the_users_batches_are_all_that_a_shared_batch_is_not():
    user = uuid4()
    shared = make_batch(name="everybody's")
    make_jobs(1, state=JobState.CANCELLED, batch=shared, user_id=user)
    erase(user, "--yes")
    assert Batch.objects.get().name == "everybody's"


def test_the_proof_looks_into_the_archive(tmp_path: Path, monkeypatch):
    user = uuid4()
    live("eva", user)
    age()
    call_command("archive", "--to", str(tmp_path), stdout=StringIO())
    assert proof.find_traces("acme", user, archive=DirectoryStore(tmp_path))["archived rows"] >= 2
    monkeypatch.setattr(erasing, "erase_from_archive", lambda *_, **__: {})
    with pytest.raises(CommandError, match=r"The user's id is left: \d+ in archived rows"):
        erase(user, "--yes", "--cancel", "--prove", "--archive", str(tmp_path))
