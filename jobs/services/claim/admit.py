"""Asks the limits, before dispatch, whether the jobs that a claim chose may leave."""

from __future__ import annotations

import random
import time
from collections.abc import Collection, Mapping, Sequence
from uuid import UUID

from jobs.classify import Failure
from jobs.handlers.registry import UnknownKind, find_handler
from jobs.lanes import lane_name, pool_of_lane, read_lane, subject_of
from jobs.services.finish.claimed import ClaimedJob
from jobs.services.finish.finish import bury
from jobs.states import JobState
from queueops.core.sql import run_sql
from queueops.tenancy.credential_pools import pools, refusals
from queueops.tenancy.secrets.credentials import find_principals
from ratelimits.costs import read_amounts
from ratelimits.limiter.decide import Call, Decision, Settlement, decide, settle
from ratelimits.limiter.estimates import with_cached
from ratelimits.limits.alternatives import Alternative, alternatives_of, is_pooled
from ratelimits.limits.catalogue import counted, rule_of_ramp, seconds_to_send
from ratelimits.subjects import Subject

from .deferrals import Deferral, Met, defer_jobs, deferral_delay

NOBODY = ("", "")  # the project and the user of a credential that names none
REJECTED = "limit_rejected"
SUSPECT = 2  # with so many crashes, a job runs in quarantine


def admit(
    chosen: Sequence[ClaimedJob],
    *,
    lease_seconds: float,
    crowded: Collection[str] = (),
    settlements: Sequence[Settlement] = (),
) -> tuple[list[ClaimedJob], dict[str, float]]:
    """
    Ask the limits, in the caller's transaction that has locked the jobs.

    Jobs of one coalesce key are one call: the first stands for all. Jobs that a limit keeps back are parked in their
    lane, unless they are parked already. Jobs that can never fit fail with the limit's reason.

    Args:
        crowded: Lanes in which more jobs wait than the windows of their limits admit.

    Returns:
        The jobs that may leave, in order, one for each call; and the seconds until each refused lane may have room.
    """
    limited = counted()
    leaders: list[ClaimedJob] = []
    keys: set[str] = set()
    for job in chosen:
        if job.coalesce_key:
            if job.coalesce_key in keys:
                continue
            keys.add(job.coalesce_key)
        leaders.append(job)
    # Read the ramp after the jobs are chosen. The ramp is written before the pause is lifted, so a claim that chose
    # jobs because the pause was lifted also sees the ramp.
    paced = rule_of_ramp() is not None
    asking = [
        job
        for job in leaders
        if paced or limited.counts(job.service, project=job.project, kind=job.kind) or pool_of_lane(job.lane)
    ]
    if not asking:
        settle(settlements)
        return leaders, {}
    subjects = subjects_of(asking)
    members = _choose_members(asking, subjects)
    if shut := {job.id for job in asking if members.get(job.id) == ()}:
        # No credential of their pool may be used: these jobs wait unchanged, and no limit is asked about them.
        subjects = [subject for job, subject in zip(asking, subjects, strict=True) if job.id not in shut]
        asking = [job for job in asking if job.id not in shut]
        leaders = [job for job in leaders if job.id not in shut]
    hold_seconds = {kind: longest_run(kind) + lease_seconds for kind in {job.kind for job in asking}}
    calls = [
        call_of(
            job,
            subject,
            hold_seconds=hold_seconds[job.kind],
            crowded=job.lane in crowded,
            alternatives=members.get(job.id, ()) if members else (),
        )
        for job, subject in zip(asking, subjects, strict=True)
    ]
    answers = list(zip(asking, subjects, decide(calls, settlements=settlements), strict=True))
    decided_at = time.monotonic()
    if refused := [answer for answer in answers if answer[2].kind in ("defer", "retry")]:
        _keep_back(refused)
    if rejected := [
        (job.id, job.kind, decision.binding.limit if decision.binding else "", decision.reason)
        for job, _, decision in answers
        if decision.kind == "reject"
    ]:
        reject(rejected)
    admitted = _admitted(leaders, {job.id: (subject, decision) for job, subject, decision in answers}, decided_at)
    delays: dict[str, float] = {}
    for job, subject, decision in answers:
        if job.lane and decision.retry_at is not None and not _is_misplaced(job, subject):
            # Keep the delay of the lane's first job, which waits for no other job of the lane.
            delays.setdefault(job.lane, decision.retry_at - decision.now)
    return admitted, delays


def _choose_members(jobs: Sequence[ClaimedJob], subjects: Sequence[Subject]) -> dict[UUID, tuple[Alternative, ...]]:
    """
    Return the credentials that each job of a pool may use, in the caller's transaction; an empty tuple: the job waits.

    A credential with which the provider refused the job is left out while the pool has another. Once all were refused,
    the job may use any of them again. Where all members are out, one job tries a member that has rested.
    """
    asking = {job.id: subject for job, subject in zip(jobs, subjects, strict=True) if is_pooled(subject)}
    if not asking:
        return {}
    members = {subject: alternatives_of(subject) for subject in set(asking.values())}
    met = refusals.refused_by(asking)
    found = {}
    tried: set[Subject] = set()
    for job, subject in asking.items():
        found[job] = members[subject]
        if members[subject] and members[subject][0].is_on_trial:
            found[job] = () if subject in tried else _on_trial(members[subject])
            tried.add(subject)
        elif job in met:
            others = tuple(one for one in members[subject] if one.credential not in met[job])
            found[job] = others or members[subject]
    return found


def _on_trial(members: Sequence[Alternative]) -> tuple[Alternative, ...]:
    let_go = next((one for one in members if refusals.begin_trial(one.credential)), None)
    if let_go is None:
        return ()
    pools.forget()
    return (let_go,)


def _admitted(
    leaders: Sequence[ClaimedJob], answers: Mapping[UUID, tuple[Subject, Decision]], decided_at: float
) -> list[ClaimedJob]:
    """The jobs that no limit was asked about, or whose limits all had room. The decisions were made at `decided_at`."""
    seconds_of = {subject: seconds_to_send(subject) for subject in {subject for subject, _ in answers.values()}}
    send_by = {subject: None if seconds is None else decided_at + seconds for subject, seconds in seconds_of.items()}
    admitted = []
    for job in leaders:
        if (answer := answers.get(job.id)) is None:
            admitted.append(job)
            continue
        subject, decision = answer
        if decision.kind == "proceed":
            credential = decision.credential or job.credential
            admitted.append(job._replace(holds=decision.holds, credential=credential, send_by=send_by[subject]))
    return admitted


def subjects_of(jobs: Sequence[ClaimedJob]) -> list[Subject]:
    """
    Return the subjects that the provider counts the jobs' calls against: from the lane's name, or else from the job.

    A job has no lane if its limit is newer than the job. A pool's job counts for the credential that its claim chose;
    before that, for the pool. The subject has the job's kind where a limit counts it, even if the lane's name has none.
    """
    limited = counted()
    members = {job.id: job.credential or "" for job in jobs if pool_of_lane(job.lane) not in ("", job.credential)}
    names = {job.credential for job in jobs if job.lane is None and job.credential}
    names.update(members.values())
    principals = find_principals(names) if names else {}
    subjects = []
    for job in jobs:
        if job.lane is None:
            subject = subject_of(
                service=job.service,
                call_type=job.call_type,
                model=job.model,
                project=job.project,
                user=str(job.user_id or ""),
                principals=principals.get(job.credential or "", NOBODY),
            )
        else:
            subject = read_lane(job.lane).subject
            if members and job.id in members:
                project, user = principals.get(members[job.id], NOBODY)
                subject = subject._replace(project=project or subject.project, user=user or subject.user)
        subjects.append(subject._replace(kind=job.kind) if job.kind in limited.kinds else subject)
    return subjects


def call_of(
    job: ClaimedJob,
    subject: Subject,
    *,
    hold_seconds: float,
    crowded: bool = False,
    alternatives: tuple[Alternative, ...] = (),
) -> Call:
    """Return the call of a job, as limits weigh it."""
    return Call(
        subject,
        cost=job.cost,
        known_cost=job.known_cost,
        holder=job.holder,
        kind=job.kind,
        waited_seconds=max(0.0, job.waited),
        hold_seconds=hold_seconds,
        paced=True,
        crowded=crowded,
        amounts=with_cached(read_amounts(job.costs), job.alike),
        alternatives=alternatives,
    )


def longest_run(kind: str) -> float:
    """Return how many seconds a call of a kind may take; 0: no handler is installed for the kind."""
    try:
        return find_handler(kind).timeout.total_seconds()
    except UnknownKind:
        return 0.0


def _keep_back(refused: Sequence[tuple[ClaimedJob, Subject, Decision]]) -> None:
    # A job that is parked already stays unchanged: nothing is written about a job that goes on waiting.
    arriving = [(job, subject, decision) for job, subject, decision in refused if job.was == JobState.QUEUED]
    message = "a limit has no room"
    # Quarantine claims suspects one at a time and no lane releases them, so each suspect gets a time of its own.
    suspects = [_deferral(job, decision) for job, _, decision in arriving if job.crash_count >= SUSPECT]
    defer_jobs("back_off", suspects, message=message)
    arriving = [one for one in arriving if one[0].crash_count < SUSPECT]
    without = [(job, subject) for job, subject, _ in arriving if job.lane is None]
    # If a limit counts a refused job's kind, the job moves to a lane of that kind: it must not block other kinds.
    without += [(job, subject) for job, subject, _ in refused if _is_misplaced(job, subject)]
    if without:
        names = [
            lane_name(subject, project=job.project, user=str(job.user_id or ""), target=job.target)
            for job, subject in without
        ]
        run_sql("jobs", "set_lanes", {"ids": [job.id for job, _ in without], "lanes": names})
    defer_jobs("park", [_deferral(job, decision) for job, _, decision in arriving], message=message)


def _is_misplaced(job: ClaimedJob, subject: Subject) -> bool:
    """Whether a limit counts the job's kind, but its lane is older than that limit and mixes kinds."""
    if not subject.kind or job.lane is None or job.crash_count >= SUSPECT:
        return False
    return not read_lane(job.lane).subject.kind


def _deferral(job: ClaimedJob, decision: Decision) -> Deferral:
    """Return the denied call's own delay; the lane may release the job sooner if room comes back earlier."""
    binding = decision.binding
    if binding is None or decision.retry_at is None:
        raise ValueError(f"{decision.kind} without a limit or a time")
    delay = deferral_delay(
        decision.retry_at - decision.now,
        1 - min(1.0, binding.available / binding.capacity),
        random.random(),  # noqa: S311 - spreads deferrals, protects nothing
        until_hard_reset=binding.hard_reset or binding.cooling,
    )
    met = [Met(one.limit, one.key, one.unit, one.needed, one.available, one.capacity) for one in decision.met]
    return Deferral(job.id, delay, "rate_limit_check", met, decision.reason)


def reject(rejected: Sequence[tuple[UUID, str, str, str]]) -> None:
    """
    Fail jobs that a limit can never admit, in the caller's transaction.

    Args:
        rejected: For each job its id, its kind, the limit's name ("" if the cost itself is malformed), and the reason.
    """
    failures: dict[UUID, tuple[str, Failure]] = {}
    for job_id, kind, limit, reason in rejected:
        message = f"{limit}: {reason}" if limit else reason
        failures[job_id] = kind, Failure(REJECTED, "LimitRejected", message, "not_sent", details={"limit": limit})
    bury("reject", failures)
