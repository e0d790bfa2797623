"""Effects of a provider's refusals on the limits: their counters cool down, and their caps are learned."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from uuid import UUID

from django.db.models import Count

from jobs.classify import Failure
from jobs.models import Job, JobEvent
from jobs.services.finish.claimed import ClaimedJob
from jobs.services.finish.outcomes import COOLED_SECONDS, Failed, Outcome
from jobs.states import JobState
from queueops.core.clock import Now
from ratelimits.costs import read_amounts
from ratelimits.feedback import PushBack
from ratelimits.limiter.estimates import measured_ratio, with_cached
from ratelimits.tuning.feedback import Cooling, Refusal, push_backs

from .admit import REJECTED, subjects_of

MAX_ACCEPTED_COUNTED = 10_000  # calls accepted before a refusal; finding so many takes milliseconds
A_MINUTE = timedelta(minutes=1)

Call = tuple[UUID, int]


def cool_down(outcomes: Sequence[Outcome], *, actor: str) -> list[Outcome]:
    """
    Slow the counters of scopes that providers said were exceeded; jobs that left as one call count as one refusal.

    This uses a transaction of its own, before these outcomes are written: the flush locks other counters, and all locks
    must be taken in one order.

    Returns:
        The outcomes, in order. A refused job that no counter holds back waits by itself until the time that the
        provider stated. A job that can never fit fails with `limit_rejected`.
    """
    calls: dict[Call, Failed] = {}
    for one in outcomes:
        if isinstance(one, Failed) and one.failure.push_back is not None:
            calls.setdefault(_call(one), one)
    if not calls:
        return list(outcomes)
    subjects = subjects_of([one.job for one in calls.values()])
    jobs = {subject: one.job for subject, one in zip(subjects, calls.values(), strict=True)}
    ratios = {alike: measured_ratio(alike) for alike in {one.job.alike for one in calls.values()}}
    before = _times_refused([one.job.id for one in calls.values()])
    refusals = [
        Refusal(
            subject,
            one.failure.push_back or PushBack(),
            one.job.claimed_at,
            one.job.cost,
            known_cost=one.job.known_cost,
            amounts=with_cached(read_amounts(one.job.costs), one.job.alike),
            ratio=ratios[one.job.alike],
            times_before=before.get(one.job.id, 0),
            label=f"job {one.job.id}",
        )
        for subject, one in zip(subjects, calls.values(), strict=True)
    ]
    found = push_backs(refusals, actor=actor, accepted=lambda subject: _accepted(jobs[subject]))
    coolings = dict(zip(calls, found, strict=True))
    return [
        _waiting(one, coolings[_call(one)]) if isinstance(one, Failed) and one.failure.push_back is not None else one
        for one in outcomes
    ]


def _waiting(outcome: Failed, cooling: Cooling) -> Failed:
    if cooling.never:
        failure = Failure(REJECTED, "LimitRejected", cooling.never, "refused", details=dict(cooling.figures))
        return replace(outcome, failure=failure, cost=0)
    if not cooling.counters:  # cost 0 frees the call's tokens: providers do not count refused tokens
        return replace(outcome, wait_seconds=cooling.seconds, cost=0)
    return replace(outcome, wait_seconds=COOLED_SECONDS)


def _call(outcome: Failed) -> Call:
    """The key that all jobs of one call have in common."""
    return outcome.job.group or outcome.job.id, outcome.job.token


def _times_refused(job_ids: Sequence[UUID]) -> dict[UUID, int]:
    told = JobEvent.objects.filter(job_id__in=job_ids, to_status=JobState.RETRIED, data__http_status=429).order_by()
    return dict(told.values_list("job_id").annotate(times=Count("id")))


def _accepted(job: ClaimedJob) -> int:
    """Count this project's and user's calls of the same service, type and model that ended well in the last minute."""
    ended = Job.objects.filter(finished_at__gt=Now() - A_MINUTE, status=JobState.COMPLETED, service=job.service)
    alike = ended.filter(project_id=job.project, user_id=job.user_id, call_type=job.call_type, model=job.model)
    return alike.order_by().values("pk")[:MAX_ACCEPTED_COUNTED].count()
