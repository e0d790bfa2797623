"""One trace from a producer's span to the end of its job, over real processes, as a collector gets it."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from jobs.models import Job, JobEvent
from jobs.states import JobState
from queueops.core.telemetry.tracing import MAX_TRACED
from queueops.tenancy.models import ProducerKey
from tests.factories import make_project
from tests.faults.clusters import cluster
from tests.faults.ledger import Ledger
from tests.faults.records import PROJECT, wait_until_drained
from tests.ratelimits.counting import make_limit
from tests.support.collector import Collector, Seen, collecting
from tests.support.processes import free_port, manage, started, wait_for

pytestmark = pytest.mark.usefixtures("transactional_db")

PRODUCER, CONSUMER, CLIENT = 4, 5, 3  # as OTLP numbers span kinds
WORK: dict[str, object] = {"kind": "faults.write", "payload": {}}


@pytest.fixture
def collector(tmp_path: Path) -> Iterator[Collector]:
    with collecting(tmp_path) as collector:
        yield collector


@contextmanager
def web(**variables: str) -> Iterator[tuple[str, str]]:
    """A web process; its address and a key of the project."""
    _, key = ProducerKey.issue(make_project(PROJECT), name="producer")
    port = free_port()
    environ = {"QUEUEOPS_PORT": str(port), "QUEUEOPS_EXTRA_APPS": "tests.faults.app", **variables}
    with manage("web", environ=environ) as process:
        process.wait_for_output(f"127.0.0.1:{port}", seconds=60)
        yield f"http://127.0.0.1:{port}", key
        process.stop()


def submit(to: tuple[str, str], jobs: list[dict[str, object]], **variables: str) -> str:
    """Submit as another process does, within a span of its own; the trace's id."""
    command = (sys.executable, "-m", "tests.support.traced_producer", *to, json.dumps(jobs))
    with started(*command, environ=variables) as process:
        assert process.process.wait(120) == 0, process.output
        return process.output.strip()


def by_operation(spans: list[Seen]) -> dict[str, list[Seen]]:
    found: dict[str, list[Seen]] = {}
    for span in spans:
        found.setdefault(span.operation, []).append(span)
    return found


def test_a_trace_goes_from_the_producers_span_over_the_web_process_to_the_end_of_its_job(
    ledger: Ledger, collector: Collector
):
    make_limit("narrow", service="faults", capacity=1, window_seconds=2)
    with (
        web(FAULTS_DIR=str(ledger.directory), **collector.environ) as server,
        cluster(ledger, executors=1, **{name.lower(): value for name, value in collector.environ.items()}) as running,
    ):
        trace = submit(server, [WORK, {**WORK, "payload": {"seconds": 0.05}}], **collector.environ)
        wait_until_drained()
        wait_for(lambda: len(collector.spans()) == 2 + 2 * 4, what="all spans")
        assert running.stop() == 0
    spans = collector.spans()
    assert {span.trace for span in spans} == {trace}
    assert len({span.resource["process.pid"] for span in spans if "process.pid" in span.resource}) == 2
    assert {span.resource["service.name"] for span in spans} == {"producer", "queueops"}
    found = by_operation(spans)
    [root], [submitted] = found["import"], found["submit"]
    assert (root.parent, submitted.parent, submitted.kind) == ("", root.span, PRODUCER)
    assert submitted.attributes["messaging.batch.message_count"] == 2
    jobs = {str(job.pk): job for job in Job.objects.all()}
    for operation, kind in (("wait", 1), ("claim", CLIENT), ("call", CONSUMER), ("finish", CLIENT)):
        assert {span.attributes["messaging.message.id"] for span in found[operation]} == set(jobs)
        assert {(span.parent, span.kind) for span in found[operation]} == {(submitted.span, kind)}
        assert {span.name for span in found[operation]} == {f"{operation} faults.write"}
        assert {span.attributes["messaging.system"] for span in found[operation]} == {"queueops"}
    assert {span.attributes["queueops.state"] for span in found["finish"]} == {JobState.COMPLETED}
    reasons = {span.attributes["queueops.wait.reason"]: span for span in found["wait"]}
    assert set(reasons) <= {"turn", "limit"}
    held = reasons["limit"]
    assert held.attributes["queueops.limit"] == "narrow"
    assert "rate_limited" in held.events
    job = jobs[held.attributes["messaging.message.id"]]
    assert job.started_at is not None
    assert held.began == pytest.approx(job.created_at.timestamp(), abs=0.001)
    assert held.ended == pytest.approx(job.started_at.timestamp(), abs=0.001)
    for span in spans:
        assert span.ended >= span.began


def test_an_attempt_that_fails_is_told_apart_and_of_much_or_unsampled_work_no_more_is_traced_than_is_meant(
    ledger: Ledger, collector: Collector, quick_retries: None
):
    work: dict[str, object] = {"kind": "faults.write_at_second_try", "payload": {}}
    with web(FAULTS_DIR=str(ledger.directory), **collector.environ) as server:
        with cluster(ledger, executors=1, **{name.lower(): value for name, value in collector.environ.items()}):
            submit(server, [work], **collector.environ)
            wait_until_drained()
            wait_for(lambda: len(collector.spans()) == 2 + 2 * 4, what="all spans")
        found = by_operation(sorted(collector.spans(), key=lambda span: span.began))
        failed, done = found["call"]
        assert (failed.failed, done.failed) == (True, False)
        assert failed.attributes["error.type"] == Job.objects.get().last_error_code
        assert [span.attributes["queueops.attempt"] for span in found["call"]] == [1, 2]
        assert [span.attributes["queueops.state"] for span in found["finish"]] == [
            JobState.RETRIED,
            JobState.COMPLETED,
        ]
        assert [span.attributes["queueops.wait.reason"] for span in found["wait"]] == ["turn", "retry"]

        submit(server, [WORK] * (MAX_TRACED + 5), **collector.environ)
        submit(server, [WORK], **collector.environ, OTEL_TRACES_SAMPLER="always_off")
        waiting = Job.objects.filter(status=JobState.QUEUED).values("pk")
        traced = JobEvent.objects.filter(job_id__in=waiting, data__has_key="traceparent").count()
        assert (traced, waiting.count()) == (MAX_TRACED, MAX_TRACED + 6)


def test_a_collector_that_is_away_keeps_no_job_and_no_end_of_a_worker_waiting(ledger: Ledger):
    away = {"OTEL_EXPORTER_OTLP_ENDPOINT": f"http://127.0.0.1:{free_port()}"}
    with (
        web(FAULTS_DIR=str(ledger.directory), **away) as server,
        cluster(ledger, executors=1, **{name.lower(): value for name, value in away.items()}) as running,
    ):
        submit(server, [WORK] * 3, **away, OTEL_EXPORTER_OTLP_TIMEOUT="1")
        wait_until_drained()
        assert running.stop(seconds=30) == 0
