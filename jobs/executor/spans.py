"""
Makes the spans of jobs that were submitted within a sampled trace: wait, claim, call and finish, for each attempt.

The pump and the loop only note when things happened; a thread reads from the log why a job waited, and makes the spans.
Only `call` is begun through OpenTelemetry, which then asks the sampler. The other spans copy its trace and are made
as finished spans, which takes an eighth of the time. This module is not imported where tracing is off.
"""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any
from uuid import UUID

import psycopg
from django.db import DatabaseError, connection
from opentelemetry import context, trace
from opentelemetry.context import Context
from opentelemetry.sdk.trace import Event, ReadableSpan, Tracer
from opentelemetry.trace import Span, SpanContext, SpanKind, Status, StatusCode

from jobs.services.finish.claimed import ClaimedJob
from jobs.services.finish.outcomes import Failed, GivenBack, Outcome
from jobs.states import JobState
from queueops.core.sql import run_sql
from queueops.core.telemetry import tracing

from .waits import LogStep, nanoseconds, read_logs, state_after, submitted_since, told_of, wait_of

logger = logging.getLogger(__name__)

TOGETHER_SECONDS = 1.0  # logs of attempts that end within this time are read at once
MAX_ATTEMPTS_WAITING = 2_000  # attempts whose spans are still to be made; further attempts get no spans
ATTEMPTS_AT_ONCE = 100
CONNECTED_SECONDS = 10.0  # without a traced job for so long, the thread closes its connection
LAST_SECONDS = 5.0  # at the process's end, to make the spans of ended attempts
# Kind and operation type of each span, by the semantic conventions for messaging.
SHAPES = {
    "wait": (SpanKind.INTERNAL, {}),
    "claim": (SpanKind.CLIENT, {"messaging.operation.type": "receive"}),
    "call": (SpanKind.CONSUMER, {"messaging.operation.type": "process"}),
    "finish": (SpanKind.CLIENT, {"messaging.operation.type": "settle"}),
}
Told = Mapping[str, str | int]
NOTHING: Told = {}


@dataclass(slots=True)
class _Attempt:
    """One attempt of a traced job; times in nanoseconds since 1970, by this host's clock."""

    job: ClaimedJob
    traceparent: str
    about: Told  # attributes of all its spans
    began: int  # when its claim began
    claimed: int = 0
    called: int = 0
    returned: int = 0
    finished: int = 0
    call: Span | None = None
    outcome: Outcome | None = None


class JobSpans:
    """
    Spans of one executor's traced jobs.

    Threads: the loop's thread calls `begin_calls` and `end_call`, the pump's thread all others.
    """

    def __init__(self, tracer: Tracer, *, executor_id: UUID, pool: str) -> None:
        self._tracer = tracer
        self._about: Told = {"messaging.system": tracing.SYSTEM, "queueops.executor": str(executor_id)}
        if pool:
            self._about = {**self._about, "messaging.consumer.group.name": pool}
        self._found: dict[tuple[UUID, int], _Attempt] = {}
        self._attempts: dict[tuple[UUID, int], _Attempt] = {}
        self._ended: queue.Queue[_Attempt | None] = queue.Queue(MAX_ATTEMPTS_WAITING)
        self._thread = threading.Thread(target=self._work, name="spans", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def find(self, claimed: Sequence[ClaimedJob], began: int) -> None:
        """Look up which of the jobs are traced, in the claim's transaction."""
        self._found = {}
        if not claimed:
            return
        since = submitted_since(job.id for job in claimed)
        ids = "{" + ",".join([job.id.hex for job in claimed]) + "}"  # half the time of str(); most jobs have no trace
        projects = list({job.project for job in claimed})
        if found := run_sql("jobs", "find_traces", {"ids": ids, "projects": projects, "since": since}):
            traces = dict(found)
            self._found = {
                (job.id, job.token): _Attempt(job, traces[job.id], self._about_one(job), began)
                for job in claimed
                if job.id in traces
            }

    def begin(self) -> None:
        """Note that the claims of the jobs that `find` found are committed."""
        now = time.time_ns()
        for attempt in self._found.values():
            attempt.claimed = now
        self._attempts |= self._found
        self._found = {}

    def begin_calls(self, jobs: Iterable[ClaimedJob]) -> None:
        """Begin the call spans of jobs that leave as one call; the first becomes this task's current span."""
        if not self._attempts:
            return
        attempts = [found for job in jobs if (found := self._attempts.get((job.id, job.token))) is not None]
        if not attempts:
            return
        for attempt in attempts:
            attempt.called = time.time_ns()
            attempt.call = self._start(attempt)
        if attempts[0].call is not None:
            context.attach(trace.set_span_in_context(attempts[0].call))

    def end_call(self, job: ClaimedJob, outcome: Outcome | None) -> None:
        """End the span of a job's call, if it has one."""
        attempt = self._attempts.get((job.id, job.token)) if self._attempts else None
        if attempt is None:
            return
        attempt.returned, attempt.outcome = time.time_ns(), outcome
        if attempt.call is None:
            return
        if isinstance(outcome, Failed):
            attempt.call.set_status(Status(StatusCode.ERROR, outcome.failure.code))
            attempt.call.set_attribute("error.type", outcome.failure.code)
        elif isinstance(outcome, GivenBack):
            attempt.call.set_attribute("queueops.given_back", outcome.reason)
        attempt.call.end(attempt.returned)

    def ended(self, outcomes: Iterable[Outcome]) -> None:
        """Note that these outcomes are committed."""
        if not self._attempts:
            return
        now = time.time_ns()
        for outcome in outcomes:
            attempt = self._attempts.pop((outcome.job.id, outcome.job.token), None)
            if attempt is not None:
                attempt.finished = now
                self._hand_over(attempt)

    def forget(self, jobs: Iterable[ClaimedJob]) -> None:
        """Drop jobs that this executor lost: it does not write how they end."""
        for job in jobs:
            self._attempts.pop((job.id, job.token), None)

    def stop(self) -> None:
        """Make and send the remaining spans, within a few seconds."""
        until = time.monotonic() + LAST_SECONDS
        with suppress(queue.Full):  # put() waits for room: otherwise the thread would not be told to end
            self._ended.put(None, timeout=LAST_SECONDS)
        self._thread.join(max(0.0, until - time.monotonic()))
        tracing.flush()

    def _hand_over(self, attempt: _Attempt) -> None:
        try:
            self._ended.put_nowait(attempt)
        except queue.Full:
            logger.warning("more traced jobs end than spans can be made of; one goes without")

    def _work(self) -> None:
        goes_on = True
        while goes_on:
            try:
                batch = [self._ended.get(timeout=CONNECTED_SECONDS)]
            except queue.Empty:
                connection.close()
                continue
            until = time.monotonic() + TOGETHER_SECONDS
            while batch[-1] is not None and len(batch) < ATTEMPTS_AT_ONCE and (left := until - time.monotonic()) > 0:
                try:
                    batch.append(self._ended.get(timeout=left))
                except queue.Empty:
                    break
            goes_on = batch[-1] is not None
            self._tell([attempt for attempt in batch if attempt is not None])
        connection.close()

    def _tell(self, attempts: Sequence[_Attempt]) -> None:
        try:
            logs = read_logs({attempt.job.id for attempt in attempts}) if attempts else {}
        except (DatabaseError, psycopg.Error):
            logger.warning("the log could not be read: spans go without what held their jobs", exc_info=True)
            connection.close()
            logs = {}
        for attempt in attempts:
            try:
                self._tell_of(attempt, logs.get(attempt.job.id, []))
            except Exception:
                logger.exception("no spans could be made of job %s", attempt.job.id)

    def _tell_of(self, attempt: _Attempt, log: Sequence[LogStep]) -> None:
        like = attempt.call or self._start(attempt)  # a job that is cancelled before its call has no call span
        if not isinstance(like, ReadableSpan):
            return  # the sampler did not sample it
        make = partial(self._make, attempt, like)
        if wait := wait_of(log, attempt.job.token):
            steps = [
                Event(step.to_status or step.event_type, told_of(step), nanoseconds(step.created_at))
                for step in wait.steps
            ]
            make("wait", (wait.began, max(wait.began, wait.ended)), told=wait.attributes, events=steps)
        make("claim", (attempt.began, attempt.claimed))
        told, status = {}, Status()
        if state := state_after(log, attempt.job.token):
            told["queueops.state"] = state
        if isinstance(attempt.outcome, Failed):
            told["error.type"] = attempt.outcome.failure.code
            if state == JobState.FAILED:
                status = Status(StatusCode.ERROR, attempt.outcome.failure.code)
        make("finish", (attempt.returned or attempt.finished, attempt.finished), told=told, status=status)

    def _start(self, attempt: _Attempt) -> Span:
        kind, operation = SHAPES["call"]
        return self._tracer.start_span(
            f"call {attempt.job.kind}",
            context=_context_of(attempt.traceparent),
            kind=kind,
            attributes={**attempt.about, **operation, "messaging.operation.name": "call"},
            start_time=attempt.called,
        )

    def _make(
        self,
        attempt: _Attempt,
        like: ReadableSpan,
        name: str,
        times: tuple[int, int],
        *,
        told: Told = NOTHING,
        **more: Any,
    ) -> None:
        """Export a finished span, a sibling of the attempt's call span `like`."""
        if (beside := like.get_span_context()) is None:
            return
        kind, operation = SHAPES[name]
        span = ReadableSpan(
            f"{name} {attempt.job.kind}",
            context=SpanContext(
                beside.trace_id,
                self._tracer.id_generator.generate_span_id(),
                is_remote=False,
                trace_flags=beside.trace_flags,
                trace_state=beside.trace_state,
            ),
            parent=like.parent,
            resource=like.resource,
            instrumentation_scope=like.instrumentation_scope,
            attributes={**attempt.about, **operation, "messaging.operation.name": name, **told},
            kind=kind,
            start_time=times[0],
            end_time=times[1],
            **more,
        )
        self._tracer.span_processor.on_end(span)

    def _about_one(self, job: ClaimedJob) -> Told:
        about = {
            **self._about,
            "messaging.destination.name": job.kind,
            "messaging.message.id": str(job.id),
            "queueops.project": job.project,
            "queueops.service": job.service,
            "queueops.attempt": job.retry_count + 1,
        }
        return {**about, "queueops.batch": str(job.batch_id)} if job.batch_id else about


@lru_cache(MAX_ATTEMPTS_WAITING)
def _context_of(traceparent: str) -> Context:
    return tracing.context_of({"traceparent": traceparent})
