"""Databases that an earlier chain of migrations made: each app's initial one replaces it."""

from __future__ import annotations

from io import StringIO

import pytest
from django.core.management import CommandError, call_command
from django.db import connection
from django.db.migrations.loader import MigrationLoader
from django.db.migrations.recorder import MigrationRecorder

from jobs.models import Job
from queueops.core.upgrade import LAST_WITH_THE_CHAIN, is_migrated
from queueops.site.diagnosis.database import examine_migrations
from queueops.site.diagnosis.finding import DoctorVerdict
from queueops.tenancy.checks import row_security_check
from ratelimits.models import Limit
from tests.factories import make_jobs

pytestmark = pytest.mark.django_db

Recorded = MigrationRecorder.Migration
REPLACING = set(MigrationLoader(None).replacements)


def as_the_chain_recorded() -> None:
    """What only this version knows goes; two of its names the chain had, too."""
    for app, name in REPLACING:
        if (app, name) not in {("jobs", "0001_initial"), ("tenancy", "0001_initial")}:
            assert Recorded.objects.filter(app=app, name=name).delete()[0] == 1


def rows() -> list[tuple[str, str]]:
    return sorted(Recorded.objects.values_list("app", "name"))


def test_what_the_whole_chain_made_is_kept_and_taken_over():
    [job], limit = make_jobs(1), Limit.objects.create(name="hot", service="svc", capacity=10)
    after = rows()
    as_the_chain_recorded()
    assert rows() != after
    assert is_migrated()
    output = StringIO()
    call_command("migrate", stdout=output, no_color=True)
    assert "No migrations to apply" in output.getvalue()
    assert rows() == after
    assert (Job.objects.get(), Limit.objects.get()) == (job, limit)


@pytest.mark.parametrize(
    ("app", "first_missing"),
    [
        ("jobs", "0002_log_guard_and_storage"),
        ("jobs", "0025_drop_event_type_index"),
        ("ratelimits", "0012_sealed_route_secret"),
        ("tenancy", "0002_credential"),
    ],
)
def test_what_a_part_of_the_chain_made_is_refused_in_one_sentence_and_left_as_it_is(app, first_missing):
    as_the_chain_recorded()
    Recorded.objects.filter(app=app, name__gte=first_missing).delete()
    before = rows()
    with pytest.raises(CommandError) as refused:
        call_command("migrate")
    message = str(refused.value)
    assert message.startswith(f"The tables of {app} stop before {first_missing}, ")
    assert f"bring them up to date with commit {LAST_WITH_THE_CHAIN}" in message
    assert "\n" not in message
    assert rows() == before
    assert (examine_migrations().verdict, examine_migrations().observation) == (DoctorVerdict.FAIL, message)
    assert row_security_check(databases=["default"]) == []
    assert not is_migrated()


def test_an_empty_database_is_no_part_of_the_chain():
    with connection.cursor() as cursor:
        cursor.execute("ALTER TABLE django_migrations RENAME TO elsewhere")
    assert not is_migrated()
    assert examine_migrations().advice == "Run manage.py migrate."
