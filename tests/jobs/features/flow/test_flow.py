"""What flowed, summed up from the log: complete, once, whoever counts and in whatever order transactions commit."""

from __future__ import annotations

import random
import threading
from collections import Counter
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from itertools import count, pairwise
from uuid import uuid4

import psycopg
import pytest
from django.db import connection
from django.db.models.functions import Now
from django.utils import timezone
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from jobs.classify import Failure
from jobs.executor.duties import Duties
from jobs.features.flow import flow
from jobs.features.flow.bins import ANSWERS, DURATION_MS, SIZE_BYTES, percentile
from jobs.models import DecisionTotal, FlowCursor, FlowSample, Job, JobEvent
from jobs.services.claim.claim import claim_jobs
from jobs.services.claim.fair_share import ClassTurns
from jobs.services.finish.claimed import ClaimedJob
from jobs.services.finish.finish import record_outcomes
from jobs.services.finish.outcomes import Failed, GivenBack, Outcome, Succeeded
from jobs.states import JobState
from jobs.transitions import Move, move_jobs
from queueops.core.sql import run_sql
from ratelimits.limiter.calls import Call
from ratelimits.limiter.tallies import write_tallies
from ratelimits.models import CallTally, Limit
from ratelimits.subjects import Subject
from tests.factories import make_jobs
from tests.support.examples import examples
from tests.support.flow import count_all
from tests.support.processes import wait_for
from tests.support.racing import run_together

pytestmark = pytest.mark.django_db(transaction=True)

WRITERS = 3
NAMES = count()

STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("write"), st.integers(0, WRITERS - 1), st.integers(1, 3)),
        st.tuples(st.sampled_from(["commit", "roll back"]), st.integers(0, WRITERS - 1)),
        st.tuples(st.just("count"), st.integers(1, 4)),
    ),
    max_size=40,
)


@pytest.fixture(autouse=True)
def counted() -> None:
    count_all()


def events_of(service: str) -> int:
    return JobEvent.objects.filter(service=service, to_status="completed").count()


def completed_of(service: str) -> dict[int, int]:
    """What the samples say, by their span."""
    sums: Counter[int] = Counter()
    for row in FlowSample.objects.filter(service=service):
        sums[row.span_seconds] += row.completed
    return dict(sums)


def open_writer(stack: ExitStack) -> psycopg.Connection:
    parameters = {
        name: value
        for name, value in connection.get_connection_params().items()
        if name in {"host", "port", "user", "password", "dbname"} and value
    }
    return stack.enter_context(psycopg.connect(**parameters))


def write_events(writer: psycopg.Connection, service: str, number: int) -> None:
    writer.execute(
        "INSERT INTO jobs_jobevent (job_id, project_id, service, event_type, from_status, to_status)"
        " SELECT gen_random_uuid(), 'acme', %s, 'state_change', 'in_progress', 'completed' FROM generate_series(1, %s)",
        [service, number],
    )


@settings(max_examples=examples(40), suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture])
@given(steps=STEPS)
def test_each_event_is_counted_once_in_whatever_order_transactions_commit(steps):
    service = f"service-{next(NAMES)}"
    with ExitStack() as stack:
        writers = [open_writer(stack) for _ in range(WRITERS)]
        for step, *arguments in steps:
            if step == "write":
                write_events(writers[arguments[0]], service, arguments[1])
            elif step == "commit":
                writers[arguments[0]].commit()
            elif step == "roll back":
                writers[arguments[0]].rollback()
            else:
                for _ in range(arguments[0]):
                    flow.sum_up(settle_seconds=0, most=3)
        for writer in writers:
            writer.commit()
    count_all()
    expected = events_of(service)
    assert completed_of(service) == (dict.fromkeys((0, 10, 300), expected) if expected else {})


def test_two_that_count_at_once_count_each_event_once():
    service, ended = "raced", threading.Event()
    counted_by: Counter[int] = Counter()

    def take_part(number: int) -> None:
        if number < 2:
            while not ended.is_set():
                flow.sum_up(settle_seconds=0, most=20)
                counted_by[number] += 1
            return
        chance = random.Random(number)  # noqa: S311 - draws synthetic data
        with ExitStack() as stack:
            writer = open_writer(stack)
            for _ in range(60):
                for _ in range(chance.randint(1, 3)):
                    write_events(writer, service, chance.randint(1, 5))
                writer.rollback() if chance.random() < 0.2 else writer.commit()
        if all_written.wait(60) == 0:
            ended.set()

    all_written = threading.Barrier(WRITERS)
    run_together(2 + WRITERS, take_part)
    count_all()
    assert min(counted_by.values()) > 1
    assert completed_of(service) == dict.fromkeys((0, 10, 300), events_of(service))


def test_an_event_is_not_counted_before_all_with_lower_ids_are_known():
    with ExitStack() as stack:
        late, early = open_writer(stack), open_writer(stack)
        write_events(late, "late", 1)
        write_events(early, "early", 1)
        early.commit()
        for _ in range(5):
            flow.sum_up(settle_seconds=0)
        assert completed_of("early") == {}
        late.commit()
    count_all()
    assert completed_of("late") == completed_of("early") == {0: 1, 10: 1, 300: 1}


def test_a_cursor_that_came_with_a_dump_of_another_server_goes_on():
    FlowCursor.objects.update(counted=0, mark=0, horizon=2**62)
    make_jobs(1)
    FlowCursor.objects.filter(log=flow.EVENT_LOG).update(mark=1)
    count_all()
    assert FlowCursor.objects.get(pk=flow.EVENT_LOG).counted > 1


def test_jobs_are_counted_by_what_became_of_them():
    make_jobs(3, state=JobState.COMPLETED)
    make_jobs(2, state=JobState.CANCELLED, service="other-api")
    make_jobs(1, state=JobState.FAILED)
    make_jobs(1, state=JobState.RATE_LIMITED)
    [crashed] = make_jobs(1, state=JobState.IN_PROGRESS)
    move_jobs("rescue", [Move(crashed.pk, delay_seconds=0)])
    count_all()
    totals = flow.totals().services
    http = totals["http"]
    assert (http.submitted, http.completed, http.failed, http.deferred) == (6, 3, 1, 1)
    assert (http.crashed, http.retried) == (1, 0)
    assert (totals["other-api"].submitted, totals["other-api"].cancelled) == (2, 2)
    assert sum(point.submitted for point in flow.series(timedelta(minutes=15))) == 8
    assert sum(point.submitted for point in flow.series(timedelta(hours=24), service="http")) == 6


def started(number: int = 1) -> list[ClaimedJob]:
    make_jobs(number)
    return claim_jobs(uuid4(), wanted=number, lease_seconds=60, turns=ClassTurns())


def record(*outcomes: Outcome) -> None:
    assert not record_outcomes(outcomes, policies={}).lost


def test_figures_are_never_negative_whatever_the_rows_say():
    [job] = make_jobs(1)
    ahead = Now() + timedelta(hours=1)  # as a clock that is set back leaves it
    Job.objects.filter(pk=job.pk).update(eligible_since=ahead, first_attempt_at=ahead, deferred_seconds=5)
    [claimed] = claim_jobs(uuid4(), wanted=1, lease_seconds=60, turns=ClassTurns())
    assert (claimed.waited, claimed.window_used) == (0, 0)
    record(Succeeded(claimed, "http", None, 1.0))
    count_all()
    assert flow.totals().services["http"].delay_ms == 0


def test_answers_sizes_and_durations_are_counted_in_their_bins():
    first, second, third, fourth = started(4)
    busy = Failure("http_429", "E", "slow down", outcome="answered", status=429)
    cut_off = Failure("timeout", "E", "no answer", outcome="unknown")
    record(
        Succeeded(first, "http", None, 40.0, calls=[(200, 300), (304, 0), (204, 5_000_000)]),
        Failed(second, "http", "moderate", repeatable=True, failure=busy, duration_ms=3.0),
        Failed(third, "http", "moderate", repeatable=True, failure=cut_off, duration_ms=70_000.0, calls=[(0, 0)]),
        GivenBack(
            fourth,
            "more to do",
            partial="{}",
            calls=[(status, 10) for status in (503, 400, 401, 403, 404, 404, 409, 410)],
        ),
    )
    count_all()
    total = flow.totals().services["http"]
    refused = {"400": 1, "401": 1, "403": 1, "404": 2, "4xx": 2}
    assert total.answers == {"2xx": 2, "3xx": 1, "429": 1, "5xx": 1, "none": 1} | refused
    assert total.size_bytes == 5_000_380
    assert list(total.sizes) == [11, 1, 0, 0, 0, 0, 0, 0, 1]
    assert [place for place, number in enumerate(total.latencies) if number] == [2, 5, 15]
    assert total.latency_ms == pytest.approx(70_043)
    assert (total.retried, total.completed) == (2, 1)
    assert sum(total.delays) == 3  # how long the one waited that was given back is told when it ends


def test_only_the_first_pick_up_of_a_job_counts_as_its_delay():
    [job] = started()
    record(GivenBack(job, "again", calls=[(200, 1)]))
    Job.objects.filter(pk=job.id).update(scheduled_at=None, status="queued")
    [again] = claim_jobs(uuid4(), wanted=1, lease_seconds=60, turns=ClassTurns())
    record(Succeeded(again, "http", None, 1.0))
    count_all()
    assert sum(flow.totals().services["http"].delays) == 0


def test_the_limiter_is_counted_by_the_limit_that_deferred():
    connection.cursor().execute(
        "INSERT INTO jobs_jobevent (job_id, project_id, service, event_type, message, data)"
        " VALUES (gen_random_uuid(), 'acme', 'sheets', 'scheduling', '', '{\"binding_limit\": \"per-minute\"}')"
    )
    count_all()
    [row] = DecisionTotal.objects.filter(service="sheets")
    assert (row.decision, row.limit_name, row.calls) == ("deferred", "per-minute", 1)


def test_more_services_than_there_is_room_for_share_a_name(monkeypatch):
    monkeypatch.setattr(flow, "MAX_SERVICES_NAMED", 2)
    for name in ("a.example", "b.example", "c.example", "d.example"):
        make_jobs(1, service=f"http:{name}")
    count_all()
    services = flow.totals().services
    assert {name: point.submitted for name, point in services.items()} == {
        "http:a.example": 1, "http:b.example": 1, "other": 2,
    }  # fmt: skip
    make_jobs(1, service="http:a.example")
    count_all()
    assert flow.totals().services["http:a.example"].submitted == 2


def test_calls_granted_are_counted_by_a_bounded_number_of_services_and_models():
    Limit.objects.all().delete()
    after = 0
    for _ in range(2):
        for name in "abcd":
            write_tallies([Call(Subject(name, "read", "acme", model=f"{name}-1"), cost=1)] * 2)
        upto = CallTally.objects.latest("pk").pk
        run_sql("jobs", "count_grants", {"after": after, "upto": upto, "most_services": 2, "most_models": 2})
        after = upto
    rows = DecisionTotal.objects.order_by("service").values_list("decision", "service", "model", "calls")
    assert list(rows) == [("granted", "a", "a-1", 4), ("granted", "b", "b-1", 4), ("granted", "other", "", 8)]


def test_a_series_has_no_gap_and_at_most_180_points():
    make_jobs(2, state=JobState.COMPLETED)
    count_all()
    for span, seconds in ((timedelta(minutes=15), 10), (timedelta(hours=1), 20), (timedelta(hours=24), 600)):
        points = flow.series(span)
        assert len(points) == span.total_seconds() // seconds <= flow.MAX_POINTS
        assert {(later.at - sooner.at).total_seconds() for sooner, later in pairwise(points)} == {seconds}
        assert sum(point.completed for point in points) == 2
    assert flow.series(timedelta(minutes=15))[0].latency_p95_ms is None


def test_the_backlog_is_the_last_sample_of_a_point():
    make_jobs(3)
    flow.sample_backlog()
    make_jobs(1)
    flow.sample_backlog()
    *_, last = [point.backlog for point in flow.series(timedelta(minutes=15)) if point.backlog]
    assert last["queued"] == 4


def test_old_samples_are_forgotten_and_totals_never():
    make_jobs(1)
    count_all()
    with connection.cursor() as cursor:
        cursor.execute("UPDATE jobs_flowsample SET at = at - interval '70 minutes' WHERE span_seconds > 0")
    assert flow.forget_old_samples() == 1
    with connection.cursor() as cursor:
        cursor.execute("UPDATE jobs_flowsample SET at = at - interval '48 hours' WHERE span_seconds > 0")
    assert flow.forget_old_samples() == 1
    assert flow.totals().services["http"].submitted == 1


def test_a_minute_s_rates_are_those_of_its_samples():
    make_jobs(6, state=JobState.COMPLETED)
    make_jobs(2, state=JobState.FAILED)
    count_all()
    with connection.cursor() as cursor:  # the newest ten seconds are not whole yet
        cursor.execute("UPDATE jobs_flowsample SET at = at - interval '20 seconds' WHERE span_seconds = 10")
    rates = flow.rates()
    assert rates.throughput == 0.1
    assert rates.error_rate == 0.25


def test_house_keeping_counts():
    duties = Duties(uuid4(), sweep_seconds=1000, silent_seconds=30, stuck_seconds=30)
    make_jobs(2)

    def is_counted() -> bool:
        duties.do(0)
        return "http" in flow.totals().services

    wait_for(is_counted, seconds=60, what="the duty to count")


def test_the_statements_have_as_many_bins_as_the_figures():
    [job] = started()
    record(Succeeded(job, "http", None, 1.0, calls=[(200, 1)]))
    count_all()
    for read in (flow.totals().services["http"], *flow.series(timedelta(minutes=5))[-2:]):
        if read.completed:
            assert len(read.latencies) == len(read.delays) == len(DURATION_MS) + 1
            assert len(read.sizes) == len(SIZE_BYTES) + 1
            assert len(read.answers) == len(ANSWERS)
    assert {len(row.answers) for row in FlowSample.objects.filter(service="http")} == {len(ANSWERS)}


def test_sums_of_before_an_answer_was_told_apart_are_read_and_added_to():
    [job] = started()
    FlowSample.objects.create(span_seconds=0, at=timezone.now(), service="http", answers=[1, 2, 3, 4, 5, 6])
    assert list(flow.totals().services["http"].answers.values()) == [1, 2, 3, 4, 5, 6, 0, 0, 0, 0]
    FlowSample.objects.update(at=datetime(1970, 1, 1, tzinfo=UTC))
    record(Succeeded(job, "http", None, 1.0, calls=[(404, 1)]))
    count_all()
    assert list(flow.totals().services["http"].answers.values()) == [1, 2, 3, 4, 5, 6, 0, 0, 0, 1]


def test_a_percentile_lies_within_its_bin():
    assert percentile([0, 0], [10], 0.5) is None
    assert percentile([10, 0, 0], [10, 20], 0.5) == 5
    assert percentile([0, 10, 0], [10, 20], 0.5) == 15
    assert percentile([0, 0, 10], [10, 20], 0.5) == 20
