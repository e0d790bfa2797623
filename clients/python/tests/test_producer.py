"""The producer's client, where no server is needed that knows what it is asked."""

from __future__ import annotations

import asyncio
import inspect
import json
import threading
import time
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import pytest

from queueops_client import AsyncQueueOps, InvalidRequest, JobSpec, QueueOps, TooManyJobs, WaitTimeout
from queueops_client.records import Batch, Event, Job, Project
from queueops_client.retry import Retry
from queueops_client.specs import BLOCK_BYTES, MAX_BATCH_JOBS, Spool, encoded
from queueops_client.watching import REMEMBERED_EVENTS, Watch
from stand_in import Reply

ID = "018f6a52-0000-7000-8000-000000000001"
QUICK = Retry(base_seconds=0.01)
SUBMITTED = {"id": ID, "accepted": 2, "duplicates": 0, "error_count": 0, "errors": []}


def test_both_clients_have_the_same_methods_with_the_same_parameters():
    def public(kind):
        members = inspect.getmembers(kind, inspect.isfunction)
        return {name: list(inspect.signature(member).parameters) for name, member in members if name[0] != "_"}

    assert public(QueueOps) == public(AsyncQueueOps)


def test_every_method_of_the_blocking_client_that_is_not_plain_says_what_it_does():
    plain = {"job", "batch", "operation", "project", "schedule", "webhook", "window", "resume_batch", "resume_project"}
    plain |= {"close", "dead_letter"}
    bare = {name for name, member in inspect.getmembers(QueueOps, inspect.isfunction) if not member.__doc__}
    assert {name for name in bare if name[0] != "_"} <= plain


@pytest.mark.parametrize("kind", ["blocking", "async"])
def test_a_stream_is_sent_again_to_the_byte_under_one_key(server, kind):
    server.will_refuse(503, "database_unavailable")
    server.will_reply(cut=True)
    server.will_reply(201, SUBMITTED)
    jobs = (JobSpec(kind="k", payload={"n": n}) for n in range(2))  # can be read once
    if kind == "blocking":
        with QueueOps(server.url, "qo_k", retry=QUICK) as queue:
            batch = queue.submit_many(jobs, name="n ä", partial=True)
    else:

        async def submit():
            async with AsyncQueueOps(server.url, "qo_k", retry=QUICK) as queue:
                return await queue.submit_many(jobs, name="n ä", partial=True)

        batch = asyncio.run(submit())
    assert (batch.id, batch.accepted) == (UUID(ID), 2)
    assert len(server.asked) == 3
    assert {asked.body for asked in server.asked} == {
        b'{"kind":"k","payload":{"n":0}}\n{"kind":"k","payload":{"n":1}}\n'
    }
    assert {asked.headers["idempotency-key"] for asked in server.asked} == {batch.idempotency_key}
    assert server.asked[0].headers["content-length"] == str(len(server.asked[0].body))
    assert server.asked[0].query == {"name": "n ä", "partial": "true"}


def test_each_call_has_a_key_of_its_own(server):
    server.answer = lambda _: Reply(201, {"id": ID, "created": True})
    with QueueOps(server.url, "qo_k") as queue:
        for _ in range(2):
            queue.submit("k", {})
    keys = [asked.headers["idempotency-key"] for asked in server.asked]
    assert len(set(keys)) == 2


def test_nothing_is_sent_when_the_iterable_fails(server):
    def jobs():
        yield JobSpec(kind="k")
        raise LookupError("the file ended early")

    with QueueOps(server.url, "qo_k") as queue:
        with pytest.raises(LookupError):
            queue.submit_many(jobs())
        with pytest.raises(InvalidRequest, match=r"Job 2: .* not str"):
            queue.submit_many([JobSpec(kind="k"), "k"])  # type: ignore[list-item]
    assert not server.asked


def test_more_jobs_than_a_batch_takes_are_refused_without_reading_them_all(server):
    read = 0

    def endless():
        nonlocal read
        while True:
            read += 1
            yield {"kind": "k"}

    with QueueOps(server.url, "qo_k") as queue, pytest.raises(TooManyJobs, match="100,000"):
        queue.submit_many(endless())
    assert read == MAX_BATCH_JOBS + 1
    assert not server.asked


def test_a_spool_begins_anew_each_time_and_reads_in_blocks():
    with Spool() as spool:
        for number in range(60_000):
            spool.add({"kind": "k", "payload": {"n": number}})
        first, second = b"".join(spool.blocks()), list(spool.blocks())
        assert first == b"".join(second)
        assert len(first) == spool.size_bytes > 4 * BLOCK_BYTES
        assert max(map(len, second)) == BLOCK_BYTES
        assert (spool.count, first.count(b"\n")) == (60_000, 60_000)


def test_a_job_is_written_with_what_was_given_alone():
    moment = datetime(2026, 3, 2, 9, tzinfo=UTC)
    job = JobSpec(kind="k", user_id=UUID(ID), scheduled_at=moment, cost=0)
    assert json.loads(encoded(job)) == {
        "kind": "k",
        "payload": {},
        "user_id": ID,
        "scheduled_at": "2026-03-02T09:00:00+00:00",
        "cost": 0,
    }
    assert b"\n" not in encoded({"kind": "k", "payload": {"text": "a\nb"}})


def test_what_json_has_no_form_for_is_no_job():
    for value in (float("nan"), object(), datetime(2026, 3, 2), b"raw"):  # noqa: DTZ001 (the point)
        with pytest.raises(InvalidRequest):
            pytest.fail(f"{value!r} became {encoded({'kind': 'k', 'payload': {'x': value}})!r}")


def test_records_take_what_a_newer_server_adds_and_an_older_one_lacks():
    job = Job.of({"id": ID, "state": "failed", "created_at": "2026-03-02T09:00:00Z", "new": 1, "batch": None})
    assert (job.id, job.created_at, job.batch, job.raw["new"]) == (
        UUID(ID),
        datetime(2026, 3, 2, 9, tzinfo=UTC),
        None,
        1,
    )
    assert (job.has_ended, job.failed) == (True, True)
    assert Project.of({"id": "acme", "counts": {}}).id == "acme"
    assert Batch.of({"id": ID, "counts": {"queued": 0}}).has_ended


def test_pages_are_fetched_as_they_are_needed(server):
    server.will_reply(body={"results": [{"id": ID}], "next_cursor": "c1", "next": "…"})
    server.will_reply(body={"results": [], "next_cursor": "c2", "next": "…"})  # a page may be empty
    server.will_reply(body={"results": [{"id": ID}], "next_cursor": None, "next": None})
    with QueueOps(server.url, "qo_k") as queue:
        jobs = queue.jobs(state=["failed"], held=False, kind=None)
        next(jobs)
        assert len(server.asked) == 1
        assert len(list(jobs)) == 1
    assert [asked.query.get("cursor") for asked in server.asked] == [None, "c1", "c2"]
    assert server.asked[0].query == {"page_size": "500", "state": "failed", "held": "false"}


def test_an_action_has_a_key_and_leaves_out_what_was_not_given(server):
    server.will_reply(body={"moved": [ID], "unmoved": []})
    with QueueOps(server.url, "qo_k") as queue:
        assert queue.requeue([ID], note="").moved == [ID]
    [asked] = server.asked
    assert asked.json == {"ids": [ID], "spread_seconds": 0.0}
    assert asked.headers["idempotency-key"]


def test_what_is_no_id_reaches_no_address(server):
    with QueueOps(server.url, "qo_k") as queue:
        wrong: tuple[Any, ...] = ("", "x", "../jobs", f"{ID}/cancel", 7, None)
        for given in wrong:
            with pytest.raises(InvalidRequest, match="not an id"):
                queue.cancel_job(given)
    assert not server.asked


def test_a_wait_does_not_hang_on_a_server_that_hangs(server):
    may_answer = threading.Event()

    def hang(_):
        may_answer.wait(20)
        return Reply()

    server.answer = hang
    began = time.monotonic()
    with QueueOps(server.url, "qo_k") as queue, pytest.raises(WaitTimeout):
        queue.wait(ID, timeout=0.2)
    assert time.monotonic() - began < 15, "it waited for the server"
    may_answer.set()


def test_watching_remembers_no_more_events_than_it_must():
    watch = Watch(
        calls=None,  # type: ignore[arg-type]
        line=None,  # type: ignore[arg-type]
        base_url="",
        token=str,
        deadline=None,
        first_seconds=0,
        patience_seconds=0,
        events=True,
        subject=Job.of({"id": ID}),
    )
    told = [list(watch._tell(Event.of({"id": number % 3_000}))) for number in range(6_000)]
    assert sum(map(len, told[:3_000])) == 3_000
    assert len(watch.told) == REMEMBERED_EVENTS
    assert not list(watch._tell(Event.of({"id": 2_999})))
