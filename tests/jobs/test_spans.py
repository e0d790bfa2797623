"""What an executor makes of a traced attempt: OpenTelemetry's spans of the job's real log."""

from __future__ import annotations

import contextvars
import threading
import time
from collections.abc import Sequence
from typing import Any
from uuid import uuid4

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, Tracer, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF, DEFAULT_ON, Sampler
from opentelemetry.trace import SpanContext, SpanKind, StatusCode

from jobs.classify import Failure
from jobs.executor import spans as spans_module
from jobs.executor.spans import JobSpans
from jobs.services.claim.claim import claim_jobs
from jobs.services.claim.fair_share import ClassTurns
from jobs.services.finish.claimed import ClaimedJob
from jobs.services.finish.finish import record_outcomes
from jobs.services.finish.outcomes import Failed, Outcome, Succeeded
from queueops.core.telemetry import tracing
from tests.factories import make_job

pytestmark = pytest.mark.django_db(transaction=True)

KINDS = {
    "wait": SpanKind.INTERNAL,
    "claim": SpanKind.CLIENT,
    "call": SpanKind.CONSUMER,
    "finish": SpanKind.CLIENT,
}
REFUSED = Failure("bad_request", "Refused", "no", outcome="refused")


def kept_by(sampler: Sampler = DEFAULT_ON) -> tuple[TracerProvider, InMemorySpanExporter]:
    provider, kept = TracerProvider(sampler=sampler), InMemorySpanExporter()
    provider.add_span_processor(SimpleSpanProcessor(kept))
    return provider, kept


@pytest.fixture
def submission(monkeypatch: pytest.MonkeyPatch) -> SpanContext:
    """That of a traced job; another waits behind it that is not."""
    provider, kept = kept_by()
    with monkeypatch.context() as patched:
        patched.setattr(tracing, "tracer", lambda: provider.get_tracer("web"))
        with tracing.submitting("submit", {}):
            make_job()
    make_job()
    [span] = kept.get_finished_spans()
    context = span.get_span_context()
    assert context is not None
    return context


def carry_out(provider: TracerProvider, *, called: bool = True, fails: bool = False) -> list[trace.Span]:
    """Claim both jobs, call them and store what came of it; the spans that were current in the calls."""
    current: list[trace.Span] = []
    tracer = provider.get_tracer("executor")
    assert isinstance(tracer, Tracer)
    spans = JobSpans(tracer, executor_id=uuid4(), pool="")
    spans.start()
    began = time.time_ns()
    claimed = claim_jobs(uuid4(), wanted=2, lease_seconds=30, turns=ClassTurns())
    spans.find(claimed, began)
    spans.begin()
    outcomes = [outcome_of(job, fails=fails) for job in claimed]

    def call(outcome: Outcome) -> None:
        if called:
            spans.begin_calls([outcome.job])
            current.append(trace.get_current_span())
        spans.end_call(outcome.job, outcome)

    for outcome in outcomes:
        contextvars.copy_context().run(call, outcome)
    record_outcomes(outcomes, policies={})
    spans.ended(outcomes)
    spans.stop()
    return current


def times(span: ReadableSpan) -> tuple[int, int]:
    assert span.start_time is not None
    assert span.end_time is not None
    return span.start_time, span.end_time


def outcome_of(job: ClaimedJob, *, fails: bool) -> Outcome:
    if fails:
        return Failed(job, job.service, "moderate", repeatable=True, failure=REFUSED, duration_ms=1.0)
    return Succeeded(job, job.service, None, 1.0)


def test_the_spans_of_an_attempt_stand_side_by_side_under_its_submission(submission: SpanContext):
    provider, kept = kept_by()
    current = carry_out(provider)
    spans = {span.name.partition(" ")[0]: span for span in kept.get_finished_spans()}
    assert {name: span.kind for name, span in spans.items()} == KINDS
    contexts = [span.get_span_context() for span in spans.values()]
    assert {context.trace_id for context in contexts if context} == {submission.trace_id}
    assert len({context.span_id for context in contexts if context}) == len(KINDS)
    assert all(context and context.trace_flags.sampled and not context.is_remote for context in contexts)
    for span in spans.values():
        assert span.parent is not None
        assert (span.parent.span_id, span.parent.is_remote) == (submission.span_id, True)
        assert (span.resource, span.instrumentation_scope) == (
            spans["call"].resource,
            spans["call"].instrumentation_scope,
        )
        assert span.attributes is not None
        assert span.attributes["queueops.attempt"] == 1
        assert span.status.status_code is StatusCode.UNSET
    claim, call, finish = (times(spans[name]) for name in ("claim", "call", "finish"))
    assert claim[0] <= claim[1] <= call[0] <= call[1] == finish[0] <= finish[1]
    traced, other = [span.get_span_context() for span in current]
    assert (traced, other.is_valid) == (spans["call"].get_span_context(), False)


def test_a_job_that_failed_for_good_says_so_in_its_call_and_its_finish(submission: SpanContext):
    provider, kept = kept_by()
    carry_out(provider, fails=True)
    spans = {span.name.partition(" ")[0]: span for span in kept.get_finished_spans()}
    failed = {name for name, span in spans.items() if span.status.status_code is StatusCode.ERROR}
    assert failed == {"call", "finish"}
    told = spans["finish"].attributes
    assert told is not None
    assert (told["queueops.state"], told["error.type"]) == ("failed", REFUSED.code)
    assert spans["finish"].status.description == REFUSED.code


def test_what_the_executors_sampler_leaves_out_has_no_span_at_all(submission: SpanContext):
    provider, kept = kept_by(ALWAYS_OFF)
    carry_out(provider)
    assert kept.get_finished_spans() == ()


@pytest.mark.parametrize(("sampler", "made"), [(DEFAULT_ON, ["wait", "claim", "finish"]), (ALWAYS_OFF, [])])
def test_a_job_that_ends_without_a_call_has_the_others(submission: SpanContext, sampler: Sampler, made: list[str]):
    provider, kept = kept_by(sampler)
    carry_out(provider, called=False)
    assert [span.name.partition(" ")[0] for span in kept.get_finished_spans()] == made


def test_what_stops_while_more_has_ended_than_there_is_room_for_makes_the_last_spans(monkeypatch):
    monkeypatch.setattr(spans_module, "MAX_ATTEMPTS_WAITING", 1)
    monkeypatch.setattr(spans_module, "ATTEMPTS_AT_ONCE", 1)
    busy, gate = threading.Event(), threading.Event()
    told: list[Any] = []

    class Held(JobSpans):
        def _tell(self, attempts: Sequence[Any]) -> None:
            busy.set()
            assert gate.wait(30)
            told.extend(attempts)

    tracer = kept_by()[0].get_tracer("executor")
    assert isinstance(tracer, Tracer)
    spans = Held(tracer, executor_id=uuid4(), pool="")
    spans.start()
    spans._ended.put("first")  # type: ignore[arg-type]
    assert busy.wait(30)
    spans._ended.put("second")  # type: ignore[arg-type]
    assert spans._ended.full()
    threading.Timer(0.1, gate.set).start()
    spans.stop()
    assert not spans._thread.is_alive()
    assert told == ["first", "second"]
