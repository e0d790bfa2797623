"""Who a statement runs as, and for how long: on real connections, in and out of transactions."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import nullcontext
from contextvars import copy_context
from uuid import UUID

import pytest
from django.db import DatabaseError, connection, transaction

from jobs.models import Job
from jobs.services.submit.submit import _one_ahead
from queueops.audit import trail
from queueops.audit.models import AuditEntry
from queueops.core.postgres import local_settings
from queueops.core.postgres.local_settings import UnscopedStatement
from queueops.core.sql import hot_cursor, run_sql
from queueops.tenancy.models import Project, ProjectMove
from queueops.tenancy.moves import ProjectMoved, ProjectMoving
from queueops.tenancy.scope import API_ROLE, acting_for, for_everyone, reading_for
from tests.factories import make_job, make_project

USER = UUID(int=7)
WHO = "SELECT current_user::text, current_setting('queueops.project', true), current_setting('queueops.user', true)"
ACME = (API_ROLE, "acme", "")
GLOBEX = (API_ROLE, "globex", str(USER))

in_autocommit = pytest.mark.django_db(transaction=True)
in_a_transaction = pytest.mark.django_db


def who() -> tuple[str, str, str]:
    with connection.cursor() as cursor:
        cursor.execute(WHO)
        role, project, user = cursor.fetchone()
    return role, project or "", user or ""


def who_in_hot_sql() -> tuple[str, str, str]:
    with hot_cursor() as cursor:
        found = cursor.execute(WHO.encode()).fetchone()
    assert found is not None
    return found[0], found[1], found[2]


@pytest.fixture
def login(db: None) -> tuple[str, str, str]:
    return (who()[0], "", "")


@in_autocommit
@pytest.mark.parametrize("find", [who, who_in_hot_sql])
def test_each_statement_outside_a_transaction_is_confined_and_leaves_nothing_in_the_session(login, find):
    with acting_for("acme"):
        assert find() == ACME
        assert find() == ACME
        assert connection.get_autocommit()
    assert who() == login


@in_autocommit
def test_a_statement_of_a_file_is_confined_too():
    make_project("acme")
    with acting_for("acme"):
        assert run_sql("jobs", "read_room", {"project": "acme"})
    with acting_for("globex"):
        assert run_sql("jobs", "read_room", {"project": "acme"}) == []


@in_autocommit
def test_a_transaction_is_confined_from_its_first_statement_to_its_end(login):
    with acting_for("globex", USER), transaction.atomic():
        assert who_in_hot_sql() == GLOBEX
        with transaction.atomic():
            assert who() == GLOBEX
    assert who() == login
    with reading_for("acme"):
        assert who() == ACME
    assert who() == login


@in_autocommit
def test_a_transaction_with_settings_begins_in_one_round_trip(monkeypatch):
    sent = []
    connection.ensure_connection()
    driver = type(connection.connection)
    execute = driver.execute

    def noted(self, query, **options):
        sent.append(query)
        return execute(self, query, **options)

    monkeypatch.setattr(driver, "execute", noted)
    with acting_for("acme"), transaction.atomic():
        pass
    assert [query.partition(b";")[0] for query in sent] == [b"BEGIN"]


@in_a_transaction
def test_an_open_transaction_is_confined_in_place_and_released(login):
    with acting_for("acme"):
        assert who() == ACME
        with acting_for("globex", USER):
            assert who() == GLOBEX
            with for_everyone():
                assert who() == login
            assert who() == GLOBEX
        assert who() == ACME
    assert who() == login


@in_a_transaction
def test_an_error_releases_an_open_transaction_too(login):
    zero = pytest.raises(DatabaseError, match="division by zero")  # and not what a broken transaction says
    with zero, transaction.atomic(), acting_for("acme"), connection.cursor() as cursor:
        cursor.execute("SELECT 1/0")
    assert who() == login
    with acting_for("acme"):
        with pytest.raises(DatabaseError), transaction.atomic(), connection.cursor() as cursor:
            cursor.execute("SELECT 1/0")
        assert who() == ACME
    assert who() == login


@in_a_transaction
def test_a_savepoint_from_before_the_block_does_not_take_the_confinement_with_it():
    before = transaction.savepoint()
    with acting_for("acme"):
        assert who() == ACME
        transaction.savepoint_rollback(before)
        assert who() == ACME


@in_autocommit
def test_what_follows_a_commit_in_the_middle_of_a_block_is_refused_and_not_run_unconfined(login):
    transaction.set_autocommit(False)
    try:
        with acting_for("acme"):
            assert who() == ACME
            transaction.commit()
            with pytest.raises(UnscopedStatement):
                who()
            with pytest.raises(UnscopedStatement):
                who_in_hot_sql()
    finally:
        transaction.rollback()
        transaction.set_autocommit(True)
    assert who() == login


@in_autocommit
def test_a_role_that_is_missing_refuses_the_statement_and_the_connection_goes_on(login):
    with (
        acting_for("acme", role="nobody_made_it"),
        pytest.raises(DatabaseError, match="nobody_made_it"),
    ):
        who()
    assert connection.get_autocommit()
    assert who() == login


@in_autocommit
def test_a_thread_is_confined_in_a_copy_of_the_context(login):
    found = []

    def look() -> None:
        found.append(who())
        connection.close()

    with acting_for("acme"):
        for target in (copy_context().run, lambda call: call()):
            thread = threading.Thread(target=target, args=(look,))
            thread.start()
            thread.join()
    assert found == [ACME, login]


@in_autocommit
def test_the_thread_that_reads_a_batch_ahead_is_confined():
    def lines() -> Iterator[tuple[str, str, str]]:
        for _ in range(3):
            yield who()
        connection.close()

    with acting_for("acme"):
        assert list(_one_ahead(lines())) == [ACME] * 3


@in_autocommit
def test_a_reader_of_one_project_finds_nothing_of_another_though_nothing_filters():
    for project in ("acme", "globex"):
        make_project(project)
        make_job(project=project, user_id=USER if project == "globex" else None)
    assert Job.objects.count() == 2
    with reading_for("acme"):
        assert [job.project_id for job in Job.objects.all()] == ["acme"]
    with acting_for("acme", USER):
        assert not Job.objects.exists()
    with acting_for("globex", USER):
        assert Job.objects.count() == 1
        assert Job.objects.filter(project_id="acme").update(status="queued") == 0
    with acting_for(""):
        assert not Job.objects.exists()


def test_values_are_written_as_text_whatever_they_hold():
    statement = local_settings.set_statement((("queueops.project", "a'); DROP TABLE jobs_job; --\\"),))
    assert b"set_config('queueops.project',  E'a''); DROP TABLE jobs_job; --\\\\'" in statement


@in_autocommit
@pytest.mark.parametrize(
    ("move", "refusal"), [(ProjectMove.MOVING, ProjectMoving), (ProjectMove.MOVED, ProjectMoved)], ids=str
)
def test_of_a_project_on_its_way_no_transaction_that_may_write_begins(login, move, refusal):
    make_project("acme")
    with acting_for("acme"):
        make_job()
        Project.objects.get(pk="acme")
    Project.objects.filter(pk="acme").update(move=move)
    with acting_for("acme"):
        with pytest.raises(refusal), transaction.atomic():
            raise AssertionError("it began")
        assert who() == ACME, "a statement of its own reads: maybe what was written before, for the answer"
        assert connection.get_autocommit()
    with reading_for("acme"):
        assert Job.objects.count() == 1
    Project.objects.filter(pk="acme").update(move=ProjectMove.NONE)
    with acting_for("acme"), transaction.atomic():
        assert who() == ACME


@in_autocommit
def test_what_a_confined_transaction_changed_is_recorded_though_its_role_may_lock_no_project():
    make_project("acme")
    with acting_for("acme"), transaction.atomic():
        with pytest.raises(DatabaseError, match="permission denied"), transaction.atomic():
            Project.objects.select_for_update(no_key=True).get(pk="acme")
        trail.record(actor="key:qo_a", action="cancel_jobs", target="1 jobs", project_id="acme")
    assert AuditEntry.objects.get().project_id == "acme"


@in_autocommit
@pytest.mark.parametrize(
    ("move", "actor", "refusal"),
    [
        (ProjectMove.MOVING, "user:1", None),
        (ProjectMove.MOVING, "system:upkeep", None),
        (ProjectMove.MOVED, "system:upkeep", None),
        (ProjectMove.MOVING, "executor:1", ProjectMoving),
        (ProjectMove.MOVED, "user:1", ProjectMoved),
        (ProjectMove.MOVED, "executor:1", ProjectMoved),
    ],
    ids=str,
)
def test_who_may_still_change_a_project_on_its_way(move, actor, refusal):
    make_project("acme")
    Project.objects.filter(pk="acme").update(move=move)
    with pytest.raises(refusal) if refusal else nullcontext(), transaction.atomic():
        trail.record(actor=actor, action="cancel_jobs", target="1 jobs", project_id="acme")
    assert AuditEntry.objects.exists() == (refusal is None)
