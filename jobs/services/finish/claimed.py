"""A claimed job, as it goes from the claim through its handler to its outcome."""

from __future__ import annotations

from typing import NamedTuple
from uuid import UUID

from queueops.core.sealing import SealedAway, is_whole_sealed, keys_in, open_json
from ratelimits.services.limiter.estimates import Alike


class ClaimedJob(NamedTuple):
    """
    A claimed job, with all that its executor needs to carry it out and to prove that it owns it.

    Attributes:
        payload, partial: JSON text; `partial` is what an earlier run left with Continue.
        window_used: Seconds since the first attempt, less the time waited for limits.
        tier_class: The class it was claimed in, counted from the lowest tier.
        was: Its status before the claim.
        waited: Seconds since it became eligible to run.
        claimed_at: Seconds since 1970, by the database's clock.
        target, path: Where its call goes, see jobs/lanes.py.
        group: The job with which it leaves as one call; None: its own.
        priority: Its tier.
        ended_batch: Of a batch's callback: how the batch ended, as JSON text; None: it is no callback.
        costs: Its estimated amounts by unit, as JSON text; None: its cost says all.
        holds: Whether it holds an estimate or a place in flight that its end settles.
        bound: The most that it can cost, in micro-units, where a budget holds that for it.
        fallback_step, fallback_reason: The other way of its payload that it goes, and why.
        sealed: Its row's payload is encrypted, so its result must be, too. A payload that could not be opened here is
            still a token.
        send_by: When its call must have begun, by this process's monotonic clock; None: it leaves in another's call, or
            no limit counts it by time.
    """

    id: UUID
    token: int
    project: str
    user_id: UUID | None
    batch_id: UUID | None
    kind: str
    payload: str
    effect_key: str
    retry_policy: str | None
    retry_count: int
    crash_count: int
    window_used: float
    weight: float
    tier_class: int
    service: str
    call_type: str
    model: str | None
    credential: str | None
    cost: int
    known_cost: int | None
    lane: str | None
    coalesce_key: str | None
    partial: str | None
    was: str
    waited: float
    claimed_at: float
    target: str = ""
    path: int = 0
    priority: str = ""
    fallback_step: int = 0
    fallback_reason: str = ""
    ended_batch: str | None = None
    costs: str | None = None
    group: UUID | None = None
    holds: bool = False
    bound: int | None = None
    send_by: float | None = None
    sealed: bool = False

    @property
    def alike(self) -> Alike:
        """The key under which the cost of calls like its own is learned."""
        return Alike(self.project, self.service, self.kind, self.model)

    @property
    def closed_by(self) -> str:
        """The key that its payload needs and this process does not have; empty: it can be read."""
        return min(keys_in(self.payload), default="") if is_whole_sealed(self.payload) else ""

    @property
    def holder(self) -> str:
        """The name under which this claim settles its holds."""
        return holder_of(self.id, self.token)


def opened(job: ClaimedJob) -> ClaimedJob:
    """Return a job with its payload opened, where it is encrypted and this process has the key."""
    if not is_whole_sealed(job.payload):
        return job
    try:
        partial = job.partial and open_json(job.partial)
        return job._replace(payload=open_json(job.payload), partial=partial, sealed=True)
    except SealedAway:
        return job._replace(sealed=True)


def holder_of(job_id: UUID, token: int) -> str:
    """The name under which a claim of a job settles its holds."""
    return f"job:{job_id}:{token}"
