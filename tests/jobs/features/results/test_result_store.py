"""Large results in the result store: where they are, who finds them, and what becomes of objects that nobody names."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from datetime import date, timedelta
from functools import partial
from io import StringIO
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import IO, Any
from uuid import uuid4

import psycopg
import pytest
from asgiref.sync import sync_to_async
from cryptography.fernet import Fernet
from django.conf import settings as django_settings
from django.contrib.auth.models import Permission
from django.core.management import CommandError, call_command
from django.db import connection, transaction
from django.db.models.functions import Now
from django.test import Client
from pydantic import BaseModel

from jobs import cluster
from jobs.executor.pump import ExecutorPump, ExecutorSettings
from jobs.features.archive import archive
from jobs.features.archive import results as archived_results
from jobs.features.archive.day_files import ArchiveError, DayFiles
from jobs.features.encryption import encrypt_payloads
from jobs.features.erasure.erase_user import ErasureIncomplete, erase_user
from jobs.features.erasure.proof import find_traces
from jobs.features.results import garbage_collect, read
from jobs.features.results.garbage_collect import sweep_results
from jobs.features.results.read import ResultMissing, whole_result
from jobs.features.results.reference import stored_in
from jobs.features.results.store import put_result, result_store
from jobs.features.results.totals import add_figures
from jobs.features.results.writer import ResultWriter
from jobs.handlers import registry
from jobs.handlers.registry import Coalesce, Continue, Done, RunningJob, handler
from jobs.models import DeadLetter, DutyLease, Job, ResultStoreTotals, RetryPolicy
from jobs.services.claim.claim import claim_jobs, promote_due
from jobs.services.claim.fair_share import ClassTurns
from jobs.services.finish.finish import record_outcomes, retry_policies
from jobs.services.finish.outcomes import Succeeded
from jobs.services.operate.job_actions import cancel_jobs, reset_to_pending
from jobs.services.submit.spec import JobSpec
from jobs.services.submit.submit import submit_job
from jobs.services.upkeep import retention
from jobs.states import JobState
from jobs.testing import drain
from queueops.core.stores.choose import store_at
from queueops.core.stores.directory import DirectoryStore
from queueops.core.stores.store import Store, StoreError
from queueops.core.web.downloads import asynchronous
from queueops.site.diagnosis.finding import DoctorVerdict
from queueops.site.diagnosis.upkeep import examine_results
from queueops.tenancy.models import Project, ProjectMove
from queueops.tenancy.secrets import encryption
from tests.api.conftest import Api, error_of, key_for
from tests.factories import make_job, make_project
from tests.security.people import person
from tests.support.archiving import said
from tests.support.cases import every_case
from tests.support.executing import claimed
from tests.support.processes import database_url, wait_for
from tests.support.racing import run_together
from tests.support.s3_server import BUCKET, S3Server, s3_server, shared_server, use_server  # noqa: F401 - fixtures

pytestmark = pytest.mark.django_db

OVER = 1000
PLACES = ["directory", "bucket"]
Configure = Callable[..., None]


class Wanted(BaseModel):
    size: int = 2 * OVER
    twice: bool = False


@pytest.fixture(autouse=True)
def kinds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "_handlers", dict(registry._handlers))

    @handler(kind="test.large", service="test", payload=Wanted, idempotent=True, retry="moderate")
    async def large(job: RunningJob[Wanted]) -> Done | Continue:
        if job.payload.twice and job.partial is None:
            return Continue(partial="p" * job.payload.size)
        return Done({"text": "x" * job.payload.size, "partial": job.partial}, cost=7)

    @handler(kind="test.once", service="test", payload=Wanted, retry="moderate")
    def once(job: RunningJob[Wanted]) -> Done:
        return Done("y" * job.payload.size)

    @handler(kind="test.completes", service="test", payload=Wanted)
    def completes(job: RunningJob[Wanted]) -> Done:
        with transaction.atomic():
            Project.objects.create(id=f"effect-{job.id}", name="effect")
            job.complete("c" * job.payload.size)
            if job.payload.size == 3 * OVER:
                raise RuntimeError("rolled back")
        return Done("another")

    @handler(kind="test.forger", service="test", payload=Wanted)
    async def forger(job: RunningJob[Wanted]) -> Done:
        return Done(f"queueops!stored!globex/2026-01-01/{uuid4()}.1.abc!5!{'0' * 64}")

    @handler(
        kind="test.together",
        service="test",
        payload=Wanted,
        idempotent=True,
        coalesce=Coalesce(key=lambda given: "one", max_items=10, max_bytes=10_000),
    )
    async def together(group: list[RunningJob[Wanted]]) -> list[Done]:
        return [Done("z" * job.payload.size) for job in group]


@pytest.fixture
def configure(settings) -> Configure:
    def configure(place: object, **others: Any) -> None:
        chosen = {"result_store": str(place), "result_store_over": OVER, **others}
        settings.QUEUEOPS = replace(django_settings.QUEUEOPS, **chosen)

    return configure


def test_figures_whose_write_fails_are_written_with_the_next(configure, tmp_path):
    configure(tmp_path)
    store = result_store()
    assert store is not None
    writer = ResultWriter(store)
    for _ in range(2):
        writer.write(claimed("test.large"), json.dumps("x" * 2 * OVER))
        with pytest.raises(psycopg.OperationalError), writer.taken_figures() as figures:
            raise psycopg.OperationalError("the connection is lost")
    with writer.taken_figures() as figures:
        add_figures(figures)
    totals = ResultStoreTotals.objects.get()
    assert (totals.stored, totals.bytes) == (2, 2 * (2 * OVER + 2))
    with writer.taken_figures() as figures:
        assert figures.is_empty
    writer.stop()


@pytest.fixture
def bucket(server: S3Server, use) -> None:
    use(server)


@pytest.fixture
def place(request, bucket: None, tmp_path: Path, configure: Configure) -> str:
    found = str(tmp_path) if request.param == "directory" else f"s3://{BUCKET}/{tmp_path.name}"
    configure(found)
    return found


@pytest.fixture
def mortal(use, configure: Configure, tmp_path: Path) -> Iterator[S3Server]:
    with s3_server() as running:
        use(running)
        configure(f"s3://{BUCKET}/{tmp_path.name}")
        yield running


def the_store() -> Store:
    store = result_store()
    assert store is not None
    return store


def objects() -> list[str]:
    return sorted(file.name for project in ("acme", "globex") for file in the_store().files(project))


def done(kind: str = "test.large", *, size: int = 2 * OVER, **more: Any) -> Job:
    job = make_job(kind=kind, payload=json.dumps({"size": size}), **more)
    drain()
    return Job.objects.get(pk=job.pk)


def body_of(response: Any) -> bytes:
    return b"".join(response.streaming_content) if response.streaming else response.content


@pytest.mark.parametrize("place", PLACES, indirect=True)
def test_a_large_result_is_in_the_store_and_its_row_has_a_reference(place: str):
    job = done()
    stored = stored_in(job.result)
    assert stored is not None
    assert objects() == [stored.name]
    assert stored.name.startswith(f"acme/{job.finished_at:%Y-%m-%d}/{job.pk}.{job.fencing_token}.")
    assert stored.bytes > 2 * OVER > 10 * len(job.result)
    assert whole_result(job) == {"text": "x" * 2 * OVER, "partial": None}
    assert [done(size=size).result is not None for size in (1, OVER - 100)] == [True, True]
    assert objects() == [stored.name], "small ones stay in the database"
    totals = ResultStoreTotals.objects.get()
    assert (totals.stored, totals.bytes, totals.in_row, totals.failed) == (1, stored.bytes, 0, 0)


@pytest.mark.parametrize("place", PLACES, indirect=True)
def test_the_api_says_where_it_is_and_gives_it_to_the_projects_readers_alone(place: str):
    large, small, none = done(size=3_000_000), done(size=1), make_job(kind="test.large")
    api = Api(key_for("acme"))
    address = f"/api/v1/jobs/{large.pk}/result/"
    shown = api.get(f"/jobs/{large.pk}/").json()
    assert shown["result"] is None
    assert shown["stored_result"] == {"bytes": 3_000_026, "url": address}
    response = api.get(f"/jobs/{large.pk}/result/")
    assert response["Content-Type"] == "application/json"
    assert json.loads(body_of(response)) == {"text": "x" * 3_000_000, "partial": None}
    assert api.get(f"/jobs/{small.pk}/result/").json() == api.get(f"/jobs/{small.pk}/").json()["result"]
    assert api.get(f"/jobs/{small.pk}/").json()["stored_result"] is None
    assert api.get(f"/jobs/{none.pk}/result/").json() is None
    make_project("globex")
    assert error_of(Api(key_for("globex")).get(f"/jobs/{large.pk}/result/"), 404)["code"] == "not_found"


def test_a_batchs_results_name_the_large_ones(configure: Configure, tmp_path: Path):
    configure(tmp_path)
    api = Api(key_for("acme"))
    lines = "".join(json.dumps({"kind": "test.large", "payload": {"size": size}}) + "\n" for size in (1, 5000))
    batch = api.lines(lines).json()["id"]
    drain()
    small, large = api.get(f"/batches/{batch}/results/").json()["results"]
    assert (small["result"]["text"], small["stored_result"]) == ("x", None)
    assert (large["result"], large["stored_result"]["bytes"]) == (None, 5026)


@pytest.mark.django_db(transaction=True)  # real threads
@pytest.mark.parametrize("kind", ["test.once", "test.together"])
def test_results_of_threads_and_of_groups_are_there_too(configure: Configure, tmp_path: Path, kind: str):
    configure(tmp_path)
    api = Api(key_for("acme"))
    jobs = [api.post("/jobs/", {"kind": kind, "payload": {"size": size}}).json()["id"] for size in (5000, 1, 6000)]
    drain()
    found = [Job.objects.get(pk=job) for job in jobs]
    assert [len(whole_result(job)) for job in found] == [5000, 1, 6000]
    assert [stored_in(job.result) is not None for job in found] == [True, False, True]


def test_without_the_setting_all_is_in_the_row(settings):
    assert settings.QUEUEOPS.result_store is None
    job = done(size=300_000)
    assert job.result["text"] == "x" * 300_000
    assert not ResultStoreTotals.objects.exists()
    assert cluster.sweep_result_store() == 0


def test_a_part_stays_in_the_row_where_the_next_run_reads_it(configure: Configure, tmp_path: Path):
    configure(tmp_path)
    job = make_job(kind="test.large", payload='{"twice": true}')
    drain()
    job.refresh_from_db()
    assert whole_result(job)["partial"] == "p" * 2 * OVER
    assert len(objects()) == 1


def test_a_job_that_its_handler_completes_has_its_large_result_in_the_store_too(configure: Configure, tmp_path: Path):
    """An effect that is rolled back takes the reference along; what was written is an object that nobody names."""
    configure(tmp_path)
    kept, undone = done("test.completes"), done("test.completes", size=3 * OVER)
    assert (kept.status, whole_result(kept)) == (JobState.COMPLETED, "c" * 2 * OVER)
    stored = stored_in(kept.result)
    assert stored is not None
    assert (undone.status, undone.result, undone.last_error_code) == (JobState.FAILED, None, "handler_error")
    assert list(Project.objects.filter(id__startswith="effect").values_list("id", flat=True)) == [f"effect-{kept.pk}"]
    assert len(objects()) == 2
    assert sweep_results(the_store(), grace=timedelta(0)).removed == 1
    assert objects() == [stored.name]
    totals = ResultStoreTotals.objects.get()
    assert (totals.stored, totals.removed) == (2, 1)


def test_a_handler_that_completes_its_job_while_the_store_is_away_keeps_its_effect(mortal: S3Server):
    mortal.kill()
    job = done("test.completes")
    assert (job.status, job.result) == (JobState.COMPLETED, "c" * 2 * OVER)
    assert Project.objects.filter(id=f"effect-{job.pk}").exists()


def test_a_handler_that_completes_its_job_with_what_neither_keeps_has_no_effect(mortal: S3Server, configure: Configure):
    configure(django_settings.QUEUEOPS.result_store, max_job_mb=1)
    mortal.kill()
    job = done("test.completes", size=1_500_000)
    assert (job.status, job.last_error_code) == (JobState.FAILED, "result_store_failed")
    assert not Project.objects.filter(id=f"effect-{job.pk}").exists()


def test_what_a_handler_returns_is_no_reference(configure: Configure, tmp_path: Path):
    configure(tmp_path)
    job = done("test.forger")
    assert stored_in(job.result) is None
    assert job.result.startswith("queueops stored globex/")
    assert Api(key_for("acme")).get(f"/jobs/{job.pk}/result/").json() == job.result


def test_what_is_too_large_for_the_store_is_a_dead_letter_that_says_so(configure: Configure, tmp_path: Path):
    configure(tmp_path, result_store_max_mb=1)
    job = done(size=1_000_001)
    assert (job.status, job.last_error_code) == (JobState.FAILED, "result_too_large")
    letter = DeadLetter.objects.get(job=job)
    assert "1,000,027 bytes; at most 1,000,000 are kept" in letter.error_message
    assert "The call was made" in letter.remediation
    assert objects() == []


def test_a_store_that_refuses_costs_no_result_that_the_database_can_keep(mortal: S3Server):
    mortal.kill()
    job = done()
    assert (job.status, job.result["text"]) == (JobState.COMPLETED, "x" * 2 * OVER)
    totals = ResultStoreTotals.objects.get()
    assert (totals.stored, totals.in_row, totals.failed) == (0, 1, 1)
    assert "does not do what is asked of it" in totals.failure


@pytest.mark.parametrize(("kind", "again"), [("test.large", True), ("test.once", False)])
def test_a_result_that_neither_keeps_is_tried_again_where_that_does_no_harm_and_says_why(
    mortal: S3Server, configure: Configure, kind: str, *, again: bool
):
    configure(django_settings.QUEUEOPS.result_store, max_job_mb=1)
    RetryPolicy.objects.create(name="soon", initial_seconds=0.05, multiplier=1, max_delay_seconds=0.1)
    mortal.kill()
    job = done(kind, size=1_500_000, retry_policy_id="soon")
    assert (job.last_error_code, job.retry_count > 0) == ("result_store_failed", again)
    assert again or job.status == JobState.FAILED
    assert "could not be stored" in job.last_error_message


@contextmanager
def executing(mortal: S3Server) -> Iterator[None]:
    """Run executors; at the end the server dies, so that none waits for it: it could not end by itself."""
    settings = ExecutorSettings(
        slots=8,
        lease_seconds=30,
        renew_seconds=0.5,
        sweep_seconds=5,
        poll_seconds=0.05,
        drain_grace_seconds=5,
        listen=True,
    )
    pumps = [ExecutorPump(settings, cluster_pid=os.getpid()) for _ in range(2)]
    for pump in pumps:
        pump.start()
    try:
        yield
    finally:
        mortal.kill()
        wait_for(lambda: not any(pump.loop.has_lost_threads for pump in pumps), what="the end of the writes")
        for pump in pumps:
            pump.stop()


def states(*jobs: Job) -> set[str]:
    return set(Job.objects.filter(pk__in=[job.pk for job in jobs]).values_list("status", flat=True))


@pytest.mark.django_db(transaction=True)
def test_a_store_that_hangs_holds_up_no_other_job(mortal: S3Server):
    mortal.process.send_signal(signal.SIGSTOP)
    large = [make_job(kind="test.large", payload="{}") for _ in range(5)]  # more than there are threads for them
    with executing(mortal):
        wait_for(lambda: states(*large) == {JobState.IN_PROGRESS}, what="the claim")
        others = [make_job(kind="test.large", payload='{"size": 1}') for _ in range(50)]
        wait_for(lambda: states(*others) == {JobState.COMPLETED}, what="the others' end")
        assert states(*large) == {JobState.IN_PROGRESS}
        mortal.kill()
        wait_for(lambda: states(*large) == {JobState.COMPLETED}, what="the end of the large ones")


@pytest.mark.django_db(transaction=True)
def test_a_store_that_hangs_is_given_up_in_time_and_not_asked_for_a_while(mortal: S3Server, configure: Configure):
    configure(django_settings.QUEUEOPS.result_store, result_store_seconds=0.3)
    mortal.process.send_signal(signal.SIGSTOP)
    with executing(mortal):
        first = make_job(kind="test.large", payload="{}")
        wait_for(lambda: states(first) == {JobState.COMPLETED}, what="its end")
        later = [make_job(kind="test.large", payload="{}") for _ in range(10)]
        wait_for(lambda: states(*later) == {JobState.COMPLETED}, what="the others' end")
        wait_for(lambda: ResultStoreTotals.objects.filter(in_row=11).exists(), what="the figures")
    totals = ResultStoreTotals.objects.get()
    assert (totals.failed, totals.failure) == (1, "it did not answer in time")


@pytest.mark.django_db(transaction=True)
def test_a_job_that_is_cancelled_while_its_result_is_written_ends_cancelled(mortal: S3Server):
    mortal.process.send_signal(signal.SIGSTOP)
    job = make_job(kind="test.large", payload="{}")
    with executing(mortal):
        wait_for(lambda: states(job) == {JobState.IN_PROGRESS}, what="the claim")
        cancel_jobs([job.pk], actor="user:1", reason="no more")
        mortal.kill()
    job.refresh_from_db()
    assert (job.status, job.result) == (JobState.CANCELLED, None)


@pytest.mark.parametrize("place", PLACES, indirect=True)
def test_what_the_store_has_lost_or_changed_is_said_and_never_given(place: str):
    job = done()
    stored = stored_in(job.result)
    assert stored
    api = Api(key_for("acme"))
    with the_store().write(stored.name) as file:
        file.write(b'{"text": "other"}')
    with pytest.raises(ResultMissing, match="another content"):
        whole_result(job)
    the_store().remove(stored.name)
    error = error_of(api.get(f"/jobs/{job.pk}/result/"), 410)
    assert (error["code"], error["details"]) == ("result_missing", {"object": stored.name})


def test_without_the_store_reading_says_so(configure: Configure, tmp_path: Path, settings):
    configure(tmp_path)
    job = done()
    settings.QUEUEOPS = replace(settings.QUEUEOPS, result_store=None)
    error = error_of(Api(key_for("acme")).get(f"/jobs/{job.pk}/result/"), 503)
    assert error["code"] == "store_failed"
    with pytest.raises(StoreError, match="QUEUEOPS_RESULT_STORE is not set here"):
        whole_result(job)


@pytest.mark.django_db(transaction=True)
def test_a_store_that_hangs_keeps_few_of_the_threads_that_answer_requests(
    configure: Configure, tmp_path: Path, monkeypatch
):
    configure(tmp_path)
    address, key = f"/jobs/{done().pk}/result/", key_for("acme")
    reading, answers = threading.Semaphore(0), threading.Event()

    def hangs(store: DirectoryStore, name: str, real: Any = DirectoryStore.read) -> Any:
        reading.release()
        assert answers.wait(60)
        return real(store, name)

    def get(_number: int) -> bytes:
        return body_of(Api(key).get(address))

    monkeypatch.setattr(DirectoryStore, "read", hangs)
    monkeypatch.setattr(read, "PLACE_SECONDS", 0.0)
    with ThreadPoolExecutor(read.MAX_READERS) as threads, ThreadPoolExecutor(1) as beside:
        waiting = beside.submit(run_together, read.MAX_READERS, get, threads=threads)
        try:
            assert all(reading.acquire(timeout=60) for _ in range(read.MAX_READERS))
            error = error_of(Api(key).get(address), 503)
            assert (error["code"], "try again" in error["message"]) == ("store_failed", True)
        finally:
            answers.set()
        assert [json.loads(one)["text"] for one in waiting.result(60)] == ["x" * 2 * OVER] * read.MAX_READERS
    assert json.loads(get(0))["text"] == "x" * 2 * OVER


def test_a_piece_that_does_not_come_holds_up_nothing_that_is_for_one_thread():
    comes = threading.Event()

    def pieces() -> Iterator[bytes]:
        comes.wait(30)
        yield b"1"

    async def both() -> bytes:
        answer = asyncio.ensure_future(anext(asynchronous(pieces())))
        await asyncio.sleep(0)  # it has begun
        await asyncio.wait_for(sync_to_async(comes.set)(), 20)
        return await answer

    assert asyncio.run(both()) == b"1"


@every_case(
    "text",
    [
        "queueops!stored!",
        f"queueops!stored!../2026-01-01/x!5!{'0' * 64}",
        f"queueops!stored!a/2026-01-01/../b!5!{'0' * 64}",
        f"queueops!stored!a/2026-01-01/b!5!{'0' * 64}, it said",
    ],
    undone=True,
)
def test_what_an_earlier_release_kept_and_begins_as_a_reference_does_is_a_result(
    text: str, configure: Configure, tmp_path: Path
):
    configure(tmp_path)
    job = make_job(state=JobState.COMPLETED)
    Job.objects.filter(pk=job.pk).update(result=text)
    assert Api(key_for("acme")).get(f"/jobs/{job.pk}/result/").json() == text


def claimed_twice() -> tuple[Any, Any]:
    """A job's first claim, from which it was taken, and its second."""
    job = make_job(kind="test.large", payload="{}")
    [first] = claim_jobs(uuid4(), wanted=1, lease_seconds=600, turns=ClassTurns())
    reset_to_pending([job.pk], actor="user:1", reason="its executor hangs")
    promote_due()
    [second] = claim_jobs(uuid4(), wanted=1, lease_seconds=600, turns=ClassTurns())
    return first, second


def write(job: Any, text: str) -> set[Any]:
    outcome = Succeeded(job, "test", put_result(the_store(), job, json.dumps(text)), 1.0)
    return record_outcomes([outcome], policies=retry_policies()).lost


@pytest.mark.parametrize("place", PLACES, indirect=True)
def test_a_stale_executor_overwrites_nothing_and_what_it_wrote_is_swept(place: str):
    first, second = claimed_twice()
    assert write(second, "winner") == set()
    assert write(first, "stale") == {first.id}
    job = Job.objects.get(pk=second.id)
    assert whole_result(job) == "winner"
    assert len(objects()) == 2
    assert sweep_results(the_store(), grace=timedelta()).removed == 1
    stored = stored_in(job.result)
    assert stored
    assert objects() == [stored.name]
    assert whole_result(job) == "winner"


@pytest.mark.parametrize("place", PLACES, indirect=True)
def test_an_object_whose_claim_goes_on_is_kept_however_old(place: str):
    first, second = claimed_twice()
    for job in (first, second):
        put_result(the_store(), job, '"text"')
    assert sweep_results(the_store(), grace=timedelta()).removed == 1
    [left] = objects()
    assert f"{second.id}.{second.token}." in left, "its commit may come, however long the database is away"


@pytest.mark.parametrize("place", PLACES, indirect=True)
def test_a_sweep_leaves_what_is_young_what_is_not_ours_and_goes_on_where_it_was(place: str, monkeypatch):
    monkeypatch.setattr(garbage_collect, "OBJECTS_AT_ONCE", 2)
    jobs = [done() for _ in range(3)]
    Job.objects.filter(pk__in=[job.pk for job in jobs[:2]]).delete()
    with the_store().write("acme/readme.txt") as file:
        file.write(b"somebody's")
    with the_store().write(f"elsewhere/2026-01-01/{uuid4()}.1.abc") as file:
        file.write(b"of a project that lives in another installation")
    assert sweep_results(the_store()).removed == 0, "they are younger than a day"
    after, removed, steps = "", 0, 0
    while True:
        swept = sweep_results(the_store(), after=after, seconds=0, grace=timedelta())
        removed, steps, after = removed + swept.removed, steps + 1, swept.after
        if not after:
            break
    assert (removed, steps) == (2, 4)
    stored = stored_in(Job.objects.get().result)
    assert stored
    assert objects() == [stored.name, "acme/readme.txt"]
    assert len(list(the_store().files("elsewhere"))) == 1
    totals = ResultStoreTotals.objects.get()
    assert totals.removed == 2
    assert totals.swept_at is not None


def test_a_sweep_of_a_slow_store_stops_after_a_removal_and_goes_on_there(
    configure: Configure, tmp_path: Path, monkeypatch
):
    configure(tmp_path)
    make_project()
    for _ in range(4):
        done()
    Job.objects.all().delete()
    clock, timeouts = [0.0], []

    def slow(store: DirectoryStore, name: str, real: Any = DirectoryStore.remove) -> None:
        clock[0] += 60
        with connection.cursor() as cursor:
            cursor.execute("SHOW idle_in_transaction_session_timeout")
            timeouts.extend(cursor.fetchone())
        real(store, name)

    monkeypatch.setattr(DirectoryStore, "remove", slow)
    monkeypatch.setattr(garbage_collect, "time", SimpleNamespace(monotonic=lambda: clock[0]))
    left, after = objects(), ""
    for number in range(1, 5):
        swept = sweep_results(the_store(), after=after, seconds=10, grace=timedelta())
        assert (swept.removed, objects()) == (1, left[number:])
        after = swept.after
        assert after
    assert sweep_results(the_store(), after=after, seconds=10, grace=timedelta()).after == ""
    assert set(timeouts) == {"0"}


@pytest.mark.parametrize("place", PLACES, indirect=True)
def test_a_copy_of_the_database_sweeps_nothing(place: str, monkeypatch):
    monkeypatch.setattr(garbage_collect, "sweep_results", partial(sweep_results, grace=timedelta()))
    done()
    Job.objects.all().delete()
    with the_store().write(garbage_collect.MARK) as file:
        file.write(b"7000000000000000000.16384")
    assert cluster.sweep_result_store() == 0
    with pytest.raises(
        garbage_collect.ForeignStore
    ):  # nor does what erases a user or encrypts anew, which knows the names
        garbage_collect.remove_objects(the_store(), objects())
    found = examine_results()
    assert (found.verdict, "7000000000000000000.16384" in found.observation) == (DoctorVerdict.WARN, True)
    the_store().remove(garbage_collect.MARK)
    examine_results()
    with pytest.raises(FileNotFoundError):  # to look does not make it this database's own
        the_store().read(garbage_collect.MARK)
    DutyLease.objects.all().delete()
    assert cluster.sweep_result_store() == 1
    garbage_collect.ensure_own_store(the_store())  # it is marked as this database's own


def test_no_two_databases_are_taken_for_one(db):
    with connection.cursor() as cursor:
        cursor.execute(garbage_collect.DATABASE.replace(" WHERE datname = current_database()", ""))
        found = [name for [name] in cursor.fetchall()]
    assert len(set(found)) == len(found) > 1


def test_a_partial_file_of_a_killed_writer_is_swept(configure: Configure, tmp_path: Path):
    configure(tmp_path)
    make_project("acme")
    rest = tmp_path / "acme" / "2026-01-01" / f"{uuid4()}.1.abc.partial"
    rest.parent.mkdir(parents=True)
    rest.write_text("half")
    assert sweep_results(the_store(), grace=timedelta()).removed == 1
    assert list(tmp_path.iterdir()) == [], "its empty folders go with it"


@pytest.mark.parametrize("place", PLACES, indirect=True)
def test_retention_deletes_the_row_and_the_sweep_the_object(place: str, settings):
    job = done()
    Job.objects.filter(pk=job.pk).update(finished_at=Now() - timedelta(days=4000))
    retention.apply_retention(seconds=30)
    assert not Job.objects.exists()
    assert len(objects()) == 1
    assert sweep_results(the_store(), grace=timedelta()).removed == 1
    assert objects() == []


@pytest.mark.parametrize("place", PLACES, indirect=True)
def test_erasing_a_user_removes_their_objects_at_once_and_no_others(place: str):
    user = uuid4()
    theirs, other = done(user_id=user), done()
    erased = erase_user("acme", user, store=None, cancel=False, actor="user:1", reason="asked", say=print)
    assert erased.rows["stored results"] == 1
    stored = stored_in(other.result)
    assert stored
    assert objects() == [stored.name]
    theirs.refresh_from_db()
    assert theirs.result is None


def test_results_of_a_users_deleted_jobs_go_with_the_erasure_and_its_proof_looks_for_them(
    configure: Configure, tmp_path: Path
):
    configure(tmp_path)
    user = uuid4()
    done(user_id=user)
    Job.objects.filter(user_id=user).update(finished_at=Now() - timedelta(days=4000))
    retention.apply_retention(seconds=30)
    assert not Job.objects.exists()
    assert len(objects()) == 1
    assert find_traces("acme", user, archive=None)["results that no job names"] == 1
    erased = erase_user("acme", user, store=None, cancel=False, actor="user:1", reason="asked", say=print)
    assert erased.rows["stored results"] == 1
    assert objects() == []
    assert find_traces("acme", user, archive=None) == {}
    (tmp_path / "acme" / "2026-01-01").mkdir(parents=True)
    name = f"acme/2026-01-01/{done().pk}.1.abc"
    (tmp_path / name).write_text("x" * 999_990 + str(user))  # across two pieces of what is read at once
    assert find_traces("acme", user, archive=None)["results with the id"] == 1


def test_an_erasure_that_does_not_reach_the_store_says_so(mortal: S3Server):
    user = uuid4()
    done(user_id=user)
    mortal.kill()
    with pytest.raises(ErasureIncomplete, match="Large results of the user are in the result store still"):
        erase_user("acme", user, store=None, cancel=False, actor="user:1", reason="asked", say=print)
    assert Job.objects.get().result is None


OLD, NEW = ("k1", Fernet.generate_key().decode()), ("k2", Fernet.generate_key().decode())
WORD = b"xxxxxxxx"


def readable(directory: Path) -> list[str]:
    return [path.name for path in directory.rglob("*") if path.is_file() and WORD in path.read_bytes()]


def encrypt(*options: str) -> str:
    out = StringIO()
    call_command("encrypt_payloads", *options, stdout=out, stderr=StringIO())
    return out.getvalue()


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(encrypt_payloads, "SETTING_KNOWN_SECONDS", 0.0)
    encryption.forget_encrypted()


def set_encrypted(*, to: bool) -> None:
    make_project("acme")
    Project.objects.filter(pk="acme").update(encrypted=to)
    encryption.forget_encrypted()


def submitted() -> Job:
    job = submit_job(JobSpec(kind="test.large", payload={}), project_id="acme", actor="key:test")
    drain()
    return Job.objects.get(pk=job.id)


@pytest.mark.usefixtures("quick")
def test_an_encrypted_projects_objects_cannot_be_read_and_its_readers_get_them(configure: Configure, tmp_path: Path):
    configure(tmp_path, payload_keys=(OLD,), debug=False)
    set_encrypted(to=True)
    job = submitted()
    assert stored_in(job.result), "the reference itself hides nothing, and the sweep reads it"
    assert (readable(tmp_path), len(objects())) == ([], 1)
    assert json.loads(body_of(Api(key_for("acme")).get(f"/jobs/{job.pk}/result/")))["text"] == "x" * 2 * OVER
    viewer = person("viewer", is_staff=True)
    viewer.user_permissions.add(Permission.objects.get(content_type__app_label="jobs", codename="view_job"))
    client = Client()
    client.force_login(viewer)
    for page in (f"/api/v1/jobs/{job.pk}/result/?project=acme", f"/admin/jobs/job/{job.pk}/result/"):
        answer = client.get(page, headers={"X-Project": "acme"})
        assert answer.status_code == 200
        assert answer.json() == "(encrypted; you may not read it)"
    configure(tmp_path, payload_keys=(NEW,), debug=False)
    assert "the key k1 is not set here" in str(whole_result(job))
    set_encrypted(to=False)
    other = submitted()
    assert len(readable(tmp_path)) == 1, "another project's is plain"
    assert whole_result(other)["text"] == "x" * 2 * OVER


@pytest.mark.django_db(transaction=True)
@pytest.mark.usefixtures("quick")
def test_the_keys_change_goes_over_the_objects_and_leaves_none_of_the_old_ones(configure: Configure, tmp_path: Path):
    configure(tmp_path, payload_keys=(OLD,), debug=False)
    set_encrypted(to=False)
    job = submitted()
    assert len(readable(tmp_path)) == 1
    for is_encrypted, keys in ((True, (OLD,)), (True, (NEW, OLD)), (False, (NEW,))):
        configure(tmp_path, payload_keys=keys, debug=False)
        set_encrypted(to=is_encrypted)
        before = objects()
        assert "would be" in encrypt("--project", "acme", "--dry-run")
        assert objects() == before
        assert "1 of jobs_job" in encrypt("--project", "acme")
        job.refresh_from_db()
        stored = stored_in(job.result)
        assert stored
        assert objects() == [stored.name] != before
        assert (readable(tmp_path) == []) is is_encrypted
        assert whole_result(job)["text"] == "x" * 2 * OVER
        assert "nothing" in encrypt("--project", "acme")


@pytest.mark.django_db(transaction=True)
@pytest.mark.usefixtures("quick")
def test_no_job_is_locked_while_the_store_is_asked(configure: Configure, tmp_path: Path, monkeypatch):
    configure(tmp_path, payload_keys=(OLD,), debug=False)
    set_encrypted(to=False)
    job = submitted()
    asked = []

    def looks(store: DirectoryStore, name: str, real: Any = DirectoryStore.read) -> Any:
        asked.append(name)
        with psycopg.connect(database_url(), autocommit=True) as executor:
            executor.execute("SELECT FROM jobs_job FOR UPDATE NOWAIT")
        return real(store, name)

    monkeypatch.setattr(DirectoryStore, "read", looks)
    set_encrypted(to=True)
    [before] = objects()
    assert "1 of jobs_job" in encrypt("--project", "acme")
    assert before in asked
    assert readable(tmp_path) == []
    job.refresh_from_db()
    assert whole_result(job)["text"] == "x" * 2 * OVER


@pytest.mark.django_db(transaction=True)
@pytest.mark.usefixtures("quick")
def test_an_object_whose_row_stays_as_it_is_stays(configure: Configure, tmp_path: Path):
    configure(tmp_path, payload_keys=(OLD,), debug=False)
    set_encrypted(to=True)
    job = submitted()
    with connection.cursor() as cursor:
        cursor.execute("UPDATE jobs_job SET last_error_message = 'queueops!sealed!lost!gAAAA'")
    configure(tmp_path, payload_keys=(NEW, OLD), debug=False)
    with pytest.raises(CommandError, match="QUEUEOPS_PAYLOAD_KEYS: lost"):
        encrypt("--project", "acme")
    job.refresh_from_db()
    stored = stored_in(job.result)
    assert stored
    assert stored.name in objects()
    assert whole_result(job)["text"] == "x" * 2 * OVER


def test_the_admin_tells_where_it_is_and_gives_it_with_secrets_masked(
    configure: Configure, tmp_path: Path, admin_client
):
    @handler(kind="test.secretive", service="test", payload=Wanted)
    async def secretive(job: RunningJob[Wanted]) -> Done:
        return Done({"text": "x" * job.payload.size, "password": "hush"})

    configure(tmp_path)
    job = done("test.secretive")
    page = admin_client.get(f"/admin/jobs/job/{job.pk}/change/").content.decode()
    assert "is in the result store" in page
    assert f"/admin/jobs/job/{job.pk}/result/" in page
    answer = admin_client.get(f"/admin/jobs/job/{job.pk}/result/")
    assert answer["Content-Disposition"] == f'attachment; filename="result-{job.pk}.json"'
    assert answer.json()["text"] == "x" * 2 * OVER
    assert "hush" not in answer.content.decode()
    session = admin_client.get(f"/api/v1/jobs/{job.pk}/result/", headers={"X-Project": "acme"})
    assert "hush" not in body_of(session).decode()
    the_store().remove(objects()[0])
    lost = admin_client.get(f"/admin/jobs/job/{job.pk}/result/", follow=True)
    assert "which the job&#x27;s row names" in lost.content.decode()


def test_doctor_looks_whether_it_can_be_written(configure: Configure, tmp_path: Path, settings):
    configure(tmp_path)
    done()
    found = examine_results()
    assert (found.verdict, "1 stored" in found.observation) == (DoctorVerdict.OK, True)
    ResultStoreTotals.objects.update(failed=1, failure="no answer", failed_at=Now())
    assert "it failed at" in examine_results().observation
    ResultStoreTotals.objects.update(failed_at=None, swept_at=Now() - timedelta(days=1))
    found = examine_results()
    assert (found.verdict, "last swept" in found.observation) == (DoctorVerdict.WARN, True)
    (tmp_path / "file").write_text("")
    configure(tmp_path / "file")
    assert examine_results().verdict == DoctorVerdict.FAIL
    settings.QUEUEOPS = replace(settings.QUEUEOPS, result_store=None)
    found = examine_results()
    assert (found.verdict, "and was" in found.observation) == (DoctorVerdict.FAIL, True)


@pytest.mark.parametrize("place", PLACES, indirect=True)
def test_the_archive_has_a_copy_that_comes_back_under_the_same_name(place: str, tmp_path: Path):
    job = done()
    [name] = objects()
    with connection.cursor() as cursor, transaction.atomic():
        cursor.execute("SET LOCAL session_replication_role = replica")
        cursor.execute("UPDATE jobs_job SET finished_at = finished_at - interval '40 days'")
    root = tmp_path / "archive"
    said("archive", "--to", str(root))
    assert not Job.objects.exists()
    assert objects() == [], "it waits for no sweep once its copy was read back"
    assert "2 files" in said("unarchive", "--from", str(root), "--verify")
    said("unarchive", "--from", str(root), "--project", "acme", "--job", str(job.pk))
    assert objects() == [name]
    assert whole_result(Job.objects.get()) == {"text": "x" * 2 * OVER, "partial": None}
    [copy] = root.rglob("results/*")
    copy.write_bytes(b"1")
    with pytest.raises(CommandError, match="its checksum differs"):
        said("unarchive", "--from", str(root), "--verify")


@pytest.mark.django_db(transaction=True)
@pytest.mark.usefixtures("quick")
def test_a_result_that_is_encrypted_while_it_is_archived_is_archived_encrypted(configure: Configure, tmp_path: Path):
    configure(tmp_path / "results", payload_keys=(OLD,), debug=False)
    set_encrypted(to=False)
    job = submitted()
    set_encrypted(to=True)
    files = DayFiles(DirectoryStore(tmp_path / "archive"), "acme", date(2026, 1, 1))
    jobs = archive.SORTS[0]

    def meanwhile() -> None:
        encrypt("--project", "acme")

    told = archived_results.with_results(
        files,
        jobs.read("acme", [job.pk]),
        keep=meanwhile,
        again=partial(archive._read_again, jobs, "acme"),
    )
    [(_, line)] = told
    stored = archived_results.stored_of(line)
    assert stored
    assert stored.name == objects()[0]
    assert archived_results.verify_result(files, stored)
    assert readable(tmp_path) == []


class _Forgetful(DirectoryStore):
    """A directory that has lost what was just written, as one that was mounted over meanwhile."""

    def read(self, name: str) -> IO[bytes]:
        raise FileNotFoundError


def test_a_result_is_not_taken_for_lost_where_its_copy_is(configure: Configure, tmp_path: Path):
    configure(tmp_path / "results")
    stored = stored_in(done().result)
    assert stored
    target = _Forgetful(tmp_path / "archive")
    with pytest.raises(ArchiveError, match="cannot be copied"):
        archived_results._copy(stored, source=the_store(), name=stored.name, target=target, place="copy")


def test_archiving_what_a_moved_project_left_removes_no_object_that_its_rows_there_name(
    configure: Configure, tmp_path: Path
):
    configure(tmp_path / "results")
    done()
    with connection.cursor() as cursor, transaction.atomic():
        cursor.execute("SET LOCAL session_replication_role = replica")
        cursor.execute("UPDATE jobs_job SET finished_at = finished_at - interval '40 days'")
    Project.objects.update(move=ProjectMove.MOVED)
    said("archive", "--to", str(tmp_path / "archive"))
    assert (Job.objects.count(), len(objects())) == (0, 1)


def test_the_right_to_archive_is_kept_through_thousands_of_large_results(
    configure: Configure, tmp_path: Path, monkeypatch
):
    configure(tmp_path / "results")
    for _ in range(3):
        done()
    with connection.cursor() as cursor, transaction.atomic():
        cursor.execute("SET LOCAL session_replication_role = replica")
        cursor.execute("UPDATE jobs_job SET finished_at = finished_at - interval '40 days'")
    did: list[str] = []

    def watched(what: str, real: Any) -> Callable[..., Any]:
        def noted(*arguments: Any, **options: Any) -> Any:
            did.append(what)
            return real(*arguments, **options)

        return noted

    monkeypatch.setattr(archive.ArchiveDuty, "keep", watched("keep", archive.ArchiveDuty.keep))
    monkeypatch.setattr(archived_results, "_copy", watched("copy", archived_results._copy))
    said("archive", "--to", str(tmp_path / "archive"))
    assert [before for before, what in pairwise(did) if what == "copy"] == ["keep"] * 3


def test_erasing_a_user_takes_their_results_out_of_the_archive(configure: Configure, tmp_path: Path):
    configure(tmp_path / "results")
    user = uuid4()
    for whose in (user, None):
        done(user_id=whose)
    with connection.cursor() as cursor, transaction.atomic():
        cursor.execute("SET LOCAL session_replication_role = replica")
        cursor.execute("UPDATE jobs_job SET finished_at = finished_at - interval '40 days'")
    archive_in = tmp_path / "archive"
    said("archive", "--to", str(archive_in))
    assert len(list(archive_in.rglob("results/*"))) == 2
    erased = erase_user(
        "acme", user, store=store_at(str(archive_in)), cancel=False, actor="user:1", reason="asked", say=print
    )
    assert erased.rows["archived results"] == 1
    assert len(list(archive_in.rglob("results/*"))) == 1


class _Full(DirectoryStore):
    """A directory that has place for one large result."""

    @contextmanager
    def write(self, name: str) -> Iterator[IO[bytes]]:
        if "/results/" in name and next(self.root.rglob("results/*"), None):
            raise OSError(28, "No space left on device")
        with super().write(name) as file:
            yield file


def test_erasing_a_user_removes_what_an_archiving_that_was_cut_off_copied(configure: Configure, tmp_path: Path):
    configure(tmp_path / "results")
    user = uuid4()
    for whose in (user, None):
        done(user_id=whose)
    with connection.cursor() as cursor, transaction.atomic():
        cursor.execute("SET LOCAL session_replication_role = replica")
        cursor.execute("UPDATE jobs_job SET finished_at = finished_at - interval '40 days'")
    root = tmp_path / "archive"
    with pytest.raises(ArchiveError, match="No space"):
        archive.archive(_Full(root), say=print, actor="user:1")
    assert len(list(root.rglob("results/*"))) == 1
    erase_user("acme", user, store=DirectoryStore(root), cancel=False, actor="user:1", reason="asked", say=print)
    assert list(root.rglob("results/*")) == []
    said("archive", "--to", str(root))
    assert len(list(root.rglob("results/*"))) == 1, "of the other's job"


def test_what_cannot_be_copied_is_not_archived(mortal: S3Server, tmp_path: Path):
    done()
    with connection.cursor() as cursor, transaction.atomic():
        cursor.execute("SET LOCAL session_replication_role = replica")
        cursor.execute("UPDATE jobs_job SET finished_at = finished_at - interval '40 days'")
    mortal.kill()
    with pytest.raises(CommandError, match="cannot be copied"):
        said("archive", "--to", str(tmp_path))
    assert Job.objects.count() == 1
