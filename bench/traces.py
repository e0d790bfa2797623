"""
The CPU time of a traced job's spans alone: within a whole drain, it would be lost in the noise.

Jobs are first submitted within sampled traces, claimed and completed. Then an executor's work for their spans is
repeated with these claims, until a collector has taken the last byte.
"""

from __future__ import annotations

import contextvars
import os
import statistics
import tempfile
import time
from functools import partial
from pathlib import Path
from unittest import mock
from uuid import UUID, uuid4

from bench.harness.processes import cpu_seconds
from bench.harness.seeding import one_batch, sampled_batches
from bench.harness.session import Session, run
from jobs.executor.spans import JobSpans
from jobs.services.claim.claim import claim_jobs
from jobs.services.claim.fair_share import ClassTurns
from jobs.services.claim.lanes import LaneGate
from jobs.services.finish.finish import record_outcomes
from jobs.services.finish.outcomes import Succeeded
from queueops.core.telemetry import tracing
from tests.support.collector import collecting

JOBS = 9_000
CLAIMED = 100
CLAIMS = 15  # in a round: an executor would drop the spans of more jobs
A_ROUND = CLAIMED * CLAIMS
SPANS_A_JOB = 4
ROUNDS = 5
FULL_ROUNDS = 20
SUBMISSIONS = 100_000
NO_ATTRIBUTES: dict[str, str] = {}

Claim = list[Succeeded]


def measure(session: Session) -> None:
    rounds = FULL_ROUNDS if session.full else ROUNDS
    with tempfile.TemporaryDirectory() as directory, collecting(Path(directory)) as collector:
        environ = {"OTEL_EXPORTER_OTLP_ENDPOINT": collector.url, "OTEL_BSP_MAX_QUEUE_SIZE": str(SPANS_A_JOB * A_ROUND)}
        with mock.patch.dict(os.environ, environ):
            seed = partial(sampled_batches, JOBS, one_of=1, environ=environ)
            with session.databases.copy(f"sampled_1_{JOBS}", seed):
                _measure(session, "traced", rounds)
            with session.databases.copy(f"batch_{JOBS}", partial(one_batch, JOBS)):
                _measure(session, "untraced", rounds)
        _measure_off(session)
        told = sum(span.operation != "submit" for span in collector.spans())
        if told != (wanted := SPANS_A_JOB * A_ROUND * (rounds + 1)):
            raise SystemExit(f"{told:,} of {wanted:,} spans reached the collector")


def _measure(session: Session, name: str, rounds: int) -> None:
    tracing.tracer.cache_clear()
    tracer, executor = tracing.tracer(), uuid4()
    if tracer is None:
        raise SystemExit("nothing is traced: install the extra queueops[otel]")
    claims = _completed(executor)
    figures: dict[str, list[float]] = {"python": [], "of which pump and loop": [], "postgres": []}
    for number in range(rounds + 1):
        some = [claims[(number * CLAIMS + place) % len(claims)] for place in range(CLAIMS)]
        begun, served = time.process_time(), cpu_seconds(session.postmaster)
        spans = JobSpans(tracer, executor_id=executor, pool="")
        spans.start()
        inline = time.thread_time()
        _go_through(some, spans)
        inline = time.thread_time() - inline
        spans.stop()
        if number:  # the first round only warms up
            spent = time.process_time() - begun, inline, cpu_seconds(session.postmaster) - served
            for kept, seconds in zip(figures.values(), spent, strict=True):
                kept.append(seconds / A_ROUND * 1e6)
    for what, kept in figures.items():
        metric = f"{name}_{what.removeprefix('of which ').replace(' ', '_')}_us_per_job"
        each = "rounds: " + ", ".join(f"{figure:.1f}" for figure in kept)
        session.report.metric(metric, statistics.median(kept), f"{name}: {what}, us a job", each)


def _measure_off(session: Session) -> None:
    """Measure what a submission of one job costs if nothing is traced."""
    with mock.patch.dict(os.environ, {"OTEL_TRACES_EXPORTER": "none"}):
        tracing.tracer.cache_clear()
        begun = time.thread_time()
        for _ in range(SUBMISSIONS):
            with tracing.submitting("submit", NO_ATTRIBUTES) as span:
                tracing.carried(1)
                span.note(messaging__message__id="")
        each = (time.thread_time() - begun) / SUBMISSIONS * 1e6
    tracing.tracer.cache_clear()
    session.report.metric("off_us_per_submission", each, "off: python, us a submission")


def _completed(executor: UUID) -> list[Claim]:
    """Claim and complete all jobs, as many in each claim as an executor takes; return the claims."""
    turns, gate = ClassTurns(), LaneGate()
    claims = []
    for _ in range(JOBS // CLAIMED):
        jobs = claim_jobs(executor, wanted=CLAIMED, lease_seconds=30, turns=turns, gate=gate)
        claims.append([Succeeded(job, "bench", None, 1.0) for job in jobs])
        record_outcomes(claims[-1], policies={})
    return claims


def _go_through(claims: list[Claim], spans: JobSpans) -> None:
    for claim in claims:
        spans.find([outcome.job for outcome in claim], time.time_ns())
        spans.begin()
        for outcome in claim:
            contextvars.copy_context().run(_call, spans, outcome)  # as in a task of its own
        spans.ended(claim)


def _call(spans: JobSpans, outcome: Succeeded) -> None:
    spans.begin_calls([outcome.job])
    spans.end_call(outcome.job, outcome)


if __name__ == "__main__":
    run("traces", measure)
