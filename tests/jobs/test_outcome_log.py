"""The log beside the database: what stands in it, when, and how much of it is kept."""

from __future__ import annotations

import json
import os
import resource
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from pydantic import BaseModel

from jobs.classify import Failure
from jobs.executor import outcome_log
from jobs.executor.outcome_log import OutcomeLog, OutcomeLogUnusable, ensure_usable
from jobs.executor.pump import ExecutorPump, ExecutorSettings
from jobs.handlers import registry
from jobs.handlers.registry import Done, RunningJob, handler
from jobs.models import Job
from jobs.services.claim.claim import claim_jobs
from jobs.services.claim.fair_share import ClassTurns
from jobs.services.finish.claimed import ClaimedJob
from jobs.services.finish.outcomes import Failed, GivenBack, Succeeded
from jobs.states import JobState
from tests.factories import make_job, make_jobs
from tests.support.processes import wait_for


class Nothing(BaseModel):
    pass


@pytest.fixture
def kinds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "_handlers", dict(registry._handlers))

    @handler(kind="test.again", service="test", payload=Nothing, idempotent=True)
    async def again(job: RunningJob[Nothing]) -> Done:
        return Done({"ok": True})

    @handler(kind="test.once", service="test", payload=Nothing)
    async def once(job: RunningJob[Nothing]) -> Done:
        return Done({"ok": True})


def claimed(count: int = 1, *, kind: str = "test.again") -> list[ClaimedJob]:
    make_jobs(count, kind=kind, payload="{}")
    return claim_jobs(uuid4(), wanted=count, lease_seconds=600, turns=ClassTurns())


@pytest.fixture
def opened(tmp_path: Path) -> Iterator[Callable[..., OutcomeLog]]:
    with ExitStack() as stack:

        def opening(**bounds: Any) -> OutcomeLog:
            log = OutcomeLog(tmp_path, uuid4(), **{"most_bytes": 10**9, "days": 7.0, **bounds})
            stack.callback(log.close)
            return log

        yield opening


def lines(directory: Path) -> list[dict[str, Any]]:
    files = sorted(directory.glob("*.ndjson"))
    return [json.loads(line) for path in files for line in path.read_text().splitlines()]


@pytest.mark.django_db
def test_a_line_says_what_was_begun_and_another_how_it_ended(kinds, tmp_path, opened):
    [job] = claimed()
    log = opened()
    log.begin([job])
    fatal, again = Failure("http_400", "E", "no", "answered", 400), Failure("timeout", "E", "late")
    log.end(
        [
            Succeeded(job, "test", '{"a": 1}', 1.0),
            Succeeded(job, "test", json.dumps("x" * 5000), 1.0),
            Failed(job, "test", "moderate", True, fatal, 1.0),
            Failed(job, "test", "moderate", True, again, 1.0),
            GivenBack(job, "its executor stops"),
            GivenBack(job, "more", partial="[1]"),
        ]
    )
    begun, *ended = lines(tmp_path)
    known = {"job": str(job.id), "effect_key": str(job.id), "token": job.token, "kind": "test.again", "project": "acme"}
    assert begun.items() >= {**known, "event": "begun"}.items()
    assert all(line.items() >= {**known, "event": "ended"}.items() for line in ended)
    assert [line["outcome"] for line in ended] == ["completed", "completed", "failed", "retry", "not_done", "part"]
    assert (ended[0]["result"], ended[1]["result_bytes"]) == ({"a": 1}, 5002)
    assert "result" not in ended[1]
    assert (ended[2]["error_code"], ended[2]["message"]) == ("http_400", "no")
    assert {oct(path.stat().st_mode & 0o777) for path in tmp_path.glob("*.ndjson")} == {"0o600"}


@pytest.mark.django_db
def test_it_is_on_the_disk_before_a_call_that_may_not_be_repeated_and_waits_for_no_disk_otherwise(
    kinds, tmp_path, monkeypatch, opened
):
    synced: list[int] = []
    monkeypatch.setattr(os, "fdatasync", synced.append)
    log = opened()
    log.begin(claimed(3))
    log.end([Succeeded(job, "test", None, 1.0) for job in claimed(3, kind="test.once")])
    assert synced == []
    log.begin(claimed(3, kind="test.once"))
    assert len(synced) == 1  # for all of a claim


@pytest.mark.django_db
def test_only_so_much_and_so_old_is_kept_and_nothing_that_another_writes(kinds, tmp_path, monkeypatch, opened):
    jobs = claimed(10)
    other = opened()
    other.begin(jobs)
    [others] = tmp_path.glob("*.ndjson")
    old = tmp_path / "20200101T000000-x.ndjson"
    old.write_text("")
    os.utime(old, (0, 0))
    monkeypatch.setattr(outcome_log, "FILE_BYTES", 1000)
    log = opened(most_bytes=10_000)
    for _ in range(100):
        log.begin(jobs)
    files = set(tmp_path.glob("*.ndjson"))
    assert others in files
    assert old not in files
    assert 3 < len(files) < 10
    assert sum(path.stat().st_size for path in files) < 20_000


@pytest.mark.django_db
def test_an_old_file_that_cannot_be_deleted_keeps_no_line_from_the_log(kinds, tmp_path, opened):
    (tmp_path / "20200101T000000-x.ndjson").mkdir()  # like another user's file, it cannot be deleted
    os.utime(tmp_path / "20200101T000000-x.ndjson", (0, 0))
    opened().begin(claimed())
    [written] = (path for path in tmp_path.glob("*.ndjson") if path.is_file())
    assert len(written.read_text().splitlines()) == 1


@contextmanager
def room_for(size: int) -> Iterator[None]:
    """Files of this process get no larger, as on a disk that is full."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


@pytest.mark.django_db
def test_a_full_disk_holds_up_nothing_tears_no_line_and_makes_no_further_files(kinds, tmp_path, opened):
    jobs = claimed(3)
    log = opened()
    with room_for(500):
        for _ in range(20):
            log.begin(jobs)
    assert [line["job"] for line in lines(tmp_path)] == [str(job.id) for job in jobs[:2]], "what fitted is kept whole"
    log.begin(jobs)
    assert len(lines(tmp_path)) == 5
    assert len(list(tmp_path.glob("*.ndjson"))) == 1


@pytest.mark.django_db(transaction=True)
def test_the_line_stands_when_the_handler_begins_and_without_the_setting_nothing_is_written(kinds, tmp_path):
    seen: list[list[dict[str, Any]]] = []

    @handler(kind="test.look", service="test", payload=Nothing)
    async def look(job: RunningJob[Nothing]) -> Done:
        seen.append([line for line in lines(tmp_path) if line["job"] == str(job.id)])
        return Done({"ok": True})

    for directory in (None, tmp_path):
        job = make_job(kind="test.look", payload="{}")
        with executing(directory):
            wait_for(Job.objects.filter(pk=job.pk, status=JobState.COMPLETED).exists, what="its end")
    assert [[line["event"] for line in some] for some in seen] == [[], ["begun"]]
    assert [line["event"] for line in lines(tmp_path)] == ["begun", "ended"]


@contextmanager
def executing(directory: Path | None) -> Iterator[None]:
    settings = ExecutorSettings(
        slots=4,
        lease_seconds=6,
        renew_seconds=2,
        sweep_seconds=1,
        poll_seconds=0.1,
        drain_grace_seconds=5,
        listen=True,
        outcome_log=directory,
        outcome_log_bytes=10**9,
        outcome_log_days=1,
    )
    pumps = [ExecutorPump(settings, cluster_pid=os.getpid()) for _ in range(2)]  # one takes the quarantine seat
    for pump in pumps:
        pump.start()
    try:
        yield
    finally:
        for pump in pumps:
            pump.stop()


def test_a_directory_that_cannot_be_written_is_refused_before_anything_starts(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(OutcomeLogUnusable, match="QUEUEOPS_OUTCOME_LOG must be a directory"):
        ensure_usable(tmp_path / "file" / "log")
    ensure_usable(tmp_path / "new" / "log")
    assert oct((tmp_path / "new" / "log").stat().st_mode & 0o777) == "0o700"
