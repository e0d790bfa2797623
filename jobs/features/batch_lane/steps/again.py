"""Decides where a job goes if its line of a provider's batch came to nothing by no fault of the job."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from http import HTTPStatus
from uuid import UUID

from django.conf import settings
from django.db.models import Count

from jobs.classify import is_outage, is_retryable
from jobs.features.fallback.fallback import ways_on
from jobs.features.fallback.ways import NAMED
from jobs.models import BatchPace, Job, ProviderBatch, ProviderBatchLine, Way
from jobs.services.finish.outcomes import Failed, GivenBack
from queueops.core.clock import database_now

# The provider may leave this many lines of a job undone for free. The next such line costs an attempt, so that the job
# ends some day.
MAX_FREE_LINES = 3


def seconds_to_next(batch: ProviderBatch, job_ids: Collection[UUID]) -> dict[UUID, float]:
    """The seconds each job waits: until it must go live, if its deadline leaves time for another batch; otherwise 0."""
    now, margin = database_now(), settings.QUEUEOPS.batch_margin_seconds
    pace = BatchPace.objects.filter(pk=batch.service).values_list("p95_seconds", flat=True).first()
    needed = pace or settings.QUEUEOPS.batch_window_seconds
    deadlines = dict(Job.objects.filter(pk__in=job_ids).values_list("pk", "complete_by"))
    # The batch has only the deadline of its most urgent job: use it for a job that has no row any more.
    left = {job: (deadlines.get(job) or batch.complete_by).timestamp() - now - margin for job in job_ids}
    return {job: seconds if seconds > needed else 0.0 for job, seconds in left.items()}


def went_unanswered(job_ids: Collection[UUID]) -> frozenset[UUID]:
    """Return the jobs that had a line without an answer before: they already had a second try by batch."""
    before = ProviderBatchLine.objects.filter(job_id__in=job_ids, state=ProviderBatchLine.State.UNANSWERED)
    return frozenset(before.values_list("job_id", flat=True))


def went_round(job_ids: Collection[UUID]) -> frozenset[UUID]:
    """Return the jobs that had MAX_FREE_LINES lines in batches that the provider ended by itself before their turn."""
    by_itself = [ProviderBatch.State.EXPIRED, ProviderBatch.State.CANCELLED, ProviderBatch.State.FAILED]
    ended = ProviderBatch.objects.filter(state__in=by_itself, cancel_reason="", found_no_room=False)
    before = ProviderBatchLine.objects.filter(
        job_id__in=job_ids, state=ProviderBatchLine.State.HANDED_BACK, provider_batch__in=ended
    )
    times = before.values_list("job_id").annotate(Count("pk"))
    return frozenset(job for job, count in times if count >= MAX_FREE_LINES)


def not_carried_out(batch: ProviderBatch, failed: Sequence[Failed]) -> Mapping[UUID, GivenBack]:
    """
    Return, by job, new outcomes for failed lines whose jobs go again without an attempt: the provider was out or busy.

    Such a line is not billed. The result lacks jobs that go on by a fallback, must not be repeated, or have already had
    MAX_FREE_LINES such lines.
    """
    found = {o.job.id: o for o in failed if _is_providers_fault(o)}
    ways = ways_on([(o.job, o.failure, o.repeatable) for o in found.values() if NAMED in o.job.payload])
    found = {job: outcome for job, outcome in found.items() if job not in ways}
    if not found:
        return {}
    before = ProviderBatchLine.objects.filter(job_id__in=found, state=ProviderBatchLine.State.UNAVAILABLE)
    times = dict(before.values_list("job_id").annotate(Count("pk")))
    free = {job: outcome for job, outcome in found.items() if times.get(job, 0) < MAX_FREE_LINES}
    waits = seconds_to_next(batch, free)
    return {
        job: GivenBack(
            o.job,
            f"{o.failure.message.rstrip('.')}: it goes {'by the next batch' if waits[job] else 'live'}, "
            "and no attempt is spent",
            cost=0,
            wait_seconds=waits[job],
            via=Way.BATCH.value,
        )
        for job, o in free.items()
    }


def _is_providers_fault(outcome: Failed) -> bool:
    failure = outcome.failure
    is_busy = failure.status == HTTPStatus.TOO_MANY_REQUESTS
    return (is_busy or is_outage(failure)) and is_retryable(failure, repeatable=outcome.repeatable)
