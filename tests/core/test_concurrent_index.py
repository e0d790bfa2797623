"""An index that is made beside running work waits for what is older, and can be made again when it was cut off."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest
from django.apps import apps
from django.db import OperationalError, connection, connections
from django.db.migrations.state import ProjectState

from jobs.models import Job
from queueops.core.database import connect_directly
from queueops.core.postgres.concurrent_index import AddIndexBesideWork
from tests.support.processes import wait_for

WAITING = "SELECT 1 FROM pg_stat_activity WHERE query LIKE '%INDEX CONCURRENTLY%' AND wait_event = 'virtualxid'"
NAME = "jobs_job_pool_suspects_idx"
INDEX = next(index for index in Job._meta.indexes if index.name == NAME)

pytestmark = pytest.mark.django_db(transaction=True)


def ask(query: str) -> list[tuple[object, ...]]:
    with connection.cursor() as cursor:
        cursor.execute(query)
        return list(cursor.fetchall()) if cursor.description else []


def is_valid() -> bool:
    return ask(f"SELECT indisvalid FROM pg_index WHERE indexrelid = '{NAME}'::regclass") == [(True,)]  # noqa: S608


def make_it() -> None:
    """As a migration does, in a session that may wait for no lock."""
    state = ProjectState.from_apps(apps)
    try:
        ask("SET lock_timeout = '50ms'")
        with connection.schema_editor(atomic=False) as editor:
            AddIndexBesideWork("job", INDEX).database_forwards("jobs", editor, state, state)
        assert ask("SHOW lock_timeout") == [("50ms",)]
    finally:
        connections.close_all()


def test_an_index_that_was_cut_off_is_made_again_and_waits_for_an_older_transaction():
    ask(f"DROP INDEX {NAME}")
    with connect_directly() as older:
        older.execute("BEGIN ISOLATION LEVEL REPEATABLE READ")
        older.execute("SELECT count(*) FROM jobs_job")
        ask("SET lock_timeout = '50ms'")
        with pytest.raises(OperationalError):
            ask(f"CREATE INDEX CONCURRENTLY {NAME} ON jobs_job (pool)")
        ask("RESET lock_timeout")
        assert not is_valid()
        with ThreadPoolExecutor(1) as threads:
            made = threads.submit(make_it)
            wait_for(lambda: made.done() or ask(WAITING), what="the index that waits")
            assert not made.done()
            older.rollback()
            made.result(60)
    assert is_valid()
