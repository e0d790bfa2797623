"""Coalescing: waiting jobs with the coalesce key of a claimed job leave with it, as one call."""

from __future__ import annotations

from collections.abc import Sequence

from jobs.features.budget_holds.afford import Affordable
from jobs.handlers.registry import Coalesce, UnknownKind, find_handler
from jobs.services.finish.claimed import ClaimedJob, opened
from queueops.core.sql import run_sql_as
from ratelimits.costs import INPUT_TOKENS, OUTPUT_TOKENS, TOKENS
from ratelimits.limiter.decide import decide

from .admit import call_of, longest_run, subjects_of

TOKEN_UNITS = frozenset({TOKENS, INPUT_TOKENS, OUTPUT_TOKENS})


def with_companions(admitted: Sequence[ClaimedJob], affordable: Affordable[ClaimedJob]) -> list[ClaimedJob]:
    """
    Return the admitted jobs and their companions, each in its leader's group. The leader's bound is for the whole call.

    Args:
        admitted: One job for each call; the limits have charged the calls.
        affordable: All jobs that this transaction has locked and budgets can pay for; companions come from these first.
    """
    leaders = {job.coalesce_key: job for job in admitted if job.coalesce_key}
    if not leaders:
        return list(admitted)
    ids = {job.id for job in admitted}
    beside: dict[str, list[ClaimedJob]] = {key: [] for key in leaders if key}
    for job in affordable.jobs:
        if job.id not in ids and job.coalesce_key in beside:
            beside[job.coalesce_key].append(job)
    rules = {key: _rule(job.kind) for key, job in leaders.items() if key}
    found = run_sql_as(
        ClaimedJob,
        "jobs",
        "choose_companions",
        {
            "keys": list(rules),
            "most": [rule.max_items - 1 for rule in rules.values()],
            "bytes": [rule.max_bytes for rule in rules.values()],
            "except": [job.id for job in affordable.jobs],
            "token": admitted[0].token,
        },
    )
    for job in map(opened, found):
        beside[job.coalesce_key or ""].append(job)
    claimed = []
    for job in admitted:
        if job.coalesce_key:
            others = _fitting(job, beside.pop(job.coalesce_key), rules[job.coalesce_key], affordable)
            claimed += [job._replace(bound=affordable.bound_of(job)) if others else job, *others]
        else:
            claimed.append(job)
    return claimed


def _fitting(
    leader: ClaimedJob, others: Sequence[ClaimedJob], rule: Coalesce, affordable: Affordable[ClaimedJob]
) -> list[ClaimedJob]:
    """
    Return as many companions as one call may hold and the leader's budgets can pay for, each under the leader's claim.

    If the call takes the tokens of every job in it, the token limits are asked about each job. A job that they keep
    back waits unchanged.
    """
    size = len(leader.payload)
    fitting = []
    for job in others[: rule.max_items - 1]:
        if size + len(job.payload) > rule.max_bytes:
            break
        if not affordable.take_along(leader, job):
            continue
        size += len(job.payload)
        fitting.append(
            job._replace(
                token=leader.token,
                group=leader.id,
                weight=leader.weight,
                tier_class=leader.tier_class,
                credential=leader.credential,  # of a pool: the member chosen for the call
                bound=None,  # the leader's bound is that of the whole call
            )
        )
    if not (rule.counts_each and leader.holds and fitting):
        return fitting
    calls = [
        call_of(job, subject, hold_seconds=longest_run(job.kind) + affordable.lease_seconds)
        for job, subject in zip(fitting, subjects_of(fitting), strict=True)
    ]
    decisions = decide(calls, units=TOKEN_UNITS)
    return [
        job._replace(holds=decision.holds)
        for job, decision in zip(fitting, decisions, strict=True)
        if decision.kind == "proceed"
    ]


def _rule(kind: str) -> Coalesce:
    try:
        return find_handler(kind).coalesce or Coalesce(key=str, max_items=1)
    except UnknownKind:
        return Coalesce(key=str, max_items=1)
