"""The producer's clients against the real server."""

from __future__ import annotations

import asyncio
import re
import threading
import time
import tracemalloc
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from functools import partial
from typing import Any

import pytest
from django.db import connection

from jobs.models import Batch, Epoch, Job
from jobs.states import JobState
from queueops_client import (
    AsyncQueueOps,
    BatchRejected,
    Conflict,
    IdempotencyKeyReused,
    InvalidRequest,
    JobSpec,
    NotFound,
    QueueOps,
    Unreachable,
    WaitTimeout,
    errors,
)
from queueops_client.retry import NEVER, Retry
from tests.api.conftest import SPEC
from tests.client.commands import finish
from tests.client.conftest import CLIENTS, Connect
from tests.client.proxy import Proxy, proxy_to
from tests.client.typescript import error_types
from tests.dashboards.live.conftest import web_process
from tests.factories import make_batch, make_dead_letter, make_job, make_jobs
from tests.support.awake import awake
from tests.support.background import in_background
from tests.support.event_log import log_event, writer
from tests.support.processes import ROOT, free_port, wait_for

pytestmark = pytest.mark.django_db(transaction=True)

KIND, PAYLOAD = SPEC["kind"], {**SPEC["payload"], "method": "PUT"}


def specs(count: int) -> Iterator[JobSpec]:
    return (JobSpec(kind=KIND, payload={**PAYLOAD, "json": {"row": number}}) for number in range(count))


def test_a_job_is_submitted_once_whatever_its_key_says_elsewhere(queue: QueueOps):
    first = queue.submit(KIND, PAYLOAD, idempotency_key="row 7", priority="urgent")
    again = queue.submit(KIND, PAYLOAD, idempotency_key="row 7", priority="urgent")
    assert (first.created, again.created, again.id) == (True, False, first.id)
    found = queue.job(first)
    assert (found.state, found.priority, found.payload["url"]) == ("queued", "urgent", PAYLOAD["url"])
    with pytest.raises(IdempotencyKeyReused):
        queue.submit(KIND, {**PAYLOAD, "method": "POST"}, idempotency_key="row 7")


@pytest.mark.parametrize("connect", [QueueOps], indirect=True, ids=["python"])
def test_twenty_thousand_jobs_of_a_generator_are_submitted_in_little_memory(queue: QueueOps):
    tracemalloc.start()
    batch = queue.submit_many(specs(20_000), name="import")
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert (batch.accepted, batch.duplicates, batch.error_count) == (20_000, 0, 0)
    assert peak < 10_000_000
    assert Job.objects.filter(batch_id=batch.id).count() == 20_000
    rows = [result.id for result in queue.results(batch)]
    assert rows == list(Job.objects.filter(batch_id=batch.id).order_by("pk").values_list("pk", flat=True))
    in_order = Job.objects.filter(pk__in=rows[::2_000]).order_by("pk").values_list("payload__json__row", flat=True)
    assert list(in_order) == list(range(0, 20_000, 2_000))


def test_a_batch_whose_answer_was_cut_is_there_once(proxy: Proxy, key: str, connect: Connect):
    proxy.cuts, proxy.cut_path = 2, "POST /api/v1/batches/"
    with connect(proxy.url, key, retry=Retry(base_seconds=0.01)) as queue:
        batch = queue.submit_many(specs(300))
    assert proxy.cuts == 0
    assert list(Batch.objects.values_list("pk", "total")) == [(batch.id, 300)]


def test_a_batch_of_an_asynchronous_generator_whose_answer_was_cut_is_there_once(proxy: Proxy, key: str):
    proxy.cuts, proxy.cut_path = 2, "POST /api/v1/batches/"

    async def submit() -> Any:
        async with AsyncQueueOps(proxy.url, key, retry=Retry(base_seconds=0.01)) as queue:
            return await queue.submit_many(each async for each in later(specs(300)))

    batch = asyncio.run(submit())
    assert proxy.cuts == 0
    assert list(Batch.objects.values_list("pk", "total")) == [(batch.id, 300)]


async def later(jobs: Iterator[JobSpec]):
    for job in jobs:
        await asyncio.sleep(0)
        yield job


def test_what_was_given_up_is_completed_by_another_process_under_its_key(
    proxy: Proxy, queue: QueueOps, key: str, connect: Connect
):
    proxy.cuts, proxy.cut_path = 1, "POST /api/v1/batches/"
    with connect(proxy.url, key, retry=NEVER) as unlucky, pytest.raises(Unreachable) as raised:
        unlucky.submit_many(specs(10), name="mine")
    wait_for(lambda: Batch.objects.count() == 1, what="the batch")
    batch = queue.submit_many(specs(10), name="mine", idempotency_key=raised.value.idempotency_key)
    assert Batch.objects.get().pk == batch.id
    with pytest.raises(IdempotencyKeyReused):
        queue.submit_many(specs(11), name="mine", idempotency_key=raised.value.idempotency_key)


def test_a_job_whose_answer_was_cut_is_there_once(proxy: Proxy, key: str, connect: Connect):
    proxy.cuts, proxy.cut_path = 1, "POST /api/v1/jobs/"
    with connect(proxy.url, key, retry=Retry(base_seconds=0.01)) as queue:
        job = queue.submit(KIND, PAYLOAD)
    assert Job.objects.get().pk == job.id


def test_bad_jobs_reject_a_batch_or_are_reported(queue: QueueOps):
    jobs: list[JobSpec | dict[str, Any]] = [
        *specs(2),
        JobSpec(kind="no.such"),
        {"kind": KIND, "payload": {"method": "PUT"}},
    ]
    with pytest.raises(BatchRejected) as raised:
        queue.submit_many(jobs)
    assert [(error["line"], error["code"]) for error in raised.value.errors] == [
        (3, "unknown_kind"),
        (4, "invalid_job"),
    ]
    assert not Batch.objects.exists()
    batch = queue.submit_many(jobs, partial=True)
    assert (batch.accepted, batch.error_count, batch.errors[0]["line"]) == (2, 2, 3)


def test_lists_follow_their_cursors_to_the_end(queue: QueueOps):
    batch = make_batch(name="b")
    jobs = make_jobs(1_203, batch=batch)
    make_jobs(3, state=JobState.CANCELLED)
    assert [job.id for job in queue.jobs(batch=batch.pk)] == [job.pk for job in reversed(jobs)]
    assert len(list(queue.jobs(state=["cancelled", "failed"]))) == 3
    assert [found.name for found in queue.batches()] == ["b"]
    with pytest.raises(InvalidRequest):
        next(queue.jobs(colour="red"))


def test_results_tell_values_and_errors_of_each_job(queue: QueueOps):
    batch = make_batch()
    done = make_job(batch=batch, state=JobState.COMPLETED, result={"row": 1})
    failed = make_job(batch=batch, state=JobState.FAILED, last_error_code="http_500", last_error_message="down")
    waits = make_job(batch=batch)
    results = list(queue.results(str(batch.pk)))
    assert [(one.id, one.ok, one.result) for one in results] == [
        (done.pk, True, {"row": 1}),
        (failed.pk, False, None),
        (waits.pk, False, None),
    ]
    assert (results[1].last_error_code, results[1].last_error_message) == ("http_500", "down")


def test_work_is_cancelled_paused_and_retried(queue: QueueOps):
    batch = queue.submit_many(specs(3))
    job = queue.submit(KIND, PAYLOAD)
    assert queue.cancel_job(job, reason="no").state == "cancelled"
    with pytest.raises(Conflict):
        queue.cancel_job(job)
    assert queue.cancel_jobs([job]).unmoved == [str(job.id)]
    assert (queue.pause_batch(batch).changed_jobs, queue.batch(batch).paused) == (3, True)
    assert (queue.resume_batch(batch).paused, queue.pause_project(reason="x").paused) == (False, True)
    assert queue.project().paused
    assert not queue.resume_project().paused
    operation = queue.cancel_batch(batch)
    assert (queue.operation(operation).action, operation.total) == ("cancel_jobs", 3)
    with pytest.raises(NotFound):
        queue.job(batch.id)
    assert queue.find(batch.id).id == batch.id
    assert queue.find(job.id).id == job.id


def test_dead_letters_are_listed_requeued_and_discarded(queue: QueueOps):
    first, second, third = (make_dead_letter(error_code=code) for code in ("a", "b", "c"))
    assert [letter.error_code for letter in queue.dead_letters(open=True)] == ["c", "b", "a"]
    moved = queue.requeue([first.pk], note="again").moved
    assert list(moved) == [str(first.pk)]
    assert queue.discard([second.pk], reason="gone").moved == [str(second.pk)]
    assert queue.retry_job(third.job_id).id != third.job_id
    assert list(queue.dead_letters(open=True)) == []
    make_dead_letter(error_code="d")
    assert queue.requeue_where({"error_code": "d"}).total == 1
    assert queue.discard_where({}, reason="all").status == "running"


def test_every_code_of_the_api_has_its_family():
    table = re.findall(r"^\| `(\w+)` \| (\d{3}) \|", (ROOT / "docs/reference/api.md").read_text(), re.MULTILINE)
    families = {401: "NotAuthenticated", 403: "NotAllowed", 404: "NotFound", 409: "Conflict", 429: "TooManyRequests"}
    assert len(table) > 40
    for code, status in table:
        expected = getattr(errors, families.get(int(status), "ServerError" if status >= "500" else "InvalidRequest"))
        assert issubclass(errors.error_type(code, int(status)), expected), code
    assert set(errors.OF_CODE) <= {code for code, _ in table}
    answers = [(code, int(status)) for code, status in table] + [
        ("http_418", 418),
        ("http_599", 599),
        ("http_302", 302),
    ]
    assert error_types(answers) == [errors.error_type(*answer).__name__ for answer in answers]


class Following:
    """Watches in another thread and keeps what it was told."""

    def __init__(self, queue: QueueOps, target: Any, **options: Any) -> None:
        self.updates: list[Any] = []
        self.error: Exception | None = None

        def follow() -> None:
            try:
                for update in queue.watch(target, **options):
                    self.updates.append(update)
            except Exception as error:  # noqa: BLE001 (told by `ended`)
                self.error = error

        self.thread = threading.Thread(target=follow, daemon=True)
        self.thread.start()

    def story(self) -> str:
        return " ".join(
            f"{update.kind}{':' + str(update.event.to) if update.event else ''}{'' if update.is_live else '(asked)'}"
            for update in self.updates
        )

    def told(self, what: Any, *, seconds: float = 30.0) -> None:
        def came() -> bool:
            assert self.error is None, self.error
            return any(what(update) for update in list(self.updates))

        try:
            wait_for(came, seconds=seconds)
        except AssertionError as late:
            raise AssertionError(f"{late}; told was: {self.story()}") from None

    def ended(self, *, seconds: float = 30.0) -> Any:
        self.thread.join(seconds)
        assert self.error is None, self.error
        assert not self.thread.is_alive(), self.story()
        return self.updates[-1].subject

    def has_told(self, ids: set[int]) -> bool:
        return ids <= {event.id for event in self.events}

    @property
    def events(self) -> list[Any]:
        return [update.event for update in self.updates if update.event]


def is_live(update: Any) -> bool:
    return bool(update.is_live)


def test_a_batch_is_watched_live_to_its_end(queue: QueueOps):
    batch = make_batch()
    jobs = make_jobs(3, batch=batch)
    following = Following(queue, str(batch.pk))
    following.told(is_live)
    finish(jobs)
    end = following.ended()
    assert (end.counts["completed"], end.has_ended, end.failed) == (3, True, 0)
    assert sum(event.to == "completed" for event in following.events) >= 2  # the state may overtake the last ones
    ids = [event.id for event in following.events]
    assert len(ids) == len(set(ids))


def test_a_job_is_watched_to_its_end_by_asyncio_too(address: str, key: str):
    job = make_job()

    async def follow() -> list[Any]:
        updates = []
        async with AsyncQueueOps(address, key) as queue:
            async for update in queue.watch(str(job.pk)):
                updates.append(update)
                if update.is_live and len(updates) == 2:
                    await asyncio.to_thread(finish, [job])
            assert (await queue.wait(await queue.job(job.pk))).state == "completed"
        return updates

    updates = asyncio.run(follow())
    assert updates[-1].subject.state == "completed"
    assert updates[-1].is_live


def test_watching_outlives_a_kill_and_restart_of_the_server_and_misses_no_event(key: str, connect: Connect):
    batch = make_batch()
    jobs = make_jobs(6, batch=batch)
    port = str(free_port())
    with connect(f"http://127.0.0.1:{port}", key) as queue:
        with web_process(QUEUEOPS_PORT=port) as (_, process):
            following = Following(queue, str(batch.pk))
            following.told(is_live)
            finish(jobs[:2])
            following.told(lambda update: update.subject.counts["completed"] == 2)
            process.process.kill()
            following.told(lambda update: update.kind == "lost")
        finish(jobs[2:4])
        with web_process(QUEUEOPS_PORT=port):
            following.told(completion_of(jobs[3]))
            finish(jobs[4:])
            assert following.ended().counts["completed"] == 6
    told = [(event.job, event.to) for event in following.events]
    assert len(told) == len(set(told))
    assert {(job.pk, to) for job in jobs[:4] for to in ("dispatched", "in_progress", "completed")} <= set(told)


def test_an_end_that_comes_while_the_server_is_away_is_told(key: str, connect: Connect):
    batch = make_batch()
    jobs = make_jobs(2, batch=batch)
    port = str(free_port())
    with connect(f"http://127.0.0.1:{port}", key) as queue:
        with web_process(QUEUEOPS_PORT=port) as (_, process):
            following = Following(queue, str(batch.pk))
            following.told(is_live)
            process.process.kill()
            following.told(lambda update: update.kind == "lost")
        finish(jobs)
        with web_process(QUEUEOPS_PORT=port):
            assert following.ended().has_ended


def is_past(moment: float) -> bool:
    return time.monotonic() > moment


def test_a_quiet_socket_is_kept_by_answering_its_pings(key: str):
    job = make_job()
    quick = {"QUEUEOPS_EXTRA_APPS": "tests.dashboards.live.quick"}  # a ping a second; closed after 4 s of silence
    with web_process(**quick) as (address, _), ExitStack() as stack:
        proxies = [stack.enter_context(in_background(proxy_to(address))) for _ in CLIENTS]
        queues = [
            stack.enter_context(connect(proxy.url, key))
            for connect, proxy in zip(CLIENTS.values(), proxies, strict=True)
        ]
        everybody = [Following(queue, str(job.pk)) for queue in queues]
        for following in everybody:
            following.told(is_live)
        until = time.monotonic() + 6
        wait_for(partial(is_past, until), what="more than that")
        finish([job])
        for following in everybody:
            following.ended()
        assert [proxy.sockets for proxy in proxies] == [1] * len(CLIENTS)


def test_every_event_of_a_job_is_told_because_they_are_acknowledged(queue: QueueOps):
    job = make_job()
    following = Following(queue, str(job.pk))
    following.told(is_live)
    for _ in range(8):
        with writer() as one:
            last = {log_event(one, job) for _ in range(100)}
        wait_for(partial(following.has_told, last), what="the events")
    finish([job])
    following.ended()


def test_events_of_a_new_epoch_are_told_although_their_ids_were_told_before(queue: QueueOps):
    job = make_job()
    following = Following(queue, str(job.pk))
    following.told(is_live)
    before = str(Epoch.objects.get())
    with writer() as one:
        ids = {log_event(one, job) for _ in range(3)}
    wait_for(partial(following.has_told, ids), what="the events")
    told = len(following.updates)
    with connection.cursor() as cursor:
        cursor.execute("TRUNCATE jobs_jobevent; SELECT setval('jobs_jobevent_id', %s)", [min(ids) - 1])
    wait_for(lambda: str(Epoch.objects.get()) != before, what="the relay's notice")
    wait_for(lambda: len(following.updates) > told, what="the state in the new epoch")
    with writer() as one:
        again = {log_event(one, job) for _ in range(3)}
    assert again == ids

    def told_again() -> set[int]:
        return {update.event.id for update in following.updates[told:] if update.event}

    wait_for(lambda: told_again() == ids, what="the events of the new epoch")
    finish([job])
    following.ended()


def test_without_websockets_it_is_asked_for(proxy: Proxy, key: str, connect: Connect):
    proxy.refuses_sockets = True
    batch = make_batch()
    jobs = make_jobs(2, batch=batch)
    with connect(proxy.url, key) as queue:
        following = Following(queue, str(batch.pk))
        following.told(lambda update: update.kind == "state")
        finish(jobs[:1])
        following.told(lambda update: update.subject.counts["completed"] == 1)
        finish(jobs[1:])
        assert following.ended().counts["completed"] == 2
    assert not any(map(is_live, following.updates))
    assert proxy.sockets == 0


def test_without_websockets_a_wait_is_answered_at_the_end(proxy: Proxy, key: str, connect: Connect):
    proxy.refuses_sockets = True
    batch = make_batch()
    jobs = make_jobs(1, batch=batch)
    with connect(proxy.url, key) as queue, ThreadPoolExecutor(1) as threads:
        waiting = threads.submit(queue.wait, str(batch.pk), timeout=60)
        wait_for(lambda: proxy.waits == 1, what="the request that waits")
        finish(jobs)
        assert waiting.result(30).has_ended
    assert (proxy.waits, proxy.sockets) == (1, 0)


def test_a_server_that_knows_no_wait_is_asked_again_and_again(proxy: Proxy, key: str, connect: Connect):
    proxy.refuses_sockets = proxy.refuses_wait = True
    batch = make_batch()
    jobs = make_jobs(1, batch=batch)
    with connect(proxy.url, key) as queue, ThreadPoolExecutor(1) as threads:
        waiting = threads.submit(queue.wait, str(batch.pk), timeout=60)
        wait_for(lambda: proxy.waits == 1, what="the request that waits")
        finish(jobs)
        assert waiting.result(30).has_ended
    assert proxy.waits == 1


def socket_opened(proxy: Proxy, after: int) -> bool:
    return proxy.sockets > after


def completion_of(job: Job) -> Any:
    return lambda update: update.event and (update.event.job, update.event.to) == (job.pk, "completed")


def test_dropped_sockets_are_opened_again_and_resume(proxy: Proxy, key: str, connect: Connect):
    batch = make_batch()
    jobs = make_jobs(8, batch=batch)
    with connect(proxy.url, key) as queue:
        following = Following(queue, str(batch.pk))
        following.told(is_live)
        for number, job in enumerate(jobs[:-1]):
            finish([job])
            following.told(completion_of(job))
            wait_for(partial(socket_opened, proxy, number), what="the next socket")
            proxy.drop()
        finish(jobs[-1:])
        following.ended()
    told = [(event.job, event.to) for event in following.events]
    assert len(told) == len(set(told))
    assert {(job.pk, "completed") for job in jobs[:-1]} <= set(told)


def test_a_wait_ends_in_time_with_what_was_last_seen(queue: QueueOps, proxy: Proxy, key: str, connect: Connect):
    job = make_job()
    for client in (queue, connect(proxy.url, key)):
        with awake() as clock:
            began, awake_at = time.monotonic(), clock.now()
            with pytest.raises(WaitTimeout) as raised:
                client.wait(str(job.pk), timeout=1.5)
            assert time.monotonic() - began > 1.4
            assert clock.now() - awake_at < 4
        assert (raised.value.latest.id, raised.value.latest.state) == (job.pk, "queued")
        proxy.refuses_sockets = True
    with pytest.raises(WaitTimeout):
        queue.wait(job_of(queue, job), timeout=0)


def job_of(queue: QueueOps, job: Job) -> Any:
    return queue.job(job.pk)


def test_waiting_for_what_is_not_there_says_so_at_once(queue: QueueOps):
    with pytest.raises(NotFound):
        queue.wait("018f6a52-0000-7000-8000-000000000001", timeout=30)
    with pytest.raises(InvalidRequest, match="not an id"):
        queue.wait("../jobs", timeout=30)


def test_waiting_for_a_server_that_is_not_there_ends_too(key: str, connect: Connect):
    with connect(f"http://127.0.0.1:{free_port()}", key, retry=NEVER) as queue, pytest.raises(Unreachable):
        queue.wait("018f6a52-0000-7000-8000-000000000001")
    with connect(f"http://127.0.0.1:{free_port()}", key) as queue, pytest.raises(WaitTimeout):
        queue.wait("018f6a52-0000-7000-8000-000000000001", timeout=1)


def test_a_wait_returns_the_finished_job_with_its_result(queue: QueueOps):
    job = make_job()
    waited: list[Any] = []
    thread = threading.Thread(target=lambda: waited.append(queue.wait(queue.job(job.pk))))
    thread.start()
    finish([job])
    Job.objects.filter(pk=job.pk).update(result={"row": 7})
    thread.join(60)
    assert waited[0].state == "completed"


def test_a_batch_of_nothing_but_duplicates_has_ended(queue: QueueOps):
    queue.submit(KIND, PAYLOAD, idempotency_key="twin")
    batch = queue.submit_many([JobSpec(kind=KIND, payload=PAYLOAD, idempotency_key="twin")])
    assert (batch.accepted, batch.duplicates) == (0, 1)
    assert queue.wait(batch, timeout=60).has_ended
    assert (batch.known[0]["outcome"], batch.known_batches) == ("duplicate", [])


def test_results_of_a_batch_that_is_submitted_again_are_those_of_its_jobs(queue: QueueOps):
    specs = [JobSpec(kind=KIND, payload=PAYLOAD, idempotency_key=key) for key in ("r1", "r2")]
    first, again = queue.submit_many(specs), queue.submit_many(specs)
    assert again.accepted == 0
    ids = [one.id for one in queue.results(first)]
    assert len(ids) == 2
    for given in (again, again.id, queue.batch(again.id)):
        assert [one.id for one in queue.results(given)] == ids
