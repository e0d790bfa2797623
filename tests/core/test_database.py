"""DATABASE_URL as libpq reads it."""

from __future__ import annotations

import pytest
from django.db import connection, transaction
from django.db.utils import ConnectionHandler
from django.test import override_settings
from django.test.utils import CaptureQueriesContext

from queueops.core.database import database_settings
from queueops.core.sql import run_sql
from queueops.core.values import parse
from queueops.tenancy.models import Project
from tests.support.processes import database_url


@pytest.mark.proves("P10")
def test_of_several_hosts_the_first_that_is_what_was_asked_for_is_taken(db: None):
    real = connection.get_connection_params()
    name = f"host={real['host'].replace('/', '%2F')}"
    url = database_url()
    assert name in url
    several = url.replace(name, f"host=/nowhere,{real['host']}") + "&target_session_attrs=read-write"
    given = database_settings(parse.POSTGRES_URL.parse(several))
    with ConnectionHandler({"default": given})["default"].cursor() as cursor:
        cursor.execute("SELECT current_database(), inet_server_addr() IS NULL")
        assert cursor.fetchone()[0] == real["dbname"]


def test_hosts_ports_and_escapes_are_understood():
    given = database_settings("postgresql://me:p%40ss@h1:5432,h2:5433/name?target_session_attrs=read-write")
    assert {key: given[key] for key in ("HOST", "PORT", "USER", "PASSWORD", "NAME")} == {
        "HOST": "h1,h2",
        "PORT": "5432,5433",
        "USER": "me",
        "PASSWORD": "p@ss",
        "NAME": "name",
    }
    assert given["OPTIONS"]["target_session_attrs"] == "read-write"


def test_what_libpq_cannot_read_is_refused():
    hosts = ("h:99999/name", "h:1,h:x/name", "h/", "h/n?x=1")
    for url in ("mysql://h/name", *(f"postgresql://{host}" for host in hosts)):
        with pytest.raises(ValueError, match=r".*"):
            parse.POSTGRES_URL.parse(url)


def test_a_connection_keeps_no_values_of_statements_and_still_prepares_those_that_bind_them(db: None):
    Project.objects.filter(name="a value of one").exists()
    with connection.cursor() as cursor:
        cursor.executemany("SELECT %s", [["a value of many"], ["another value"]])
    for _ in range(4):
        run_sql("jobs", "find_by_ending", {"before": None, "most": 1, "ending": b"abcd"})
    kept = connection.connection._prepared
    assert not [text for text, _ in [*kept._counts, *kept._names] if b"value" in text]
    assert [text for text, _ in kept._names if b"jobs_job" in text]
    with transaction.atomic():
        Project.objects.filter(name="a value of one").exists()
        transaction.set_rollback(True)
    assert not kept._names, "what the savepoint had made may be gone, which prepared statements may name"


def test_a_debugging_process_keeps_no_text_of_queries(db: None):
    with override_settings(DEBUG=True):
        Project.objects.exists()
        assert not connection.queries
        with CaptureQueriesContext(connection) as kept:
            Project.objects.exists()
    assert len(kept) == 1
