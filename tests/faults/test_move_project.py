"""A project moves whole to another installation or stays whole where it is, whenever the move is killed."""

from __future__ import annotations

import json
import os
import shutil
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from datetime import timedelta
from io import StringIO
from typing import Any
from uuid import UUID, uuid4

import psycopg
import pytest
from cryptography.fernet import Fernet
from django.core.management import CommandError, call_command
from django.db import connection, transaction
from django.test import Client
from django.utils import timezone

from jobs.features.encryption import encrypt_payloads
from jobs.features.results.garbage_collect import sweep_results
from jobs.features.results.read import ResultMissing, whole_result
from jobs.features.results.reference import new_name, stored_in
from jobs.features.results.store import put_content, result_store
from jobs.features.watches.paused import watch_paused
from jobs.features.webhooks.tell import WebhooksDuty
from jobs.features.windows import windows
from jobs.models import (
    Batch,
    BulkOperation,
    DeadLetter,
    Executor,
    IdempotencyRecord,
    Job,
    JobCount,
    JobEvent,
    PauseSwitch,
    RetryPolicy,
    Webhook,
    WebhookDelivery,
    WebhookJob,
)
from jobs.services.claim.claim import claim_jobs
from jobs.services.claim.fair_share import ClassTurns
from jobs.services.claim.restore_detector import RestoreDetector
from jobs.services.operate.bulk_actions import ACTIONS
from jobs.services.operate.dead_letters import (
    RequeueOptions,
    carry_out_requeue,
    discard_dead_letters,
    requeue_dead_letters,
)
from jobs.services.operate.job_actions import cancel_jobs, change_priority
from jobs.services.operate.pauses import pause_scope, resume_scope
from jobs.services.submit.submit import refuse_when_full
from jobs.states import JobState, Priority
from queueops.audit import trail
from queueops.audit.models import AuditEntry
from queueops.core.sealing import MARK, seal_json, seal_text
from queueops.core.stores.store import Store
from queueops.site.moving import copying, move
from queueops.site.moving.tables import SORTS, STAYS
from queueops.tenancy.issuing import issue_key
from queueops.tenancy.models import (
    Credential,
    Issuer,
    ProducerKey,
    Project,
    ProjectMove,
    Scope,
    UserLabel,
    digest_of,
)
from queueops.tenancy.moves import ProjectMoved, ProjectMoving
from queueops.tenancy.secrets import credentials
from queueops.tenancy.secrets.signing import open_signing_secret
from ratelimits.limits import catalogue
from ratelimits.limits.overrides import set_override
from ratelimits.models import (
    Budget,
    Counter,
    Limit,
    LimitOverride,
    QuotaAlert,
    UsageEvent,
    UsageReservation,
    UsageTracking,
)
from ratelimits.money.save_budget import create_budget
from ratelimits.tuning.concurrency_caps import set_at_once
from ratelimits.usage import ingest as ingest_service
from ratelimits.usage.api import usage as usage_views
from ratelimits.usage.ingest import Reported, ingest
from ratelimits.usage.release import cancel
from ratelimits.usage.reserve import reserve
from tests.factories import (
    SIGNING_SECRET,
    make_allowance,
    make_batch,
    make_dead_letter,
    make_job,
    make_jobs,
    make_project,
    make_usage_event,
    make_webhook,
)
from tests.faults.forks import killed
from tests.security.people import person
from tests.support.executing import claimed
from tests.support.flow import count_all
from tests.support.processes import database_url, wait_for

pytestmark = pytest.mark.django_db(transaction=True)

OTHER = "other_cell"
ADDRESS = "https://cell-two.example"
USER = uuid4()
JOB = {"kind": "http.request", "payload": {"method": "GET", "url": "http://127.0.0.1:9/"}}
HERE_KEY, THERE_KEY = Fernet.generate_key().decode(), Fernet.generate_key().decode()


@contextmanager
def at(name: str) -> Iterator[None]:
    """Have the connection of this process go to another database of the server."""
    before = connection.settings_dict["NAME"]
    connection.close()
    connection.settings_dict["NAME"] = name
    catalogue.forget()  # it has limits of its own
    try:
        yield
    finally:
        connection.close()
        connection.settings_dict["NAME"] = before
        catalogue.forget()


@pytest.fixture(autouse=True)
def limits_of_this_test() -> None:
    """Those that another test had are gone."""
    catalogue.forget()


@pytest.fixture(scope="module")
def empty_cell(django_db_setup: None, django_db_blocker: Any) -> Iterator[str]:
    """Another installation's database, migrated; its name."""
    with django_db_blocker.unblock():
        name = f"{connection.settings_dict['NAME']}_{OTHER}"
        with psycopg.connect(url_of("postgres"), autocommit=True) as administrator:
            administrator.execute(f'CREATE DATABASE "{name}"')
            with at(name):
                call_command("migrate", verbosity=0)
            yield name
            administrator.execute(f'DROP DATABASE "{name}" WITH (FORCE)')


def url_of(name: str) -> str:
    with at(name):
        return database_url()


@pytest.fixture
def cell(empty_cell: str, settings: Any) -> Iterator[str]:
    """The URL of another installation's database, with one limit, and its keys known here."""
    settings.QUEUEOPS = replace(settings.QUEUEOPS, credential_keys=(HERE_KEY,), target_credential_keys=(THERE_KEY,))
    with at(empty_cell):
        Limit.objects.create(name="other", service="other", capacity=1)  # so that numbers are others than here
        make_limit()
    yield empty_cell
    with at(empty_cell), connection.cursor() as cursor:
        tables = {*(sort.table for sort in SORTS), "ratelimits_limit", "jobs_retrypolicy"}
        cursor.execute(f"TRUNCATE {', '.join(sorted(tables))} CASCADE")


def make_limit() -> Limit:
    return Limit.objects.get_or_create(
        name="http", defaults={"service": "http", "capacity": 100, "window_seconds": 60}
    )[0]


@pytest.fixture
def acme(cell: str) -> str:
    """A project with rows of every sort, beside another; the text of its key."""
    limit = make_limit()
    project = make_project("acme", weight=2.0)
    _, secret = ProducerKey.issue(project, name="nightly", scopes=list(Scope.values))
    Issuer.objects.create(
        project=project,
        name="app",
        issuer="https://app.example",
        audiences=["queueops"],
        secret=credentials.seal({"hs256": "x" * 40}),
    )
    credential = Credential.objects.create(
        name="key",
        service="http",
        secret=credentials.seal({"api_key": "s3cret"}),
        hosts=["api.example.org"],
        placement="header",
        placement_name="X-Key",
    )
    credential.projects.add(project)
    UserLabel.objects.create(project=project, user_id=USER, label="Ann\t\\N")
    make_webhook(project)
    batch = make_batch(name="spring")
    for state in (JobState.QUEUED, JobState.RATE_LIMITED, JobState.RETRIED, JobState.COMPLETED, JobState.CANCELLED):
        make_jobs(3, state=state, batch=batch, user_id=USER, tags=["a", "b"], payload=json.dumps(JOB["payload"]))
    make_jobs(1)
    make_dead_letter()
    pause_scope("batch", str(batch.pk), actor="user:1")
    IdempotencyRecord.objects.create(project=project, key="k", request_digest="d", status_code=201, answer={"a": 1})
    make_allowance()
    make_usage_event(USER, amount=7)
    LimitOverride.objects.create(limit=limit, key="project:acme", capacity=5)
    Counter.objects.create(id=f"{limit.pk:08d}:project:acme", limit=limit, key="project:acme", state={"a": 1.5})
    make_jobs(2, project="globex")
    return secret


def run(cell: str, *options: str) -> str:
    said = StringIO()
    call_command("move_project", "acme", "--to", url_of(cell), "--address", ADDRESS, *options, stdout=said)
    return said.getvalue()


def refused(cell: str, *options: str) -> str:
    with pytest.raises(CommandError) as refusal:
        run(cell, *options)
    return str(refusal.value)


def rows() -> dict[str, Any]:
    columns = [field.attname for field in Job._meta.fields if field.attname not in {"pool", "held", "fencing_token"}]
    events = ("job_id", "event_type", "from_status", "to_status", "data", "created_at")
    return {
        "jobs": list(Job.objects.filter(project_id="acme").order_by("pk").values(*columns)),
        "events": list(JobEvent.objects.filter(project_id="acme").order_by("id").values_list(*events)),
        "letters": list(DeadLetter.objects.filter(project_id="acme").values()),
        "labels": list(UserLabel.objects.values_list("user_id", "label")),
        "usage": list(UsageTracking.objects.values_list("user_id", "used", "overage")),
    }


def claimable() -> int:
    return len(claim_jobs(uuid4(), wanted=100, lease_seconds=30, turns=ClassTurns()))


def is_empty(cell: str) -> bool:
    with at(cell), connection.cursor() as cursor:
        cursor.execute("SELECT count(*) FROM tenancy_project WHERE id = 'acme'")
        [(projects,)] = cursor.fetchall()
        return not projects and not Job.objects.exists() and not JobEvent.objects.exists()


def test_a_project_is_there_as_it_was_here_and_its_key_goes_on_working(cell, acme, settings):
    before = rows()
    counts = JobCount.objects.filter(project_id="acme").values_list("batch_id").count()
    said = run(cell, "--yes")
    assert "acme has moved" in said
    answer = Client(headers={"Authorization": f"Bearer {acme}"}).post(
        "/api/v1/jobs/", JOB, content_type="application/json"
    )
    assert (answer.status_code, answer.json()["error"]["code"]) == (410, "project_moved")
    assert answer.json()["error"]["details"] == {"project": "acme", "address": ADDRESS}
    assert Client(headers={"Authorization": f"Bearer {acme}"}).get("/api/v1/jobs/").status_code == 410
    operator = Client()
    operator.force_login(person("op", is_superuser=True))
    assert operator.get("/api/v1/jobs/?project=acme").status_code == 410
    with pytest.raises(ProjectMoved):
        resume_scope("project", "acme", actor="user:1")
    assert claimable() == 2, "those of the other project alone"
    assert AuditEntry.objects.filter(action="move_project", project_id="acme").exists()
    PauseSwitch.objects.update(created_at=timezone.now() - timedelta(days=1))
    watch_paused()
    assert not QuotaAlert.objects.filter(kind="forgotten").exists()
    with at(cell):
        settings.QUEUEOPS = replace(settings.QUEUEOPS, credential_keys=(THERE_KEY,))
        assert rows() == before
        assert JobCount.objects.filter(project_id="acme").count() == counts
        assert Project.objects.get().weight == 2.0
        moved = credentials.open_named("key")
        assert (moved.secret, moved.hosts) == ({"api_key": "s3cret"}, ("api.example.org",))
        assert (moved.placement, moved.placement_name) == ("header", "X-Key")
        assert credentials.unseal(bytes(Issuer.objects.get().secret or b"")) == {"hs256": "x" * 40}
        assert open_signing_secret(Webhook.objects.get()) == SIGNING_SECRET
        assert LimitOverride.objects.get(limit__name="http").capacity == 5
        counter = Counter.objects.get()
        assert (counter.pk, counter.state) == (f"{Limit.objects.get(name='http').pk:08d}:project:acme", {"a": 1.5})
        assert PauseSwitch.objects.get().scope == "batch"
        assert AuditEntry.objects.filter(action="move_project", project_id="acme").exists()
        answer = Client(headers={"Authorization": f"Bearer {acme}"}).post(
            "/api/v1/jobs/", JOB, content_type="application/json"
        )
        assert answer.status_code == 201
        assert claimable() == 2, "that one and the one without a batch: the batch is paused there, too"
        resume_scope("batch", PauseSwitch.objects.get().key, actor="user:1")
        assert claimable() >= 3
    assert "nothing left to do" in run(cell, "--yes")
    assert "has moved, and is there" in refused(cell, "--abort")


def test_a_project_that_comes_back_is_not_taken_for_a_database_that_was_put_back(cell, acme):
    Job.objects.filter(status=JobState.RETRIED).update(first_attempt_at=timezone.now())
    known = Job.objects.filter(status=JobState.RETRIED)[0]
    with at(cell), connection.cursor() as cursor:
        cursor.execute("SELECT setval('jobs_fencing_token', 500)")
        witness = RestoreDetector(uuid4())
        witness.note([claimed("http.request")._replace(id=known.pk, token=500)])
        witness.refuse_the_past()
    run(cell, "--yes")
    with at(cell):
        witness.refuse_the_past()
        assert not PauseSwitch.objects.filter(scope="global").exists()
        assert set(Job.objects.filter(first_attempt_at=None).values_list("fencing_token", flat=True)) == {0}


def test_what_webhooks_hear_of_goes_along_and_is_told_there_alone(cell, acme):
    """Also what ended so lately that nobody has noted it; and what was copied of the log is told no second time."""
    count_all()
    Webhook.objects.update(hears_jobs=True)
    told, waits = make_job(state=JobState.COMPLETED), make_job(state=JobState.CANCELLED)
    count_all()
    message = uuid4()
    WebhookJob.objects.filter(job_id=told.pk).update(delivery_id=message)
    late = make_job(state=JobState.COMPLETED)
    run(cell, "--yes")
    noted = {(told.pk, message), (waits.pk, None), (late.pk, None)}
    assert set(WebhookJob.objects.values_list("job_id", "delivery_id")) == noted
    WebhooksDuty().do()
    assert not WebhookDelivery.objects.exists()
    with at(cell):
        Webhook.objects.update(kinds=[])
        count_all()
        assert set(WebhookJob.objects.values_list("job_id", "delivery_id")) == noted
        WebhooksDuty().do()
        assert WebhookDelivery.objects.get().jobs_told == 2


@pytest.mark.usefixtures("acme")
def test_results_in_the_store_are_told_of_and_kept_until_they_are_copied(cell, settings, tmp_path, monkeypatch):
    def use_store(name: str) -> Store:
        settings.QUEUEOPS = replace(settings.QUEUEOPS, result_store=str(tmp_path / name))
        store = result_store()
        assert store is not None
        return store

    here = use_store("here")
    job = make_job(state=JobState.COMPLETED)
    stored = put_content(here, new_name("acme", job.pk, 1), b'"a large result"', sealed=False)
    Job.objects.filter(pk=job.pk).update(result=str(stored))
    words = "Of these jobs 1 have results in the result store, 16 bytes"
    assert words in run(cell)
    said = StringIO()
    call_command("move_project", "acme", "--to", url_of(cell), "--yes", stdout=said)  # without an address to tell
    assert words in said.getvalue()
    key = Fernet.generate_key().decode()
    settings.QUEUEOPS = replace(settings.QUEUEOPS, payload_keys=(("k", key),))
    monkeypatch.setattr(encrypt_payloads, "SETTING_KNOWN_SECONDS", 0)
    Project.objects.filter(pk="acme").update(encrypted=True)
    encrypt_payloads.encrypt_project(Project.objects.get(pk="acme"), actor="system:test")
    assert stored_in(Job.objects.get(pk=job.pk).result) != stored
    Job.objects.filter(project_id="acme").delete()
    assert sweep_results(here, grace=timedelta(0)).removed == 0
    with at(cell):
        there = use_store("there")
        with pytest.raises(ResultMissing):
            whole_result(Job.objects.get(pk=job.pk))
        shutil.copytree(tmp_path / "here/acme", tmp_path / "there/acme")
        assert whole_result(Job.objects.get(pk=job.pk)) == "a large result"
        assert sweep_results(there, grace=timedelta(0)).removed == 1, "the one of here alone"
        assert whole_result(Job.objects.get(pk=job.pk)) == "a large result"


def test_without_a_yes_it_checks_and_counts_and_changes_nothing(cell, acme):
    for options in ((), ("--dry-run",)):
        said = run(cell, *options)
        assert "17 jobs" in said
        assert "Nothing was changed" in said
    assert Project.objects.get(pk="acme").move == ""
    assert is_empty(cell)


def test_that_nobody_there_carries_out_its_jobs_is_told_before_and_after(cell, acme):
    def told(*options: str) -> str:
        words = StringIO()
        command = ("move_project", "acme", "--to", url_of(cell), "--address", ADDRESS, *options)
        call_command(*command, stdout=StringIO(), stderr=words)
        return words.getvalue().strip()

    lives = {"host": "h", "pid": 1, "process_started_at": 0, "cluster_pid": 1, "slots": 1}
    nobody = "No worker there has given a sign of life for 30 s: start some, or its jobs wait there."
    assert told() == nobody
    with at(cell):
        worker = Executor.objects.create(**lives, kinds={})
    assert told() == "No worker there knows http.request: jobs of these kinds wait there until one does."
    with at(cell):
        Executor.objects.update(kinds={"http.request": "1"})
    assert told() == ""
    with at(cell):
        Executor.objects.update(heartbeat_at=timezone.now() - timedelta(minutes=1))
    assert told("--yes") == nobody
    with at(cell):
        worker.delete()


STEPS = ["_begin", "_wait_until_still", "make_parts", "copy_project", "_keep_pause_by_hand", "_switch"]


def kill_after(step: str, cell: str) -> None:
    real, url = getattr(move, step), url_of(cell)

    def step_and_die(*arguments: Any, **options: Any) -> None:
        real(*arguments, **options)
        os.kill(os.getpid(), signal.SIGKILL)

    def move_it() -> None:
        setattr(move, step, step_and_die)
        call_command("move_project", "acme", "--to", url, "--address", ADDRESS, "--yes", stdout=StringIO())

    killed(move_it)


def others_gone(cell: str) -> bool:
    with psycopg.connect(url_of(cell)) as there:
        found = there.execute(
            "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'queueops move'"
        ).fetchone()
        return found == (0,)


@pytest.mark.parametrize("step", STEPS)
def test_killed_after_any_step_nothing_is_there_and_the_same_command_finishes(cell, acme, step):
    before = rows()
    kill_after(step, cell)
    wait_for(lambda: others_gone(cell), what="the end of the dead one's connections")
    assert is_empty(cell)
    assert claimable() == 2, "the other project's alone: it runs nowhere until somebody finishes or aborts"
    assert "acme has moved" in run(cell, "--yes")
    assert rows() == before
    with at(cell):
        assert rows() == before
        assert not PauseSwitch.objects.filter(scope="project").exists()


@pytest.mark.parametrize("step", STEPS)
def test_killed_after_any_step_and_aborted_the_project_goes_on_here(cell, acme, step):
    kill_after(step, cell)
    wait_for(lambda: others_gone(cell), what="the end of the dead one's connections")
    assert "goes on here" in run(cell, "--abort")
    assert Project.objects.get(pk="acme").move == ""
    assert not PauseSwitch.objects.filter(scope="project").exists()
    assert is_empty(cell)
    assert claimable() == 3
    answer = Client(headers={"Authorization": f"Bearer {acme}"}).post(
        "/api/v1/jobs/", JOB, content_type="application/json"
    )
    assert answer.status_code == 201


def test_what_moved_to_a_database_that_was_put_back_is_aborted_once_its_new_epoch_is_told(cell, acme):
    kill_after("_switch", cell)
    wait_for(lambda: others_gone(cell), what="the end of the dead one's connections")
    with psycopg.connect(url_of(cell)) as there:
        there.execute("UPDATE jobs_epoch SET value = 'of a restore'")
    for word in ("--yes", "--abort"):
        assert "has moved to another installation than" in refused(cell, word)
    Project.objects.filter(pk="acme").update(move_target="of a restore")  # as docs/how-to/move-a-project.md says
    assert "goes on here" in run(cell, "--abort")
    assert claimable() == 3


def test_what_runs_is_waited_for_and_too_long_leaves_all_as_it_was(cell, acme):
    make_jobs(1)
    assert claimable()
    pause_scope("project", "globex", actor="user:1")
    assert "jobs are running" in refused(cell, "--yes", "--wait", "0.1")
    assert Project.objects.get(pk="acme").move == ""
    assert [(one.key, one.paused_by) for one in PauseSwitch.objects.filter(scope="project")] == [("globex", "user:1")]
    assert is_empty(cell)
    assert AuditEntry.objects.filter(action="abort_move").exists()


def test_a_pause_by_hand_stays_when_a_move_is_undone_and_goes_along_when_it_is_not(cell, acme, monkeypatch):
    pause_scope("project", "acme", actor="user:1", reason="by hand")

    def fail(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(move, "copy_project", fail)
        assert "Stopped" in refused(cell, "--yes")
    assert PauseSwitch.objects.get(scope="project").reason == "by hand"
    assert Project.objects.get(pk="acme").move == ""
    run(cell, "--yes")
    with at(cell):
        assert PauseSwitch.objects.get(scope="project").reason == "by hand"
        assert claimable() == 0


def test_an_open_maintenance_window_goes_on_holding_the_project_there_until_it_ends(cell, acme):
    now = timezone.now()
    ends_at = now + timedelta(hours=1)
    figures = {"begins_at": now - timedelta(hours=1), "ends_at": ends_at, "reason": "their upgrade"}
    for project in ("acme", "globex"):
        windows.save_window(None, {"scope": "project", "key": project, **figures}, actor="user:1")
    windows.tend_windows()
    assert claimable() == 0
    [before] = PauseSwitch.objects.filter(key="acme").values("scope", "window_id", "reason", "paused_by", "until")
    run(cell, "--yes")
    with at(cell):
        [there] = PauseSwitch.objects.exclude(scope="batch").values(*before)
        assert there == before
        windows.tend_windows()
        assert claimable() == 0
        windows.tend_windows(at=ends_at)
        assert not PauseSwitch.objects.exclude(scope="batch").exists()
        assert claimable() == 1, "its batch is paused by hand"


def test_what_is_written_while_it_is_copied_is_not_lost(cell, acme, monkeypatch):
    """The API refuses writes; what an operator does is found at the switch."""
    real = copying.copy_project

    def copy_and_write(*arguments: Any, **options: Any) -> Any:
        done = real(*arguments, **options)
        with pytest.raises(ProjectMoving), transaction.atomic():
            refuse_when_full("acme", 1)
        client = Client(headers={"Authorization": f"Bearer {acme}"})
        assert client.get("/api/v1/jobs/").status_code == 200
        answer = client.post("/api/v1/jobs/", JOB, content_type="application/json")
        assert (answer.status_code, answer.json()["error"]["code"]) == (503, "project_moving")
        assert answer.headers["Retry-After"] == "10"
        make_batch(name="late")
        return done

    monkeypatch.setattr(move, "copy_project", copy_and_write)
    assert "1 batches" in refused(cell, "--yes")
    assert Project.objects.get(pk="acme").move == ""
    assert is_empty(cell)


def revoke_a_key() -> None:
    ProducerKey.objects.update(revoked_at=timezone.now())


def use_a_key() -> None:
    ProducerKey.objects.update(last_used_at=timezone.now())


def rotate_a_credential() -> None:
    Credential.objects.update(secret=credentials.seal({"api_key": "another"}))


def discard_a_letter() -> None:
    DeadLetter.objects.update(resolution="discarded", resolved_by="user:1", resolved_at=timezone.now())


def raise_a_capacity() -> None:
    LimitOverride.objects.update(capacity=6)


def change_a_priority() -> None:
    change_priority(
        Job.objects.filter(project_id="acme", status="queued").ids(), priority=Priority("urgent"), actor="user:1"
    )


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (revoke_a_key, "keys"),
        (rotate_a_credential, "credentials"),
        (discard_a_letter, "dead letters"),
        (raise_a_capacity, "limits of its own"),
        (change_a_priority, "1 changes by people"),
        (use_a_key, ""),
    ],
)
def test_what_people_change_while_it_is_copied_is_not_lost(cell, acme, monkeypatch, *, change, told):
    """A leaked key that is revoked meanwhile would work there. Its mere use, as reading goes on, stops nothing."""
    real = copying.copy_project

    def copy_and_change(*arguments: Any, **options: Any) -> Any:
        done = real(*arguments, **options)
        change()
        return done

    monkeypatch.setattr(move, "copy_project", copy_and_change)
    if not told:
        assert "acme has moved" in run(cell, "--yes")
        return
    assert f"while acme was copied: {told}. Nothing was moved" in refused(cell, "--yes")
    assert Project.objects.get(pk="acme").move == ""
    assert is_empty(cell)
    monkeypatch.undo()
    assert "acme has moved" in run(cell, "--yes")


def test_a_change_that_is_being_made_at_the_switch_is_waited_for(cell, acme, monkeypatch):
    real = move._switch
    with psycopg.connect(database_url()) as other, ThreadPoolExecutor(1) as beside:

        def commit_when_waited_for() -> None:
            waiting = "SELECT FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()"
            with psycopg.connect(database_url(), autocommit=True) as looking:
                wait_for(lambda: looking.execute(waiting).rowcount, what="the switch to wait")
            other.commit()

        def revoke_and_switch(*arguments: Any, **options: Any) -> None:
            other.execute("UPDATE tenancy_producerkey SET revoked_at = now()")
            beside.submit(commit_when_waited_for)
            real(*arguments, **options)

        monkeypatch.setattr(move, "_switch", revoke_and_switch)
        assert "while acme was copied: keys." in refused(cell, "--yes")
    assert is_empty(cell)


def issue_a_key() -> None:
    issue_key(Project.objects.get(pk="acme"), actor="user:1", name="another", scopes=[Scope.READ])


def resume_the_batch() -> None:
    resume_scope("batch", str(Batch.objects.get(paused=True).pk), actor="user:1")


def discard_the_letter() -> None:
    letters = DeadLetter.objects.filter(project_id="acme").values_list("pk", flat=True)
    discard_dead_letters(letters, actor="user:1", reason="because")


def cancel_jobs_of_two_projects() -> None:
    ids = Job.objects.filter(status="queued").values_list("pk", flat=True)
    assert cancel_jobs(ids, actor="user:1", reason="because").moved


def give_it_a_capacity() -> None:
    set_override(Limit.objects.get(name="http").pk, "project:acme", capacity=7, actor="user:1")


def give_it_a_budget() -> None:
    create_budget("acme", {"name": "cap", "amount": 1, "period": "total"}, actor="user:1")


CHANGES = [
    issue_a_key,
    resume_the_batch,
    discard_the_letter,
    cancel_jobs_of_two_projects,
    give_it_a_capacity,
    give_it_a_budget,
]


@pytest.mark.parametrize("change", CHANGES)
def test_a_change_of_the_project_whose_transaction_is_open_at_the_switch_is_waited_for_and_found(
    cell, acme, monkeypatch, change
):
    real = move._switch
    changed, commit = threading.Event(), threading.Event()

    def change_slowly() -> None:
        record = trail.record

        def record_slowly(**given: Any) -> Any:
            entry = record(**given)
            changed.set()
            assert commit.wait(60)
            return entry

        try:
            with patched(trail, "record", record_slowly):
                change()
        finally:
            changed.set()
            connection.close()

    def commit_when_waited_for() -> None:
        waiting = "SELECT FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()"
        with psycopg.connect(database_url(), autocommit=True) as looking:
            wait_for(lambda: looking.execute(waiting).rowcount, what="the switch to wait")
        commit.set()

    with ThreadPoolExecutor(2) as beside:

        def change_and_switch(*arguments: Any, **options: Any) -> None:
            begun = beside.submit(change_slowly)
            assert changed.wait(60)
            waited = beside.submit(commit_when_waited_for)
            try:
                real(*arguments, **options)
            finally:
                commit.set()
                waited.result(60)
                begun.result(60)

        monkeypatch.setattr(move, "_switch", change_and_switch)
        assert "Nothing was moved; try again." in refused(cell, "--yes")
    assert is_empty(cell)
    monkeypatch.undo()
    assert "acme has moved" in run(cell, "--yes")


def test_a_project_that_somebody_resumed_as_its_move_began_stays(cell, acme, monkeypatch):
    real = move._wait_until_still

    def wait_and_resume(*arguments: Any) -> None:
        real(*arguments)
        PauseSwitch.objects.filter(scope="project").delete()

    monkeypatch.setattr(move, "_wait_until_still", wait_and_resume)
    assert "Somebody resumed acme" in refused(cell, "--yes")
    assert is_empty(cell)


def test_a_switch_that_the_database_refuses_leaves_the_project_here(cell, acme):
    """As it does where the switch and somebody's change wait for each other."""
    refuse = """
    CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE deadlock_detected; END $$;
    CREATE TRIGGER refuse BEFORE UPDATE ON tenancy_project
       FOR EACH ROW WHEN (NEW.move = 'moved') EXECUTE FUNCTION refuse()
    """
    with connection.cursor() as cursor:
        cursor.execute(refuse)
    try:
        assert "Nothing was moved; try again." in refused(cell, "--yes")
    finally:
        with connection.cursor() as cursor:
            cursor.execute("DROP FUNCTION refuse CASCADE")
    assert Project.objects.get(pk="acme").move == ""
    assert is_empty(cell)


@contextmanager
def patched(module: Any, name: str, value: Any) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, name, value)
        yield


@pytest.mark.parametrize("change", CHANGES)
def test_nobody_changes_a_project_here_that_has_moved(cell, acme, change):
    run(cell, "--yes")
    with connection.cursor() as cursor:
        cursor.execute("SELECT max(id) FROM jobs_jobevent")
        before = cursor.fetchone(), AuditEntry.objects.count(), DeadLetter.objects.filter(resolution=None).count()
    with pytest.raises(ProjectMoved):
        change()
    with connection.cursor() as cursor:
        cursor.execute("SELECT max(id) FROM jobs_jobevent")
        after = cursor.fetchone(), AuditEntry.objects.count(), DeadLetter.objects.filter(resolution=None).count()
    assert after == before


@pytest.mark.parametrize("state", [ProjectMove.MOVING, ProjectMove.MOVED], ids=str)
def test_a_bulk_operation_leaves_a_project_alone_that_is_on_its_way(acme, state):
    mine = sorted(Job.objects.filter(project_id="acme", status="queued").values_list("pk", flat=True))
    others = sorted(Job.objects.filter(project_id="globex").values_list("pk", flat=True))
    letters = list(DeadLetter.objects.values_list("pk", flat=True))
    Project.objects.filter(pk="acme").update(move=state)
    for action, given in (
        ("cancel_jobs", {}),
        ("schedule_jobs", {"delay_seconds": 5}),
        ("change_priority", {"priority": "urgent"}),
        ("discard_dead_letters", {}),
    ):
        operation = BulkOperation(action=action, parameters=given, reason="because", actor="user:1")
        ids = letters if action == "discard_dead_letters" else mine
        with transaction.atomic():
            assert not ACTIONS[action].carry_out(ids, operation), action
    with transaction.atomic():
        operation = BulkOperation(action="cancel_jobs", parameters={}, reason="because", actor="user:1")
        assert sorted(ACTIONS["cancel_jobs"].carry_out([*mine, *others], operation)) == others


def an_event(_held: UUID) -> dict[str, object]:
    return {"event_id": str(uuid4()), "user_id": str(USER), "tokens": 1, "ts": f"{timezone.now():%FT%TZ}"}


WRITES: dict[str, tuple[str, Callable[[UUID], dict[str, object]]]] = {
    "ingest": ("usage/ingest/", an_event),
    "reserve": ("usage/reserve/", lambda _: {"user_id": str(USER), "amount": 1}),
    "cancel": ("usage/cancel/", lambda held: {"reservation_id": str(held)}),
}


def of_usage() -> list[object]:
    return [
        list(UsageEvent.objects.order_by("pk").values()),
        list(UsageReservation.objects.order_by("pk").values()),
        list(UsageTracking.objects.order_by("pk").values()),
    ]


@pytest.mark.parametrize("state", ["moving", "moved"])
def test_an_operator_releases_nothing_of_a_project_that_is_on_its_way_or_gone(acme, state):
    """No confined transaction stands before it, as before a request of the API."""
    held = reserve(project_id="acme", user_id=USER, amount=3).reservation_id
    before = of_usage()
    Project.objects.filter(pk="acme").update(move=state)
    with pytest.raises(ProjectMoving if state == "moving" else ProjectMoved):
        cancel(held, project_id="acme", actor="user:1", reason="because")
    assert of_usage() == before


@pytest.mark.parametrize("write", WRITES)
@pytest.mark.parametrize("after", ["the copy", "the switch"])
def test_a_usage_write_that_was_let_in_before_a_move_writes_nothing_after_it(cell, acme, monkeypatch, *, write, after):
    """It was authenticated while the project was open, and stood still before its transaction began."""
    held = reserve(project_id="acme", user_id=USER, amount=3).reservation_id
    path, body = WRITES[write]
    let_in, go_on = threading.Event(), threading.Event()
    real = getattr(usage_views, write)

    def stand_still(*arguments: Any, **options: Any) -> Any:
        let_in.set()
        assert go_on.wait(60)
        return real(*arguments, **options)

    def ask() -> tuple[int, str]:
        try:
            client = Client(headers={"Authorization": f"Bearer {acme}"})
            answer = client.post(f"/api/v1/{path}", body(held), content_type="application/json")
            return answer.status_code, answer.json()["error"]["code"]
        finally:
            connection.close()

    def copy_and_let_go(*arguments: Any, **options: Any) -> Any:
        done = copying.copy_project(*arguments, **options)
        go_on.set()
        assert asked.result(60) == (503, "project_moving")
        return done

    monkeypatch.setattr(usage_views, write, stand_still)
    before = of_usage()
    with ThreadPoolExecutor(1) as beside:
        asked = beside.submit(ask)
        assert let_in.wait(60)
        if after == "the copy":
            monkeypatch.setattr(move, "copy_project", copy_and_let_go)
        assert "acme has moved" in run(cell, "--yes")
        go_on.set()
        assert asked.result(60) == ((410, "project_moved") if after == "the switch" else (503, "project_moving"))
    assert of_usage() == before
    with at(cell):
        assert UsageReservation.objects.get().status == "active"


def test_a_usage_report_whose_transaction_began_before_the_move_is_waited_for_and_goes_along(cell, acme, monkeypatch):
    counted, commit = threading.Event(), threading.Event()
    real = ingest_service._count

    def count_slowly(*arguments: Any, **options: Any) -> Any:
        done = real(*arguments, **options)
        counted.set()
        assert commit.wait(60)
        return done

    def report() -> str:
        try:
            event = Reported(uuid4(), USER, 1, timezone.now())
            return ingest([event], project_id="acme").results[0].status
        finally:
            connection.close()

    def say_and_let_go(words: str) -> None:
        if words.startswith("waiting: "):
            assert "1 transactions" in words
            commit.set()

    monkeypatch.setattr(ingest_service, "_count", count_slowly)
    with ThreadPoolExecutor(1) as beside:
        reported = beside.submit(report)
        assert counted.wait(60)
        outcome = move.move_project("acme", url=url_of(cell), address=ADDRESS, wait_seconds=60, say=say_and_let_go)
        assert reported.result(60) == "accepted"
    assert outcome.rows["usage events"] == 2
    with at(cell):
        assert UsageEvent.objects.count() == 2


def test_a_dead_letter_of_a_project_that_has_moved_is_not_requeued_here(cell, acme):
    key = Client()
    assert key.post("/me/sign-in", {"key": acme}).status_code == 302
    run(cell, "--yes")
    letter = DeadLetter.objects.get()
    for ids in ([letter.pk], [letter.pk, make_dead_letter(project="globex").pk]):
        with pytest.raises(ProjectMoved):
            requeue_dead_letters(ids, actor="user:1")
    answer = key.post(f"/live/me/jobs/{letter.job_id}/requeue")
    assert (answer.status_code, answer.json()["error"]["code"]) == (410, "project_moved")
    with transaction.atomic():
        moved = carry_out_requeue(DeadLetter.objects.ids(), RequeueOptions(), actor="user:1")
    assert set(moved) == {DeadLetter.objects.get(project_id="globex").pk}, "a bulk operation goes on without it"
    assert DeadLetter.objects.get(project_id="acme").resolution is None


def test_what_the_other_installation_lacks_is_named_before_anything_changes(cell, acme, settings):
    settings.QUEUEOPS = replace(settings.QUEUEOPS, target_credential_keys=())
    assert "QUEUEOPS_TARGET_CREDENTIAL_KEYS" in refused(cell, "--yes")
    settings.QUEUEOPS = replace(settings.QUEUEOPS, target_credential_keys=(THERE_KEY,))
    RetryPolicy.objects.create(name="ours")
    [job] = make_jobs(1, retry_policy="ours")
    assert "lacks retry policies that jobs name: ours." in refused(cell, "--yes")
    unknown = Budget.objects.create(project_id="acme", name="pilot", amount=1, time_zone="Europe/Nowhere")
    with at(cell):
        RetryPolicy.objects.create(name="ours")
        Limit.objects.filter(name="http").update(window_seconds=1)
    assert "does not know time zones of budgets or the allowance: Europe/Nowhere." in refused(cell, "--yes")
    unknown.delete()
    assert "count otherwise there: http" in refused(cell, "--yes")
    with at(cell):
        Limit.objects.filter(name="http").delete()
    assert "lacks limits of the project's services: http" in refused(cell, "--yes")
    with at(cell):
        make_limit()
        digest = digest_of(acme)
        ProducerKey.objects.create(project=make_project("elsewhere"), name="x", prefix="qo_", digest=digest)
    assert "has API keys of acme already" in refused(cell, "--yes")
    with at(cell):
        make_project("acme")
    assert "has a project acme already" in refused(cell, "--yes")
    with at(cell):
        ProducerKey.objects.all().delete()
        Project.objects.all().delete()
        connection.cursor().execute("INSERT INTO django_migrations (app, name, applied) VALUES ('jobs', '9999', now())")
    assert "here lacks jobs 9999" in refused(cell, "--yes")
    with at(cell):
        connection.cursor().execute("DELETE FROM django_migrations WHERE name = '9999'")
    assert "this installation itself" in refused(connection.settings_dict["NAME"], "--yes")
    assert "does not answer" in refused_url("postgresql://nobody:hush@127.0.0.1:1/x")
    for wait in ("nan", "-1", "inf"):
        assert refused(cell, "--yes", "--wait", wait) == "--wait is a number of seconds, 0 or more."
    assert Project.objects.get(pk="acme").move == ""
    assert not PauseSwitch.objects.filter(scope="project").exists()
    assert job.status == "queued"


def test_a_projects_own_cap_goes_along_and_need_not_be_there_before(cell, acme):
    cap = Limit.objects.get(pk=set_at_once("acme", 3, service="http", actor="user:1").limit_id)
    Counter.objects.create(id=f"{cap.pk:08d}:project:acme", limit=cap, key="project:acme")
    make_project("globex")
    set_at_once("globex", 5, service="http", actor="user:1")  # it counts none of the project's calls
    with at(cell):
        theirs = Limit.objects.create(name=cap.name, service="other", capacity=1)
    assert f"has limits named like the project's own: {cap.name}." in refused(cell, "--yes")
    assert Project.objects.get(pk="acme").move == ""
    with at(cell):
        theirs.delete()
        Limit.objects.filter(name="http").update(project="initech")
    assert "count otherwise there: http" in refused(cell, "--yes"), "there it is another project's"
    with at(cell):
        Limit.objects.filter(name="http").update(project="")
    run(cell, "--yes")
    with at(cell):
        there = Limit.objects.get(project="acme")
        assert (there.name, there.service, there.capacity) == (cap.name, "http", 3)
        assert Counter.objects.filter(pk=f"{there.pk:08d}:project:acme", limit=there).exists()
        assert not Limit.objects.filter(project="globex").exists()


def test_the_keys_of_encrypted_payloads_must_be_there_before_anything_changes(cell, acme, settings):
    old, new, other = (Fernet.generate_key().decode() for _ in range(3))

    def keys(*ours: tuple[str, str], theirs: Sequence[tuple[str, str]] = ()) -> None:
        settings.QUEUEOPS = replace(settings.QUEUEOPS, payload_keys=ours, target_payload_keys=tuple(theirs))

    keys(("old", old))
    Project.objects.filter(pk="acme").update(encrypted=True)
    [job] = make_jobs(1, payload=seal_json(json.dumps({"of": "old"})))
    keys(("new", new), ("old", old))
    Job.objects.filter(pk=job.pk).update(last_error_message=seal_text("of new"))  # one row needs both
    assert "in QUEUEOPS_TARGET_PAYLOAD_KEYS." in refused(cell, "--yes")
    ours = (("new", new), ("old", old))
    keys(*ours, theirs=[("other", other)])
    assert "lacks keys that payloads are encrypted with: new, old." in refused(cell, "--yes")
    keys(*ours, theirs=[("new", new)])
    assert "lacks keys that payloads are encrypted with: old." in refused(cell)
    keys(*ours, theirs=[("new", new), ("old", other)])
    assert "other keys of the names that payloads are encrypted with: old." in refused(cell, "--yes")
    keys(*ours, theirs=ours)
    with at(cell):
        make_project("globex", encrypted=True)
        make_jobs(1, project="globex", payload=f'"{MARK}old!{Fernet(other).encrypt(b"{}").decode()}"')
    assert "opens no payload that is encrypted there" in refused(cell, "--yes")
    assert Project.objects.get(pk="acme").move == ""
    assert not PauseSwitch.objects.filter(scope="project").exists()
    with at(cell):
        make_jobs(1, project="globex", payload=seal_json("{}"))
    assert "acme has moved" in run(cell, "--yes")
    with at(cell):
        there = Job.objects.get(pk=job.pk)
        assert (there.payload, there.last_error_message) == ({"of": "old"}, "of new")


def test_a_project_that_is_to_be_encrypted_needs_a_key_there_though_nothing_is_yet(cell, acme, settings):
    settings.QUEUEOPS = replace(settings.QUEUEOPS, payload_keys=(("here", HERE_KEY),))
    Project.objects.filter(pk="acme").update(encrypted=True)
    assert "in QUEUEOPS_TARGET_PAYLOAD_KEYS." in refused(cell, "--yes")
    settings.QUEUEOPS = replace(settings.QUEUEOPS, target_payload_keys=(("there", THERE_KEY),))
    assert "acme has moved" in run(cell, "--yes")


def refused_url(url: str) -> str:
    with pytest.raises(CommandError) as refusal:
        call_command("move_project", "acme", "--to", url, "--yes", stdout=StringIO())
    assert "hush" not in str(refusal.value)
    return str(refusal.value)


def test_a_credential_that_a_second_project_shares_is_there_once(cell, acme):
    globex = make_project("globex")
    Credential.objects.get().projects.add(globex)
    run(cell, "--yes")
    call_command("move_project", "globex", "--to", url_of(cell), "--yes", stdout=StringIO())
    with at(cell):
        assert sorted(Credential.objects.get().projects.values_list("pk", flat=True)) == ["acme", "globex"]


def test_every_table_of_projects_is_moved_or_said_to_stay():
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT DISTINCT relname::text FROM pg_attribute JOIN pg_class ON pg_class.oid = attrelid"
            " WHERE relnamespace = 'public'::regnamespace AND relkind IN ('r', 'p') AND NOT relispartition"
            " AND (attname IN ('project_id', 'project') OR relname LIKE 'jobs_%' AND attname IN ('job_id', 'batch_id'))"
        )
        found = {name for (name,) in cursor.fetchall()} - {"tenancy_credential_projects"}
    known = {sort.table for sort in SORTS} | set(STAYS)
    assert found - known == set()


def test_the_log_keeps_its_order_and_old_days_get_parts_of_their_own(cell, acme):
    old = timezone.now() - timedelta(days=40)
    with connection.cursor() as cursor:
        cursor.execute(
            "INSERT INTO jobs_jobevent (job_id, project_id, event_type, created_at) VALUES (%s, 'acme', 'log', %s)",
            [UUID(int=5), old],
        )
    order = list(JobEvent.objects.filter(project_id="acme").order_by("id").values_list("created_at", flat=True))
    run(cell, "--yes")
    with at(cell), connection.cursor() as cursor:
        there = list(JobEvent.objects.filter(project_id="acme").order_by("id").values_list("created_at", flat=True))
        cursor.execute("SELECT tableoid::regclass::text FROM jobs_jobevent ORDER BY created_at LIMIT 1")
        assert cursor.fetchone() == (f"jobs_jobevent_{old:%Y%m%d}",)
    assert there == order
