"""
The spans of jobs that were submitted within a sampled trace: wait, claim, call, finish, of each attempt.

The pump and the loop only note when things happened; a thread reads from the log why a job waited, and makes the spans.
"""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING
from uuid import UUID

import psycopg
from django.db import DatabaseError, connection

from jobs.models import JobEvent
from jobs.services.finish.claimed import ClaimedJob
from jobs.services.finish.finish import Failed, GivenBack, Outcome
from jobs.states import RUNNING, EventType, JobState
from queueops.core import tracing
from queueops.core.sql import plain_array, run_sql

if TYPE_CHECKING:
    from opentelemetry.context import Context
    from opentelemetry.trace import Span, Tracer

logger = logging.getLogger(__name__)

TOGETHER_SECONDS = 1.0  # attempts that end within it are looked up at once
MOST_ATTEMPTS_WAITING = 2_000  # attempts whose spans are still to be made; later ones go without
ATTEMPTS_AT_ONCE = 100
MOST_EVENTS_READ = 2_000  # of so many attempts
CONNECTED_SECONDS = 10.0  # without a traced job, after which the connection is given up
LAST_SECONDS = 5.0  # of the process, to make spans of what has ended
CLOCKS_APART = timedelta(hours=1)  # ids are of the submitter's clock, the log's days of the database's
VERSION_7 = 7
# Kind and operation type of each span, by the semantic conventions for messaging.
SHAPES = {
    "wait": ("INTERNAL", ""),
    "claim": ("CLIENT", "receive"),
    "call": ("CONSUMER", "process"),
    "finish": ("CLIENT", "settle"),
}


@dataclass(slots=True)
class _Attempt:
    """One attempt of a traced job; times in nanoseconds since 1970, by this host's clock."""

    job: ClaimedJob
    traceparent: str
    began: int  # its claim
    claimed: int = 0
    called: int = 0
    returned: int = 0
    finished: int = 0
    call: Span | None = None
    outcome: Outcome | None = None

    @property
    def context(self) -> Context:
        return tracing.context_of({"traceparent": self.traceparent})


class JobSpans:
    """
    Spans of one executor's traced jobs.

    Threads: `begin_calls` and `end_call` are for the loop's, all else for the pump's.
    """

    def __init__(self, tracer: Tracer, *, executor_id: UUID, pool: str) -> None:
        self._tracer = tracer
        self._about = {"messaging.system": tracing.SYSTEM, "queueops.executor": str(executor_id)}
        if pool:
            self._about["messaging.consumer.group.name"] = pool
        self._found: dict[tuple[UUID, int], _Attempt] = {}
        self._attempts: dict[tuple[UUID, int], _Attempt] = {}
        self._ended: queue.Queue[_Attempt | None] = queue.Queue(MOST_ATTEMPTS_WAITING)
        self._thread = threading.Thread(target=self._work, name="spans", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def find(self, claimed: Sequence[ClaimedJob], began: int) -> None:
        """Look up which of the jobs are traced, in the claim's transaction."""
        self._found = {}
        if not claimed:
            return
        since = submitted_since(job.id for job in claimed)
        ids, projects = plain_array([job.id for job in claimed]), list({job.project for job in claimed})
        traces = dict(run_sql("jobs", "find_traces", {"ids": ids, "projects": projects, "since": since}))
        self._found = {(job.id, job.token): _Attempt(job, traces[job.id], began) for job in claimed if job.id in traces}

    def begin(self) -> None:
        """What was found is committed."""
        now = time.time_ns()
        for attempt in self._found.values():
            attempt.claimed = now
        self._attempts |= self._found
        self._found = {}

    def begin_calls(self, jobs: Iterable[ClaimedJob]) -> None:
        """Begin the span of the call that these jobs are; it is the current one of this task from now on."""
        attempts = [found for job in jobs if (found := self._attempts.get((job.id, job.token))) is not None]
        if not attempts:
            return
        from opentelemetry import context, trace

        for attempt in attempts:
            attempt.called = time.time_ns()
            attempt.call = self._start(attempt, "call", attempt.called)
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
        from opentelemetry.trace import Status, StatusCode

        if isinstance(outcome, Failed):
            attempt.call.set_status(Status(StatusCode.ERROR, outcome.failure.code))
            attempt.call.set_attribute("error.type", outcome.failure.code)
        elif isinstance(outcome, GivenBack):
            attempt.call.set_attribute("queueops.given_back", outcome.reason)
        attempt.call.end(attempt.returned)

    def ended(self, outcomes: Iterable[Outcome]) -> None:
        """These outcomes are committed."""
        if not self._attempts:
            return
        now = time.time_ns()
        for outcome in outcomes:
            attempt = self._attempts.pop((outcome.job.id, outcome.job.token), None)
            if attempt is not None:
                attempt.finished = now
                self._hand_over(attempt)

    def forget(self, jobs: Iterable[ClaimedJob]) -> None:
        """These jobs were taken away: what becomes of them is another's to tell."""
        for job in jobs:
            self._attempts.pop((job.id, job.token), None)

    def stop(self) -> None:
        """Make and send what is left, within a few seconds."""
        self._hand_over(None)
        self._thread.join(LAST_SECONDS)
        tracing.flush()

    def _hand_over(self, attempt: _Attempt | None) -> None:
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

    def _tell_of(self, attempt: _Attempt, log: Sequence[JobEvent]) -> None:
        from opentelemetry.trace import Status, StatusCode

        wait = wait_of(log, attempt.job.token)
        if wait is not None:
            span = self._start(attempt, "wait", wait.began)
            span.set_attributes(wait.attributes)
            for event in wait.events:
                span.add_event(event.to_status or event.event_type, _told(event), timestamp=_ns(event.created_at))
            span.end(max(wait.began, wait.ended))
        self._start(attempt, "claim", attempt.began).end(attempt.claimed)
        span = self._start(attempt, "finish", attempt.returned or attempt.finished)
        if state := state_after(log, attempt.job.token):
            span.set_attribute("queueops.state", state)
        if isinstance(attempt.outcome, Failed):
            span.set_attribute("error.type", attempt.outcome.failure.code)
            if state == JobState.FAILED:
                span.set_status(Status(StatusCode.ERROR, attempt.outcome.failure.code))
        span.end(attempt.finished)

    def _start(self, attempt: _Attempt, name: str, began: int) -> Span:
        from opentelemetry.trace import SpanKind

        job = attempt.job
        kind, operation = SHAPES[name]
        about: dict[str, str | int] = {
            **self._about,
            "messaging.operation.name": name,
            "messaging.destination.name": job.kind,
            "messaging.message.id": str(job.id),
            "queueops.project": job.project,
            "queueops.service": job.service,
            "queueops.attempt": job.retry_count + 1,
        }
        if operation:
            about["messaging.operation.type"] = operation
        if job.batch_id:
            about["queueops.batch"] = str(job.batch_id)
        return self._tracer.start_span(
            f"{name} {job.kind}", context=attempt.context, kind=SpanKind[kind], attributes=about, start_time=began
        )


@dataclass(frozen=True, slots=True)
class Wait:
    """Why a job waited, as the log tells it; times in nanoseconds since 1970, by the database's clock."""

    began: int
    ended: int
    attributes: dict[str, str]
    events: Sequence[JobEvent]


def submitted_since(ids: Iterable[UUID]) -> datetime:
    """When the oldest of the jobs was submitted, or earlier: ids tell it, as far as clocks agree."""
    oldest = min(ids)
    if oldest.version != VERSION_7:
        return datetime.fromtimestamp(0, UTC)
    return datetime.fromtimestamp((oldest.int >> 80) / 1000, UTC) - CLOCKS_APART


def read_logs(ids: set[UUID]) -> dict[UUID, list[JobEvent]]:
    """What the log has of jobs, oldest first; of very long ones the end."""
    wanted = (EventType.STATE_CHANGE, EventType.SCHEDULING)
    events = JobEvent.objects.filter(job_id__in=ids, created_at__gte=submitted_since(ids), event_type__in=wanted)
    logs: defaultdict[UUID, list[JobEvent]] = defaultdict(list)
    for event in reversed(events.order_by("-id")[:MOST_EVENTS_READ]):
        logs[event.job_id].append(event)
    return logs


def wait_of(log: Sequence[JobEvent], token: int) -> Wait | None:
    """What came before the claim of this token: since the submission, or since the attempt before."""
    claim = _place_of_claim(log, token)
    if claim is None:
        return None
    begin = next((place for place in range(claim - 1, -1, -1) if _begins_to_wait(log[place])), None)
    if begin is None:
        return None
    waited = log[begin:claim]
    return Wait(_ns(waited[0].created_at), _ns(log[claim].created_at), _held_by(waited), waited[1:])


def state_after(log: Sequence[JobEvent], token: int) -> str:
    """The state that the attempt of this token led to; empty: the log does not tell it yet."""
    claim = _place_of_claim(log, token)
    after = log[claim + 1 :] if claim is not None else []
    return next((str(event.to_status) for event in after if event.from_status == JobState.IN_PROGRESS), "")


def _place_of_claim(log: Sequence[JobEvent], token: int) -> int | None:
    return next((place for place, event in enumerate(log) if (event.data or {}).get("fencing_token") == token), None)


def _begins_to_wait(event: JobEvent) -> bool:
    is_submission = event.from_status is None and event.to_status == JobState.QUEUED
    return is_submission or (event.from_status in RUNNING and event.to_status not in RUNNING)


def _held_by(waited: Sequence[JobEvent]) -> dict[str, str]:
    """What held it last: a limit, an outage, its retry's delay, its time, other jobs; else it waited for its turn."""
    for event in reversed(waited):
        data = event.data or {}
        if limit := data.get("binding_limit"):
            return {"queueops.wait.reason": "limit", "queueops.limit": limit, "queueops.limit.unit": data["unit"]}
        if event.to_status == JobState.RATE_LIMITED and not data.get("scheduled_at"):
            return {"queueops.wait.reason": "outage"}
        if event.to_status == JobState.RETRIED:
            return {"queueops.wait.reason": "retry"}
        if data.get("waits_for"):
            return {"queueops.wait.reason": "after"}
        if data.get("scheduled_at"):
            return {"queueops.wait.reason": "scheduled"}
    return {"queueops.wait.reason": "turn"}


def _told(event: JobEvent) -> dict[str, str]:
    limit = (event.data or {}).get("binding_limit")
    return {"message": event.message} | ({"queueops.limit": limit} if limit else {})


def _ns(moment: datetime) -> int:
    return int(moment.timestamp() * 1_000_000) * 1_000
