"""A backup holds what was there, and a restore brings back that and nothing runs; whatever is wrong is said."""

from __future__ import annotations

import json
import shutil
from io import StringIO
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from django.core.management import CommandError, call_command
from django.db import connection
from django.db.models.functions import Now

from jobs.models import Epoch, Job, JobEvent, PauseSwitch
from jobs.services.claim.claim import claim_jobs
from jobs.services.claim.fair_share import ClassTurns
from jobs.services.operate.epochs import RESTORED_REASON
from queueops.audit.models import AuditEntry
from queueops.core.embedded.cluster import SUPERUSER
from queueops.site import backup
from queueops.site.backup import DUMP, MANIFEST
from queueops.tenancy import checks
from queueops.tenancy.scope import acting_for
from tests.factories import make_jobs
from tests.support.ordinary_login import LOGIN, Administrator
from tests.support.processes import manage

COUNT = 300
OTHER = "restored"
EVIL = "\\.\n\\N\tCOPY public.jobs_job (id) FROM stdin;\n\u2028"  # what a dump writes with care

FOREIGN_KEYS = "SELECT count(*) FROM pg_constraint WHERE contype = 'f' AND connamespace = 'public'::regnamespace"


@pytest.fixture
def backed_up(migrated: None, tmp_path: Path) -> Path:
    """A backup of some jobs, one of which was running, made by the login role."""
    make_jobs(COUNT, project="acme", payload=json.dumps({"cells": EVIL}))
    make_jobs(1, project="globex")
    assert len(claim_jobs(uuid4(), wanted=1, lease_seconds=30, turns=ClassTurns())) == 1
    said = StringIO()
    directory: Path = tmp_path / "backup"
    call_command("backup", directory, stdout=said)
    assert "read back whole" in said.getvalue()
    return directory


@pytest.fixture
def empty(backed_up: Path, fresh_server: Any, administrator: Administrator) -> Any:
    """Connected to an empty database of the same login role."""
    connection.close()
    administrator(f'CREATE DATABASE {OTHER} OWNER "{LOGIN}"')
    connection.settings_dict["NAME"] = OTHER
    yield
    connection.close()
    administrator(f"DROP DATABASE {OTHER} WITH (FORCE)")


def ask(statement: str) -> Any:
    with connection.cursor() as cursor:
        cursor.execute(statement)
        return cursor.fetchall()


def everything() -> tuple[object, ...]:
    columns = [column.attname for column in Job._meta.fields if column.attname != "lease_expires_at"]  # it ends
    jobs, events = Job.objects.order_by("pk").values(*columns), JobEvent.objects.order_by("pk").values()
    return list(jobs), list(events), ask(FOREIGN_KEYS)


@pytest.mark.proves("P4", "P5")
def test_what_is_restored_is_what_was_there_with_every_foreign_key_and_nothing_runs(backed_up, empty):
    connection.settings_dict["NAME"] = "ours"
    before, epoch = everything(), str(Epoch.objects.get())
    connection.close()
    connection.settings_dict["NAME"] = OTHER
    said = StringIO()
    call_command("restore", backed_up, stdout=said)
    assert "1 jobs were running" in said.getvalue()
    assert everything() == before
    assert str(Epoch.objects.get()) != epoch
    assert not Job.objects.filter(lease_expires_at__gt=Now()).exists(), "somebody waits for a dead executor"
    assert Job.objects.filter(payload={"cells": EVIL}).count() == COUNT
    assert checks.unsafe() == []
    with acting_for("globex"):
        assert Job.objects.count() == 1
    assert PauseSwitch.objects.get(scope="global").reason == RESTORED_REASON
    assert claim_jobs(uuid4(), wanted=10, lease_seconds=30, turns=ClassTurns()) == []
    assert AuditEntry.objects.get(action="restore", after__under_way=1).moved > COUNT
    call_command("migrate", verbosity=0)
    make_jobs(1, project="acme")  # its numbers go on behind what was restored


def test_work_that_goes_on_while_a_backup_is_taken_is_in_it_whole_or_not_at_all(migrated, tmp_path, monkeypatch):
    make_jobs(COUNT, project="acme")
    counted = backup._rows

    def count_and_go_on(cursor: Any) -> dict[str, int]:
        rows = counted(cursor)
        make_jobs(COUNT, project="acme")
        return rows

    monkeypatch.setattr(backup, "_rows", count_and_go_on)
    manifest = backup.back_up(tmp_path / "backup", lambda _: None)
    assert (manifest.rows["jobs_job"], Job.objects.count()) == (COUNT, 2 * COUNT)


def refused(command: str, directory: object) -> str:
    with pytest.raises(CommandError) as refusal:
        call_command(command, directory, stdout=StringIO())
    return str(refusal.value)


def test_nothing_that_is_there_is_written_over(backed_up):
    held = (backed_up / DUMP).read_bytes()
    assert {path.stat().st_mode & 0o777 for path in backed_up.iterdir()} == {0o600}, "files are copied out of it"
    assert refused("backup", backed_up) == f"{backed_up} exists. Name a new directory: a backup is never overwritten."
    assert (backed_up / DUMP).read_bytes() == held
    assert "Restore into an empty one" in refused("restore", backed_up)
    assert Job.objects.count() == COUNT + 1


def test_a_backup_that_is_damaged_is_refused_before_anything_is_restored(backed_up, empty, tmp_path):
    copy = tmp_path / "damaged"

    def damaged(name: str, content: bytes) -> object:
        shutil.rmtree(copy, ignore_errors=True)
        shutil.copytree(backed_up, copy)
        (copy / name).write_bytes(content)
        return copy

    dump = bytearray((backed_up / DUMP).read_bytes())
    dump[len(dump) // 2] ^= 1
    newer = json.loads((backed_up / MANIFEST).read_text()) | {"format": 2}
    assert "is damaged" in refused("restore", damaged(DUMP, bytes(dump)))
    assert "is damaged" in refused("restore", damaged(DUMP, bytes(dump[:-1])))
    assert "is damaged" in refused("restore", damaged(MANIFEST, b"[]"))
    assert "is damaged" in refused("restore", damaged(MANIFEST, b'{"format": 1}'))
    assert "says format 2; this version restores format 1" in refused(
        "restore", damaged(MANIFEST, json.dumps(newer).encode())
    )
    assert "it has no manifest.json" in refused("restore", tmp_path)
    assert "it has no manifest.json" in refused("restore", tmp_path / "nowhere")
    assert ask("SELECT FROM pg_class WHERE relnamespace = 'public'::regnamespace") == []


def test_a_restore_that_fails_half_way_leaves_the_database_empty(backed_up, empty, monkeypatch):
    monkeypatch.setattr(backup, "PAUSE", "SELECT 1 / 0;")
    assert "is empty as before" in (told := refused("restore", backed_up))
    assert "division by zero" in told
    assert ask("SELECT FROM pg_class WHERE relnamespace = 'public'::regnamespace") == []
    monkeypatch.undo()
    call_command("restore", backed_up, stdout=StringIO())


def test_a_dump_that_lacks_a_row_is_no_backup(migrated, tmp_path, monkeypatch):
    make_jobs(2, project="acme")
    counted = backup._rows
    monkeypatch.setattr(backup, "_rows", lambda cursor: (rows := counted(cursor)) | {"jobs_job": rows["jobs_job"] + 1})
    assert "jobs_job: 3 were there, 2 are here" in refused("backup", tmp_path / "backup")
    assert not (tmp_path / "backup").exists()


def test_what_cannot_be_written_is_said(migrated, tmp_path):
    (tmp_path / "file").write_text("")
    assert "Not a directory" in refused("backup", tmp_path / "file" / "backup")


def test_the_commands_stand_by_themselves(backed_up, fresh_server, administrator, tmp_path):
    """As an operator runs them: processes that start with nothing but the environment."""
    administrator(f"CREATE DATABASE {OTHER}")
    url = f"postgresql://{SUPERUSER}@/{{}}?host={fresh_server.socket_dir}"
    try:
        for command, directory, database, told in (
            ("backup", tmp_path / "again", "ours", "read back whole"),
            ("restore", tmp_path / "again", OTHER, "Everything is paused."),
            ("restore", tmp_path / "again", OTHER, "CommandError: The database has"),
        ):
            with manage(command, str(directory), environ={"DATABASE_URL": url.format(database)}) as process:
                process.wait_for_output(told, seconds=60)
    finally:
        administrator(f"DROP DATABASE {OTHER} WITH (FORCE)")
