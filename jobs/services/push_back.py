"""What a provider's refusals mean for the limits: their counters cool down, and their caps are learned."""

from __future__ import annotations

from collections.abc import Sequence

from jobs.lanes import read_lane
from ratelimits.services.feedback import Refusal, push_backs

from .finish import Failed, Outcome, cools_down


def cool_down(outcomes: Sequence[Outcome], *, actor: str) -> None:
    """
    Slow the scopes that providers said were exceeded; jobs that left as one call are one refusal.

    In a transaction of its own: the flush has locked other counters, and all locks are taken in one order.
    """
    refusals = {
        (job.group, job.token): Refusal(
            read_lane(job.lane).subject, outcome.failure.push_back, job.claimed_at, job.cost
        )
        for outcome in outcomes
        if isinstance(outcome, Failed)
        and outcome.failure.push_back is not None
        and (job := outcome.job).lane is not None
        and cools_down(job, outcome.failure.push_back)
    }
    if refusals:
        push_backs(list(refusals.values()), actor=actor)
