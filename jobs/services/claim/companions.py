"""Coalescing: waiting jobs of one key leave with a claimed one, as one call."""

from __future__ import annotations

from collections.abc import Sequence

from jobs.handlers.registry import Coalesce, UnknownKind, find_handler
from jobs.services.finish.claimed import ClaimedJob
from queueops.core.sql import run_sql_as


def with_companions(admitted: Sequence[ClaimedJob], chosen: Sequence[ClaimedJob]) -> list[ClaimedJob]:
    """
    Return the admitted jobs, and the jobs that leave with one of them, in its group.

    Args:
        admitted: One a call: each was charged.
        chosen: All that this transaction has locked: of one key they go first.
    """
    leaders = {job.coalesce_key: job for job in admitted if job.coalesce_key}
    if not leaders:
        return list(admitted)
    ids = {job.id for job in admitted}
    beside: dict[str, list[ClaimedJob]] = {key: [] for key in leaders if key}
    for job in chosen:
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
            "except": [job.id for job in chosen],
            "token": admitted[0].token,
        },
    )
    for job in found:
        beside[job.coalesce_key or ""].append(job)
    claimed = []
    for job in admitted:
        claimed.append(job)
        if job.coalesce_key:
            claimed += _fitting(job, beside.pop(job.coalesce_key), rules[job.coalesce_key])
    return claimed


def _fitting(leader: ClaimedJob, others: Sequence[ClaimedJob], rule: Coalesce) -> list[ClaimedJob]:
    """As many as one call may hold, each under the leader's claim."""
    size = len(leader.payload)
    fitting = []
    for job in others[: rule.max_items - 1]:
        size += len(job.payload)
        if size > rule.max_bytes:
            break
        fitting.append(
            job._replace(token=leader.token, group=leader.id, weight=leader.weight, tier_class=leader.tier_class)
        )
    return fitting


def _rule(kind: str) -> Coalesce:
    try:
        return find_handler(kind).coalesce or Coalesce(key=str, max_items=1)
    except UnknownKind:
        return Coalesce(key=str, max_items=1)
