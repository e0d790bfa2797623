"""A job that takes several calls, one after the other: every forecast and every progress counts all of them."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone

from jobs.features.flow.models import SINCE_EVER
from jobs.features.forecast.forecast import _coming_back, limits_of_batch
from jobs.features.forecast.queue_calls import LineJob, calls_of, coming_back
from jobs.features.forecast.submission import forecast_submission
from jobs.handlers.llm.requests.payload import LlmGenerate
from jobs.lanes import lane_name
from jobs.models import Batch, Executor, FlowSample, Job
from jobs.services.explain.batch_report import read_report
from jobs.services.explain.queues import count_lanes
from jobs.services.explain.snapshots import batch_snapshot, calls_made, job_snapshot
from jobs.services.explain.waiting import explain_waiting
from jobs.services.submit.submit import submit_batch
from jobs.services.upkeep.batches import _ends, finish_batches
from jobs.states import JobState
from queueops.tenancy.models import Credential
from queueops.tenancy.secrets.credentials import seal
from ratelimits.algorithms.admission import State
from ratelimits.limits import catalogue
from ratelimits.models import Limit
from ratelimits.subjects import Subject
from tests.factories import foreseen, make_batch, make_job, make_jobs, make_project
from tests.ratelimits.one_counter import admit
from tests.support.documents import document
from tests.support.plans import assert_bounded, explain_reads

pytestmark = pytest.mark.django_db

CLOSE = 0.10
PART = 8_000
SUBJECT = Subject("llm", "write", "acme", "", "small-1")
LANE = lane_name(SUBJECT, project="acme", user="")
SIZES = [5_000 + round(number * 195_000 / 19) for number in range(20)]
DOCUMENTS = [SIZES[number * 7 % 20] for number in range(20)]  # in no order
A_DOCUMENT = {"input_tokens": PART, "output_tokens": 0, "calls": 16, "input_of_calls": 125_000}


@pytest.fixture(autouse=True)
def small_limit(db: None) -> Limit:
    """20,000 tokens in ten seconds."""
    Limit.objects.all().delete()
    given = {"service": "llm", "scope": "project", "per_model": True, "algorithm": "sliding_window"}
    made = Limit.objects.create(name="tokens", unit="tokens", capacity=20_000, window_seconds=10, **given)
    catalogue.forget()
    return made


def parts_of(tokens: int) -> list[int]:
    return [PART] * (tokens // PART) + ([tokens % PART] if tokens % PART else [])


def costs_of(tokens: int) -> dict[str, int]:
    parts = parts_of(tokens)
    several = {"calls": len(parts), "input_of_calls": tokens} if len(parts) > 1 else {}
    return {"input_tokens": parts[0], "output_tokens": 0, **several}


def waiting(sizes: Sequence[int], **fields: Any) -> list[Job]:
    jobs = make_jobs(len(sizes), service="llm", model="small-1", lane=LANE, **fields)
    for job, tokens in zip(jobs, sizes, strict=True):
        job.costs = costs_of(tokens)
        job.cost = job.known_cost = job.costs["input_tokens"]
    Job.objects.bulk_update(jobs, ["cost", "known_cost", "costs"])
    return list(Job.objects.filter(pk__in=[job.pk for job in jobs]).order_by("pk"))


def released(calls: Sequence[int]) -> list[float]:
    """When the limiter lets calls go, one after the other, asked again whenever it says: seconds from the first."""
    [rule] = catalogue.rules()
    algorithm, state, now, times = rule.algorithm("x"), State(), 1000.0, []
    for cost in calls:
        while not (found := admit(algorithm, state, now, [cost])).granted:
            now = found.retry_at or now
        state = found.state
        times.append(now - 1000.0)
    return times


def start_seconds(job: Job) -> float:
    told = explain_waiting(job)
    assert told is not None
    assert told.forecast is not None
    return (told.forecast.starts_at - timezone.now()).total_seconds()


def running(batch: Batch | None = None, *, progress: int = 0, **fields: Any) -> Job:
    now = timezone.now()
    return make_job(
        batch=batch,
        service="llm",
        model="small-1",
        lane=LANE,
        costs=A_DOCUMENT,
        cost=PART,
        known_cost=PART,
        status=JobState.IN_PROGRESS,
        lease_expires_at=now + timedelta(minutes=1),
        first_attempt_at=now - timedelta(seconds=40),
        started_at=now - timedelta(seconds=2),
        progress=progress,
        **fields,
    )


def test_a_document_says_how_many_calls_it_takes_and_how_much_all_of_them_have():
    payload = LlmGenerate(
        provider="openai", credential="key", model="small-1", prompt=document(125_000, seed=1), split=True
    )
    cost = payload.cost()
    assert cost.calls == len(payload.parts) >= 16
    assert cost.units["input_of_calls"] == pytest.approx(125_000, rel=0.001)
    assert cost.known == max(payload.input_tokens(part) for part in payload.parts)
    short = LlmGenerate(provider="openai", credential="key", model="small-1", prompt="short", split=True).cost()
    assert (short.calls, "input_of_calls" in short.units) == (1, False)


def test_a_line_counts_the_calls_that_are_left_at_the_size_that_they_have_on_average():
    job = LineJob("llm.generate", None, 0, PART + 100, PART, A_DOCUMENT, "small-1", "acme", "llm")
    [[call], place] = calls_of([job])
    assert (call.times, place) == (16, 0)
    assert call.times * (call.known_cost or 0) == pytest.approx(125_000)
    assert call.times * call.amounts["input_tokens"] == pytest.approx(125_000)
    assert call.cost - (call.known_cost or 0) == pytest.approx(100)
    [[half], _] = calls_of([job._replace(progress=50)])
    assert half.times == 8
    back = coming_back(job._replace(progress=50))
    assert back is not None
    assert calls_of([back])[0][0].times == pytest.approx(7)
    assert coming_back(job._replace(progress=93)) is None, "it makes its last call"
    assert coming_back(job._replace(costs=None)) is None


def test_documents_are_foreseen_with_all_their_parts_and_their_batch_with_them():
    batch = make_batch(rate_per_second=1.0)
    jobs = waiting(DOCUMENTS, batch=batch)
    calls = [parts_of(tokens) for tokens in DOCUMENTS]
    times = released([call for of in calls for call in of])
    for place in (5, 12, 19):
        first_call = sum(len(of) for of in calls[:place])
        assert start_seconds(jobs[place]) == pytest.approx(times[first_call], rel=CLOSE)
    eta = foreseen(batch).eta
    assert eta is not None
    assert (eta - timezone.now()).total_seconds() == pytest.approx(times[-1], rel=CLOSE)


def test_a_job_waits_for_the_parts_of_those_that_run_before_it():
    running(progress=50)
    [job] = waiting([PART])
    whole = released([PART] * 8)[-1]
    assert start_seconds(job) == pytest.approx(whole, rel=0.2)


def test_a_batch_of_running_documents_ends_once_their_other_parts_have_passed():
    batch = make_batch()
    for _ in range(2):
        running(batch, progress=50)
    told = limits_of_batch(batch.pk, {}, now=timezone.now())
    assert told is not None
    left = released([125_000 // 16] * 14)[-1]  # seven of each, beside those under way
    assert told.seconds == pytest.approx(left, rel=CLOSE)
    nothing_waits = dict.fromkeys(JobState.values, 0) | {JobState.IN_PROGRESS.value: 2}
    [seconds] = _ends(batch, nothing_waits, 1.0, timezone.now())
    assert seconds == pytest.approx(told.seconds, abs=1)


def test_what_waits_outside_lanes_is_known_not_to_be_counted():
    batch = make_batch()
    running(batch, progress=50)
    told = limits_of_batch(batch.pk, {}, now=timezone.now())
    assert told is not None
    assert told.is_whole
    make_job(batch=batch)
    told = limits_of_batch(batch.pk, {JobState.QUEUED: 1}, now=timezone.now())
    assert told is not None
    assert not told.is_whole


def test_a_cost_that_its_producer_states_is_that_of_each_call():
    project = make_project()
    secret = seal({"api_key": "x"})
    Credential.objects.create(name="model-key", service="llm", quota_project="acme", secret=secret).projects.add(
        project
    )
    asked = {"provider": "openai", "service": "llm", "credential": "model-key", "model": "small-1", "split": True}
    line = {"kind": "llm.generate", "payload": {**asked, "prompt": document(40_000, seed=1)}, "cost": 9_000}
    [job] = Batch.objects.get(pk=submit_batch([line], project_id="acme", actor="key:test").id).jobs.all()
    assert (job.cost, job.known_cost, job.costs) == (9_000, None, {"calls": 6})
    told = forecast_submission([line], project_id="acme")
    assert told.tokens["input_tokens"].known == pytest.approx(40_000, rel=0.001)
    [need] = told.binding
    assert need.needed == 6 * 9_000


def test_a_document_alone_lasts_as_long_as_its_calls_one_after_the_other():
    project = make_project()
    secret = seal({"api_key": "x"})
    key = Credential.objects.create(name="model-key", service="llm", quota_project="acme", secret=secret)
    key.projects.add(project)
    Executor.objects.create(
        host="a", pid=1, process_started_at=0.0, cluster_pid=1, loop_lag_ms=1.0, slots=20, in_flight=0,
        role=Executor.Role.GENERAL,
    )  # fmt: skip
    FlowSample.objects.create(
        at=timezone.now(), span_seconds=SINCE_EVER, service="llm", latencies=[10], latency_ms=300_000
    )
    asked = {"provider": "openai", "service": "llm", "credential": "model-key", "model": "small-1", "split": True}
    payload = {**asked, "max_output_tokens": 1, "prompt": document(40_000, seed=1)}
    told = forecast_submission([{"kind": "llm.generate", "payload": payload}], project_id="acme")
    assert told.live.seconds == pytest.approx(6 * 30, rel=CLOSE), (
        "six calls of half a minute, whatever the limit has room for"
    )


def test_what_is_not_submitted_yet_is_foreseen_with_all_its_parts():
    project = make_project()
    credential = Credential.objects.create(
        name="model-key", service="llm", quota_project="acme", secret=seal({"api_key": "x"})
    )
    credential.projects.add(project)
    FlowSample.objects.create(
        at=timezone.now(), span_seconds=SINCE_EVER, service="llm", latencies=[10], latency_ms=10_000
    )
    asked = {"provider": "openai", "service": "llm", "credential": "model-key", "model": "small-1", "split": True}
    payloads = [{**asked, "max_output_tokens": 1, "prompt": document(one, seed=one)} for one in DOCUMENTS[:6]]
    lines = [{"kind": "llm.generate", "payload": payload} for payload in payloads]
    told = forecast_submission(lines, project_id="acme")
    tokens = sum(DOCUMENTS[:6])
    assert told.jobs == 6
    assert told.tokens["input_tokens"].known == pytest.approx(tokens, rel=0.001)
    [need] = told.binding
    assert need.needed == pytest.approx(tokens, rel=0.01)
    batch = Batch.objects.get(pk=submit_batch(lines, project_id="acme", actor="key:test").id)
    stored = list(batch.jobs.order_by("pk").values_list("costs__calls", "costs__input_of_calls"))
    assert [calls for calls, _ in stored] == [
        calls if calls > 1 else None for calls in (len(LlmGenerate.model_validate(one).parts) for one in payloads)
    ]
    [name] = batch.jobs.order_by().values_list("lane", flat=True).distinct()
    assert name is not None
    [lane] = count_lanes([name])
    output = sum(calls or 1 for calls, _ in stored)
    assert lane.cost * lane.waiting * lane.calls == pytest.approx(tokens + output, rel=0.01)


def test_a_batch_s_progress_and_speed_count_the_parts_that_are_done():
    batch = make_batch(total=4)
    waiting([PART], batch=batch)
    running(batch, progress=50)
    running(batch, progress=75)
    waiting([125_000], batch=batch)
    assert calls_made([batch.pk]) == {batch.pk: 1.25}
    assert batch_snapshot(batch).progress == pytest.approx(31.2, abs=0.1)
    assert " 31 %" in read_report(batch, now=timezone.now()).line()
    finish_batches()
    batch.refresh_from_db()
    assert batch.sampled_finished == 1


def test_a_batch_whose_documents_wait_between_two_calls_is_running():
    batch = make_batch()
    [job] = waiting([125_000], batch=batch)
    assert batch_snapshot(batch).verdict == "waiting"
    Job.objects.filter(pk=job.pk).update(first_attempt_at=timezone.now(), progress=6)
    assert batch_snapshot(batch).verdict == "running"


def test_a_batch_ends_no_sooner_than_its_longest_document_whose_calls_follow_each_other():
    FlowSample.objects.create(
        at=timezone.now(), span_seconds=SINCE_EVER, service="llm", latencies=[10], latency_ms=300_000,
    )  # fmt: skip
    batch = make_batch()
    waiting([125_000], batch=batch)
    eta = foreseen(batch).eta
    assert eta is not None
    assert (eta - timezone.now()).total_seconds() == pytest.approx(16 * 30, rel=CLOSE)


def test_a_document_between_two_calls_tells_when_it_should_end():
    job = running(progress=25)
    now = timezone.now()
    Job.objects.filter(pk=job.pk).update(
        status=JobState.RETRIED, lease_expires_at=None, scheduled_at=now, updated_at=now
    )
    job.refresh_from_db()
    eta = job_snapshot(job).eta
    assert eta is not None
    assert (eta - now).total_seconds() == pytest.approx(120, abs=1), "a quarter took 40 seconds"
    job.status = JobState.COMPLETED
    assert job_snapshot(job).eta is None


def test_the_calls_of_a_page_of_batches_are_counted_by_an_index_of_documents_alone():
    batch = make_batch()
    make_jobs(
        3_000,
        batch=batch,
        status=JobState.IN_PROGRESS,
        lease_expires_at=timezone.now(),
        first_attempt_at=timezone.now(),
    )
    running(batch, progress=50)
    assert calls_made([batch.pk]) == {batch.pk: 0.5}
    [plan] = explain_reads(lambda: calls_made([batch.pk]))
    assert_bounded(plan, rows=1, blocks=10)
    [plan] = explain_reads(lambda: _coming_back(batch.pk))
    assert_bounded(plan, rows=1, blocks=10)
