"""Chooses the lane, the coalescing key and the estimated cost of a new job."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from typing import NamedTuple
from urllib.parse import urlsplit

from jobs.lanes import lane_name, path_of, subject_of, target_of, target_of_pool
from queueops.tenancy.secrets.credentials import Account, find_accounts
from queueops.tenancy.secrets.encryption import is_encrypted
from ratelimits.costs import OUTPUT_TOKENS, TOLD_OUTPUT
from ratelimits.limiter.estimates import Alike, learned_output, learned_unknown
from ratelimits.limits.catalogue import counted

from .prepare import PreparedJob

MAX_KEY_LENGTH = 400  # less than the column's 500 characters, because bisecting lengthens the key


class ChosenLane(NamedTuple):
    """
    Attributes:
        lane: Its name; None: the job has no limit, coalescing, turns of users or credential pool.
        target, path: See jobs/lanes.py.
        coalesce_key: The key of jobs that may leave in one call; None: the job leaves alone.
        units: The amounts by unit, as JSON text; None: the cost says all.
    """

    lane: str | None
    target: str
    path: int
    coalesce_key: str | None
    cost: int
    units: str | None = None


def choose_lanes(jobs: Sequence[PreparedJob], project_id: str) -> list[ChosenLane]:
    """Choose each job's lane and cost; one query for the limits, one for the credentials named."""
    hides = is_encrypted(project_id)
    limited = counted()
    accounts = find_accounts({job.details.credential for job in jobs if job.details.credential})
    lanes: dict[tuple[object, ...], str] = {}
    chosen = []
    for job in jobs:
        handler, details = job.handler, job.details
        lane = None
        alike = alike_of(job, project_id)
        user = str(job.spec.user_id or "")
        account = accounts.get(details.credential or "", Account())
        target, path = _target(job, account)
        kind = limited.kind_of(handler.kind)
        is_limited = limited.counts(job.service, project=project_id, kind=handler.kind)
        if is_limited or handler.coalesce or handler.user_turns or account.is_pool:
            made_of = (job.service, handler.call_type, details.model, user, details.credential, target, kind)
            lane = lanes.get(made_of)
            if lane is None:
                subject = subject_of(
                    service=job.service,
                    call_type=handler.call_type.value,
                    model=details.model,
                    project=project_id,
                    user=user,
                    principals=account.principals,
                    kind=kind,
                )
                lane = lanes[made_of] = lane_name(subject, project=project_id, user=user, target=target)
        chosen.append(
            ChosenLane(lane, target, path, _coalesce_key(job, lane, hides=hides), _cost(job, alike), _units(job, alike))
        )
    return chosen


def alike_of(job: PreparedJob, project_id: str) -> Alike:
    """Return the key under which the cost of calls like the job's is learned."""
    return Alike(project_id, job.service, job.handler.kind, job.details.model)


def _target(job: PreparedJob, account: Account) -> tuple[str, int]:
    details = job.details
    if details.url:
        return target_of(details.url), path_of(urlsplit(details.url).path)
    credential = details.credential or ""
    if account.is_pool:
        target = target_of_pool(credential)
    else:
        target = target_of(account.base_url, credential=credential) if account.base_url else ""
    return target, path_of(details.model) if details.model else 0


def _coalesce_key(job: PreparedJob, lane: str | None, *, hides: bool) -> str | None:
    if job.details.coalesce is None:
        return None
    key = f"{job.handler.kind}|{job.details.credential or ''}|{lane}|{job.details.coalesce}"
    if not hides and len(key) <= MAX_KEY_LENGTH and "#" not in key:
        return key
    return f"{job.handler.kind}|{hashlib.sha256(key.encode()).hexdigest()}"


def _cost(job: PreparedJob, alike: Alike) -> int:
    """Return the estimated cost. Its unknown part is learned from similar calls, up to the bound if there is one."""
    known = job.details.known_cost
    if known is None or job.cost <= known:
        return job.cost
    learned = learned_unknown(alike)
    if learned is None:
        return job.cost
    likely = known + round(learned)
    return min(job.cost, likely) if job.details.is_bound else likely


def _units(job: PreparedJob, alike: Alike) -> str | None:
    """Return the amounts by unit. The output is learned from similar calls, up to the bound if there is one."""
    units = job.details.units
    if not units:
        return None
    most = units.get(OUTPUT_TOKENS)
    learned = learned_output(alike) if most else None
    if most and learned is not None:
        likely = round(learned)
        units = {**units, OUTPUT_TOKENS: min(most, likely) if job.details.is_bound else likely}
        if (told := job.details.told_output) and told > units[OUTPUT_TOKENS]:
            units[TOLD_OUTPUT] = told  # for limits that count the most output that the call may produce
    return json.dumps(dict(units))
