"""A claimed job, as the claim returns it and as handlers and outcomes refer to it."""

from __future__ import annotations

from typing import NamedTuple
from uuid import UUID

from queueops.core.sealing import SealedAway, is_whole_sealed, keys_in, open_json
from ratelimits.limiter.estimates import Alike


class ClaimedJob(NamedTuple):
    """
    A claimed job, with all that its executor needs to carry it out and to prove that it owns the job.

    Attributes:
        payload, partial: JSON text; `partial` is the result so far of an earlier run, which returned Continue.
        window_used: Seconds since the first attempt, less the time waited for limits.
        tier_class: The class in which it was claimed, counted from the lowest tier.
        was: Its status before the claim.
        waited: Seconds since it became eligible to run.
        claimed_at: Seconds since 1970, by the database's clock.
        target, path: The address that its call goes to, see jobs/lanes.py.
        group: The job in whose call it leaves; None: its own call.
        priority: Its tier.
        ended_batch: If it is a batch's callback, how the batch ended, as JSON text; None: it is no callback.
        costs: Its estimated amounts by unit, as JSON text; None: `cost` is its only amount.
        holds: Whether it holds an estimate or a call in flight that its outcome must settle with the limits.
        bound: The most that its call can cost, in micro-units, if a budget holds that amount for it.
        fallback_step, fallback_reason: The number of the fallback that it uses (0: none), and why.
        sealed: Its row's payload is encrypted, so its result must be encrypted, too. If this process could not decrypt
            the payload, `payload` is still the encrypted token; see `hides`.
        send_by: When its call must have begun, by this process's monotonic clock; None: it leaves in another job's
            call, or no limit counts it by time.
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
        """The key under which costs of similar calls are learned."""
        return Alike(self.project, self.service, self.kind, self.model)

    @property
    def closed_by(self) -> str:
        """The encryption key that the payload needs and this process lacks; empty: the payload can be read."""
        return min(keys_in(self.payload), default="") if is_whole_sealed(self.payload) else ""

    @property
    def hides(self) -> bool:
        """
        Whether what is told of it must be encrypted. A job that this process could not read is told of in its own words
        alone, which it might not even be able to encrypt.
        """
        return self.sealed and not is_whole_sealed(self.payload)

    @property
    def holder(self) -> str:
        """The name under which this claim settles its holds."""
        return holder_of(self.id, self.token)


def opened(job: ClaimedJob) -> ClaimedJob:
    """Return a job with its payload decrypted, if it is encrypted and this process has the key."""
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
