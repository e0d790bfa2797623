"""
A database of the last commit before 1.0.0 is brought up to date with everything that it holds.

`data/before_1_0.sql.gz` is what pg_dump wrote of it: one row of everything (tests/security/world.py), and jobs in every
state, made and migrated by commit d5ca4b1.
"""

from __future__ import annotations

import gzip
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from django.core.management import call_command
from django.db import connection

from jobs.models import Job
from jobs.services.claim.claim import claim_jobs
from jobs.services.claim.fair_share import ClassTurns
from jobs.states import JobState
from queueops.core.embedded.cluster import EmbeddedServer
from queueops.core.embedded.host import client_programs
from queueops.tenancy import checks
from tests.factories import make_jobs

DUMP = Path(__file__).parent / "data/before_1_0.sql.gz"
NAME = "before"
# What `migrate` itself writes down in every database: steps, models, permissions, roles, schedules.
WRITTEN = {
    *("django_migrations", "django_content_type", "auth_permission", "auth_group_permissions", "django_q_schedule"),
    "jobs_retrypolicy",  # receivers' is new
}

Row = dict[str, Any]

TABLES = """
SELECT relname FROM pg_class
 WHERE relnamespace = 'public'::regnamespace AND relkind IN ('r', 'p') AND NOT relispartition
"""


@pytest.fixture
def old(server: EmbeddedServer) -> Iterator[None]:
    """Connected to the database as it was before."""
    connection.close()
    here = connection.settings_dict["NAME"]
    with connection.cursor() as cursor:
        cursor.execute(f"CREATE DATABASE {NAME}")
    connection.close()
    psql = (client_programs() / "psql", "--quiet", "--no-psqlrc", "-v", "ON_ERROR_STOP=1", "-d", server.dsn(NAME))
    subprocess.run(psql, input=gzip.decompress(DUMP.read_bytes()), stdout=subprocess.DEVNULL, check=True)
    connection.settings_dict["NAME"] = NAME
    yield
    connection.close()
    connection.settings_dict["NAME"] = here


def ask(statement: str) -> list[Row]:
    with connection.cursor() as cursor:
        cursor.execute(statement)
        names = [column.name for column in cursor.description]
        return [dict(zip(names, row, strict=True)) for row in cursor.fetchall()]


def everything() -> dict[str, list[Row]]:
    return {table: ask(f'TABLE "{table}"') for table in sorted(row["relname"] for row in ask(TABLES))}


def parts(rows: list[Row], columns: set[str]) -> list[str]:
    return sorted(repr({name: row[name] for name in sorted(columns)}) for row in rows)


def test_every_row_is_there_after_the_upgrade_and_work_goes_on(old):
    before = everything()
    assert sum(map(len, before.values())) > 500
    call_command("migrate", verbosity=0)
    call_command("migrate", check_unapplied=True, verbosity=0)
    after = everything()
    for table in before.keys() - WRITTEN:
        assert len(after[table]) == len(before[table]), table
        if before[table]:
            columns = set(before[table][0])
            assert columns <= after[table][0].keys(), table
            assert parts(after[table], columns) == parts(before[table], columns), table
    assert [table for table in WRITTEN if len(after[table]) < len(before[table])] == []
    assert checks.unsafe() == []
    [job] = make_jobs(1, project="upgraded")
    claimed = claim_jobs(uuid4(), wanted=1_000, lease_seconds=30, turns=ClassTurns())
    assert job.pk in {found.id for found in claimed}
    assert Job.objects.get(pk=job.pk).status == JobState.IN_PROGRESS
