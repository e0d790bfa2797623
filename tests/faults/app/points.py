"""The points at which a worker process is killed or stopped, put around the product's functions from outside."""

from __future__ import annotations

import json
import os
import signal
import socket
import time
from collections.abc import Sequence
from functools import cache, partial, wraps
from pathlib import Path
from typing import Any
from uuid import UUID

from django.db import OperationalError, connection, transaction

from jobs import cluster
from jobs.executor import loop, pump
from jobs.executor.loop import HandlerLoop
from jobs.executor.pump import ExecutorSettings
from jobs.features.outages import breaker
from jobs.services.claim import claim
from jobs.services.finish import finish
from jobs.services.finish.claimed import ClaimedJob
from jobs.services.finish.outcomes import Outcome
from queueops.core.processes import parent
from tests.faults.ledger import Ledger


@cache
def ledger() -> Ledger:
    return Ledger(Path(os.environ["FAULTS_DIR"]))


def end_here(point: str, wanted: str, job_id: UUID) -> None:
    """Kill this process the first time that a job which asks for it comes to this point."""
    if point == wanted and ledger().first_time(f"{point}-{job_id}"):
        os.kill(os.getpid(), signal.SIGKILL)


def install() -> None:
    """Put the points and whatever else FAULTS_* asks for in place. Called in every process that loads the app."""
    _end_before_the_claim_is_committed()
    _end_between_claim_and_handler()
    _end_around_the_acknowledgement()
    if host := os.environ.get("FAULTS_HOST"):
        socket.gethostname = lambda: host
    if count := os.environ.get("FAULTS_STOP_AFTER_ENDS"):
        _stop_before_the_acknowledgement(int(count))
    if seconds := os.environ.get("FAULTS_STUCK_SECONDS"):
        _use_stuck_seconds(float(seconds))
    if seconds := os.environ.get("FAULTS_OVERRUN_SECONDS"):
        loop.OVERRUN_SECONDS = pump.OVERRUN_SECONDS = float(seconds)  # type: ignore[attr-defined]
    if seconds := os.environ.get("FAULTS_PROBE_SECONDS"):
        breaker.FIRST_PROBE_SECONDS = float(seconds)
    if os.environ.get("FAULTS_NO_DEATH_SIGNAL"):
        parent._libc = None
    for what in os.environ.get("FAULTS_LOSE_ANSWER_OF", "").split():
        _lose_the_answer_of(what)


def _end_before_the_claim_is_committed() -> None:
    claim_jobs = claim.claim_jobs

    @wraps(claim_jobs)
    def wrapped(*args: Any, **kwargs: Any) -> list[ClaimedJob]:
        claimed = claim_jobs(*args, **kwargs)
        for job in claimed:
            end_here("in_claim", _point(job), job.id)  # decided and dispatched, not committed
        return claimed

    claim.claim_jobs = wrapped


def _end_between_claim_and_handler() -> None:
    carry_out = HandlerLoop.carry_out

    @wraps(carry_out)
    def wrapped(self: HandlerLoop, jobs: Sequence[ClaimedJob], *args: Any) -> None:
        for job in jobs:
            end_here("after_claim", _point(job), job.id)
        carry_out(self, jobs, *args)

    HandlerLoop.carry_out = wrapped  # type: ignore[assignment, method-assign]


def _end_around_the_acknowledgement() -> None:
    record_outcomes = finish.record_outcomes

    @wraps(record_outcomes)
    def wrapped(outcomes: Sequence[Outcome], *args: Any, **kwargs: Any) -> finish.Flushed:
        flushed = record_outcomes(outcomes, *args, **kwargs)
        for job in [outcome.job for outcome in outcomes]:
            end_here("before_ack", _point(job), job.id)  # written, not committed
            transaction.on_commit(partial(end_here, "after_ack", _point(job), job.id))
        return flushed

    finish.record_outcomes = wrapped


def _stop_before_the_acknowledgement(ends: int) -> None:
    """Freeze the process when so many handlers have ended and none of them is written down."""
    record_outcomes = finish.record_outcomes

    @wraps(record_outcomes)
    def wrapped(outcomes: Sequence[Outcome], *args: Any, **kwargs: Any) -> finish.Flushed:
        if outcomes and ledger().first_time("stopped"):
            while len(ledger().entries("end")) < ends:
                time.sleep(0.01)
            os.kill(os.getpid(), signal.SIGSTOP)
        return record_outcomes(outcomes, *args, **kwargs)

    finish.record_outcomes = wrapped


def _use_stuck_seconds(seconds: float) -> None:
    def settings(**values: Any) -> ExecutorSettings:
        return ExecutorSettings(**values, stuck_seconds=seconds)

    cluster.ExecutorSettings = settings  # type: ignore[assignment, attr-defined]


def _lose_the_answer_of(what: str) -> None:
    """Cut the connection between a commit and its answer, once: `claim` or `flush`."""

    def lose() -> None:
        if ledger().first_time(f"lost-{what}"):
            connection.connection.close()
            raise OperationalError("the connection was cut before the commit was answered")

    if what == "flush":
        record_outcomes = finish.record_outcomes

        @wraps(record_outcomes)
        def flush(outcomes: Sequence[Outcome], *args: Any, **kwargs: Any) -> finish.Flushed:
            flushed = record_outcomes(outcomes, *args, **kwargs)
            if outcomes:
                transaction.on_commit(lose)
            return flushed

        finish.record_outcomes = flush
    else:
        claim_jobs = claim.claim_jobs

        @wraps(claim_jobs)
        def claim_some(*args: Any, **kwargs: Any) -> list[ClaimedJob]:
            claimed = claim_jobs(*args, **kwargs)
            if claimed:
                transaction.on_commit(lose)
            return claimed

        claim.claim_jobs = claim_some


def _point(job: ClaimedJob) -> str:
    return str(json.loads(job.payload).get("point", ""))
