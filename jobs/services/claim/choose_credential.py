"""Which credentials of its pool a job may be sent with."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

from jobs.services.finish.claimed import ClaimedJob
from queueops.tenancy.credential_pools import pools, refusals
from ratelimits.services.limits.alternatives import Alternative, alternatives_of, is_pooled
from ratelimits.subjects import Subject


def choose_members(jobs: Sequence[ClaimedJob], subjects: Sequence[Subject]) -> dict[UUID, tuple[Alternative, ...]]:
    """
    Return by job of a pool what may be shown for it, in the caller's transaction; none: it waits.

    A job goes with no member that refused it while another is left; after all it begins anew. Where all members are
    out, one job tries one that has rested.
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
