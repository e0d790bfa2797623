"""Writes the outcomes of running jobs, many in one transaction."""

from __future__ import annotations

import json
import logging
import random
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from django.db import transaction

from jobs import backoff
from jobs.classify import Failure, clean, clean_json, fingerprint, is_outage, is_retryable
from jobs.features.budget_holds.spend import record_spend
from jobs.features.fallback.fallback import move_another_way, ways_on
from jobs.features.fallback.ways import NAMED
from jobs.features.outages.breaker import Answered, Unanswered, record_answers
from jobs.features.refused_calls.credential_refusals import note_accepted, note_refused
from jobs.features.refused_calls.stops import keep_stopped, note_answered, note_stops
from jobs.features.served_kinds.served_kinds import INVALID_PAYLOAD, KEY_MISSING, REFUSED_BY, keep_closed, set_aside
from jobs.models import RetryPolicy, new_id
from jobs.states import JobState
from jobs.transitions import Move, move_jobs
from queueops.core.sql import run_sql
from ratelimits.costs import NO_AMOUNTS
from ratelimits.limiter.decide import Settlement, Statement

from .claimed import ClaimedJob
from .encrypted_outcomes import data_of, message_of, outward, result_of
from .outcomes import GIVE_BACK_SECONDS, MAX_CALLS_LOGGED, Failed, GivenBack, Outcome, Progress, Succeeded

logger = logging.getLogger(__name__)


@dataclass(slots=True)
class Flushed:
    """`lost`: jobs whose write was refused because this executor no longer owns them, such as cancelled jobs."""

    lost: set[UUID] = field(default_factory=set)


@transaction.atomic(savepoint=False)
def record_outcomes(
    outcomes: Sequence[Outcome],
    progress: Collection[Progress] = (),
    *,
    policies: Mapping[str, backoff.Policy],
) -> Flushed:
    """
    Write outcomes and progress, each only if its fencing token is current; with events, dead letters, breakers, spend.

    Args:
        policies: Retry policies by name, see `retry_policies`.

    Returns:
        The refused writes. A refused outcome is logged on the job and in this process's log, and changes nothing else.
    """
    flushed = Flushed()
    if progress:
        _write_progress(progress, flushed)
    succeeded = [outcome for outcome in outcomes if isinstance(outcome, Succeeded)]
    failed = [outcome for outcome in outcomes if isinstance(outcome, Failed)]
    given_back = [outcome for outcome in outcomes if isinstance(outcome, GivenBack)]
    _move("complete", [_completion(o) for o in succeeded if not o.stored], flushed)
    _move(
        "hand_back",
        [
            Move(
                o.job.id,
                token=o.job.token,
                delay_seconds=o.wait_seconds,
                message=_reason(o),
                error_code=KEY_MISSING if o.closed else INVALID_PAYLOAD if o.misfit else None,
                result=result_of(o.job, o.partial),
                data=data_of(o.job, _facts_of_part(o)),
                coalesce_key=o.coalesce_key,
            )
            for o in given_back
        ],
        flushed,
    )
    set_aside([o.job for o in given_back if o.misfit and o.job.id not in flushed.lost])
    keep_closed([o.job for o in given_back if o.closed and o.job.id not in flushed.lost])
    answered: list[Succeeded | GivenBack] = [*succeeded, *(o for o in given_back if o.partial is not None)]
    note_accepted(answered)
    note_answered(answered)
    unspent = record_answers(*_answers(succeeded, given_back, failed))
    if failed:
        _write_failures(failed, unspent, policies, flushed)
    record_spend(outcomes, lost=flushed.lost)
    if flushed.lost:
        _log_refused([o for o in outcomes if o.job.id in flushed.lost])
    return flushed


def complete_here(outcome: Succeeded) -> bool:
    """
    Complete a job in the transaction in which its handler writes its effect; `record_outcomes` does the rest later.

    Returns:
        Whether the claim still owned the job. If not, nothing was written, and the caller must roll the effect back.
    """
    return bool(move_jobs("complete", [_completion(outcome)]))


def settlements_of(outcomes: Sequence[Outcome], statements: Mapping[UUID, Statement] | None = None) -> list[Settlement]:
    """
    Return what these outcomes' calls must settle with the limits, once for each call, even if a write was refused.

    Args:
        statements: By job, the quotas that its provider stated. A job with a statement is included even if it holds
            nothing.
    """
    told = statements or {}
    return [
        Settlement(
            outcome.job.holder,
            outcome.cost,
            outcome.usage.amounts() if outcome.usage else NO_AMOUNTS,
            told.get(outcome.job.id),
        )
        for outcome in outcomes
        if outcome.job.holds or outcome.job.id in told
    ]


def retry_policies() -> dict[str, backoff.Policy]:
    """Return the RetryPolicy rows by name."""
    return {
        row.name: backoff.Policy(
            initial=row.initial_seconds,
            multiplier=row.multiplier,
            max_delay=row.max_delay_seconds,
            max_retries=row.max_retries,
            jitter=row.jitter,  # type: ignore[arg-type]  # its choices are the Literal's values
            window=row.window_seconds,
        )
        for row in RetryPolicy.objects.all()
    }


def bury(
    edge: str,
    failures: Mapping[UUID, tuple[str, Failure]],
    moves: Sequence[Move] | None = None,
    *,
    sealed: Mapping[UUID, ClaimedJob] | None = None,
) -> set[UUID]:
    """
    Fail jobs for good along `edge` and write their dead letters, in the caller's transaction.

    Args:
        failures: By job id, the job's kind and its failure.
        moves: The jobs' moves; None: each job's move tells its failure, and needs no lease.
        sealed: By job id, the jobs whose errors are to be encrypted.

    Returns:
        The ids that moved; only they have a dead letter.
    """
    if moves is None:
        moves = [Move(job_id, error_code=one.code, message=one.message) for job_id, (_, one) in failures.items()]
    moved = move_jobs(edge, moves)
    buried = [(job_id, *failures[job_id]) for job_id in moved]
    hidden = sealed or {}
    if buried:
        run_sql(
            "jobs",
            "insert_dead_letters",
            {
                "letters": [new_id() for _ in buried],
                "ids": [job_id for job_id, _, _ in buried],
                "codes": [failure.code for _, _, failure in buried],
                "classes": [failure.error_class for _, _, failure in buried],
                "messages": [
                    message_of(hidden[job_id], failure.message) if job_id in hidden else failure.message
                    for job_id, _, failure in buried
                ],
                "statuses": [failure.status for _, _, failure in buried],
                "remedies": [failure.remedy for _, _, failure in buried],
                "fingerprints": [fingerprint(kind, failure) for _, kind, failure in buried],
            },
        )
    return moved


def unstorable(outcome: Outcome, error: Exception) -> Failed:
    """Return the failure to write instead of an outcome that the database refuses."""
    failure = Failure("result_not_stored", type(error).__name__, clean(str(error)), outcome="refused")
    return Failed(
        outcome.job,
        "",
        "moderate",
        repeatable=False,
        failure=failure,
        duration_ms=0.0,
        usage=outcome.usage,
        via=outcome.via,
    )


def _write_failures(
    failed: Sequence[Failed], unspent: set[UUID], policies: Mapping[str, backoff.Policy], flushed: Flushed
) -> None:
    retries: list[Move] = []
    waits: list[Move] = []
    deaths: list[Move] = []
    reasons: dict[UUID, tuple[str, Failure]] = {}
    rerouted = note_refused(failed)
    ways = ways_on([(o.job, o.failure, o.repeatable) for o in failed if NAMED in o.job.payload])
    # A job that goes on with another credential or fallback does not count towards stopping others.
    elsewhere = {job for job, wait in rerouted.waits.items() if not wait} | ways.keys()
    stopped = note_stops([o for o in failed if o.job.id not in elsewhere])
    for outcome in rerouted.said_of(failed):
        failure, job = outcome.failure, outcome.job
        retryable = is_retryable(failure, repeatable=outcome.repeatable)
        delay, stop = _next_try(outcome, policies)
        if failure.push_back is not None:
            # The quota was full although our counters had room: our limits were wrong, so the job's attempt does not
            # count.
            waits.append(_failure_move(outcome, delay_seconds=outcome.wait_seconds))
        elif job.id in rerouted.waits and not (rerouted.waits[job.id] and job.id in ways):
            waits.append(_failure_move(outcome, delay_seconds=rerouted.waits[job.id]))
        elif job.id in ways or job.id in stopped or (retryable and job.id in unspent):
            waits.append(_failure_move(outcome, delay_seconds=GIVE_BACK_SECONDS))
        elif retryable and stop is None:
            retries.append(_failure_move(outcome, delay_seconds=delay))
        else:
            deaths.append(_failure_move(outcome, gave_up=stop if retryable else "not retryable"))
            reasons[job.id] = (job.kind, failure)
    _move("retry", retries, flushed)
    _move("hand_back", waits, flushed)
    keep_stopped(stopped - flushed.lost)
    move_another_way(
        [way for job, way in ways.items() if job not in flushed.lost and rerouted.waits.get(job) != GIVE_BACK_SECONDS]
    )
    sealed = {outcome.job.id: outcome.job for outcome in failed if outcome.job.sealed}
    flushed.lost |= {move.id for move in deaths} - bury("fail", reasons, deaths, sealed=sealed)


def _next_try(outcome: Failed, policies: Mapping[str, backoff.Policy]) -> tuple[float, str | None]:
    """Return the delay before the next retry, and why no retry is left (None: a retry is left)."""
    job, failure = outcome.job, outcome.failure
    name = job.retry_policy or outcome.retry
    policy = policies.get(name) or backoff.TEMPLATES.get(name) or backoff.TEMPLATES["moderate"]
    delay = backoff.delay(
        policy,
        job.retry_count,
        chance=random.random(),  # noqa: S311 - spreads retries, protects nothing
        retry_after=failure.retry_after,
    )
    used = job.window_used + (outcome.duration_ms or 0.0) / 1000
    return delay, backoff.exhausted(policy, job.retry_count, window_used=used, next_delay=delay)


def _failure_move(outcome: Failed, *, delay_seconds: float | None = None, gave_up: str | None = None) -> Move:
    failure = outcome.failure
    facts = {
        "attempt": outcome.job.retry_count + 1,
        "error_class": failure.error_class,
        "http_status": failure.status,
        "outcome": failure.outcome,
        "retry_after": failure.retry_after,
        "duration_ms": None if outcome.duration_ms is None else round(outcome.duration_ms, 1),
        "waited_ms": round(outcome.job.waited * 1000, 1) if _was_picked_up(outcome.job) else None,
        "calls": _calls_of(outcome) or None,
        "delay_seconds": delay_seconds,
        "gave_up": gave_up,
        "details": failure.details or None,
        "traceback": failure.traceback or None,
        "log": outcome.log or None,
    }
    return Move(
        outcome.job.id,
        token=outcome.job.token,
        delay_seconds=delay_seconds,
        error_code=failure.code,
        message=message_of(outcome.job, failure.message),
        data=data_of(
            outcome.job,
            clean_json(json.dumps({name: value for name, value in facts.items() if value is not None}, default=str)),
        ),
    )


def _completion(outcome: Succeeded) -> Move:
    job = outcome.job
    return Move(job.id, token=job.token, result=result_of(job, outcome.result), data=data_of(job, _figures(outcome)))


def _figures(outcome: Succeeded) -> str:
    """Return a success's figures, which flow.py sums up. Made without json.dumps, which takes time for every job."""
    if outcome.duration_ms is None:  # no live call, so no duration that shows how fast the service is
        return "{}"
    waited = f', "waited_ms": {outcome.job.waited * 1000:.1f}' if _was_picked_up(outcome.job) else ""
    answers = f', "calls": {json.dumps(outcome.calls[:MAX_CALLS_LOGGED])}' if outcome.calls else ""
    lines = f', "log": {clean_json(json.dumps(outcome.log))}' if outcome.log else ""
    return f'{{"duration_ms": {outcome.duration_ms:.1f}{waited}{answers}{lines}}}'


def _facts_of_part(outcome: GivenBack) -> str | None:
    # `has_part` tells jobs/features/recovery/event_fold.py that the next attempt keeps the progress.
    facts: dict[str, Any] = {"has_part": True} if outcome.partial is not None else {}
    if outcome.calls:
        facts |= {"calls": outcome.calls[:MAX_CALLS_LOGGED]}
    if outcome.log:
        facts |= {"log": outcome.log}
    return clean_json(json.dumps(facts)) if facts else None


def _reason(given_back: GivenBack) -> str:
    """Return the event's message, with the refusing version unencrypted: otherwise misfits would be tried for ever."""
    job, reason = given_back.job, given_back.reason
    if given_back.closed:
        return reason
    refusal = REFUSED_BY.match(reason) if given_back.misfit else None
    known = refusal[0] if refusal else ""
    return known + message_of(job, reason.removeprefix(known))


def _was_picked_up(job: ClaimedJob) -> bool:
    """Whether a job waited only for a free worker, not for a limit or the delay before a retry."""
    return job.was == JobState.QUEUED and job.window_used == 0


def _calls_of(outcome: Failed) -> list[tuple[int, int]]:
    """Return the noted calls. If none was noted, a job that leaves alone counts one call with its error's status."""
    if outcome.calls or outcome.failure.status is None or outcome.job.coalesce_key is not None:
        return list(outcome.calls[:MAX_CALLS_LOGGED])
    return [(outcome.failure.status, 0)]


def _answers(
    succeeded: Sequence[Succeeded], given_back: Sequence[GivenBack], failed: Sequence[Failed]
) -> tuple[list[Answered], list[Unanswered]]:
    """Return, for the outage breaker, the calls that were answered and the jobs that failed because of a target."""
    answered = [Answered(o.service, o.job.target, o.job.path) for o in succeeded if o.service]
    answered += [Answered(o.job.service, o.job.target, o.job.path) for o in given_back if o.partial is not None]
    unanswered = []
    for outcome in failed:
        job, failure = outcome.job, outcome.failure
        if not outcome.service:
            continue
        if is_outage(failure):
            where = (outcome.service, job.target, job.project, job.id, job.group or job.id, job.path)
            unanswered.append(Unanswered(*where, outward(job, failure.code, failure.message)))
        elif failure.outcome == "answered":
            answered.append(Answered(outcome.service, job.target, job.path))
    return answered, unanswered


def _write_progress(progress: Collection[Progress], flushed: Flushed) -> None:
    parameters = {
        "ids": [note.job.id for note in progress],
        "tokens": [note.job.token for note in progress],
        "percents": [note.percent for note in progress],
        "messages": [message_of(note.job, note.message) for note in progress],
    }
    written = {row[0] for row in run_sql("jobs", "record_progress", parameters)}
    flushed.lost |= {note.job.id for note in progress} - written


def _move(edge: str, moves: Sequence[Move], flushed: Flushed) -> None:
    moved = move_jobs(edge, moves)
    if len(moved) < len(moves):
        flushed.lost |= {move.id for move in moves} - moved


def find_lost(jobs: Collection[ClaimedJob]) -> set[tuple[UUID, int]]:
    """
    Return the ids and fencing tokens of the claims that were taken from an executor judged dead. Claims that a
    cancellation or reset ended are left out.
    """
    parameters = {
        "ids": [job.id for job in jobs],
        "tokens": [job.token for job in jobs],
        "crashes": [job.crash_count for job in jobs],
    }
    return {(job_id, token) for job_id, token in run_sql("jobs", "find_lost_claims", parameters)}


def _log_refused(outcomes: Sequence[Outcome]) -> None:
    jobs = [outcome.job for outcome in outcomes]
    lost = find_lost(jobs)
    parameters = {
        "ids": [job.id for job in jobs],
        "tokens": [job.token for job in jobs],
        "whats": [type(outcome).__name__.lower() for outcome in outcomes],
        "lost": [(job.id, job.token) in lost for job in jobs],
    }
    for job_id, token, what, is_lost in run_sql("jobs", "log_refused_writes", parameters):
        if is_lost:
            logger.warning("lease lost: %s of job %s with fencing token %s was refused", what, job_id, token)
        else:
            logger.info("%s of job %s came after it was taken back", what, job_id)
