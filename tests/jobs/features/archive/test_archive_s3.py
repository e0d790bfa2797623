"""The archive in a bucket: what is not safely there is not deleted here."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from django.core.management import CommandError

from jobs.features.archive.day_files import DayFiles
from jobs.models import Job, JobEvent
from jobs.services.upkeep.retention import is_archived
from tests.support.archiving import day, said, state
from tests.support.s3_server import BUCKET, S3Server, s3_server, shared_server, use_server  # noqa: F401 - fixtures

pytestmark = pytest.mark.django_db

PLACE = f"s3://{BUCKET}/queueops"


@pytest.fixture
def mortal(use: Callable[[S3Server], None]) -> Iterator[S3Server]:
    with s3_server() as running:
        use(running)
        yield running


def test_what_is_archived_in_a_bucket_comes_back_as_it_was(server: S3Server, use, old_work: list[Job]):
    use(server)
    before = state()
    assert f"{PLACE}: 6 jobs, 0 batches and " in said("archive", "--to", PLACE)
    assert not Job.objects.exists()
    assert not JobEvent.objects.exists()
    assert "are what was written" in said("unarchive", "--from", PLACE, "--verify")
    for project in ("acme", "globex"):
        said("unarchive", "--from", PLACE, "--project", project, "--day", day())
    assert state() == before


@pytest.mark.parametrize("point", ["_write", "verify", "_write_manifest", "_read_manifest"])
def test_a_server_that_goes_away_while_something_is_archived_costs_nothing(
    mortal: S3Server,
    old_work: list[Job],
    monkeypatch,
    point: str,
):
    before, does = state(), getattr(DayFiles, point)

    def dies_first(*given, **named):
        if point != "_read_manifest" or given[0].__dict__.get("parts"):
            mortal.kill()
        return does(*given, **named)

    monkeypatch.setattr(DayFiles, point, dies_first)
    with pytest.raises(CommandError, match="does not do what is asked of it"):
        said("archive", "--to", PLACE)
    assert state() == before


def test_without_the_bucket_nothing_says_that_there_is_an_archive(server: S3Server, use):
    use(server)
    for words in (["archive", "--to"], ["unarchive", "--verify", "--from"]):
        with pytest.raises(CommandError, match="there is no such bucket"):
            said(*words, "s3://no-such-bucket/queueops")
    assert not is_archived()
