"""The state of a job, a batch or a project, as producers and screens see it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from uuid import UUID

from django.db.models import Sum
from django.utils import timezone

from jobs.features.outages.outages import count_held_of
from jobs.models import WHOLE_PROJECT, Batch, Job, JobCount, JobEvent
from jobs.models.job import IN_SEVERAL_CALLS
from jobs.services.operate.scheduled_jobs import NOTHING_SCHEDULED, Scheduled, scheduled_of_batches
from jobs.states import TERMINAL, UNFINISHED, BatchVerdict, JobState, told_apart
from ratelimits.costs import CALLS

from .position import effective_priority_of
from .verdicts import ToldVerdict, verdicts_of
from .waiting import Waiting, explain_waiting

Counts = dict[str, int]

NO_JOBS: Counts = {state.value: 0 for state in JobState}
SUMS = [Sum(state.value) for state in JobState]
RECHECK_RUNNING_SECONDS = 1.0
MAX_WAIT_SECONDS = 60  # the longest wait for an end; proxies give up a request after about as long
FORECAST_HOLDS = timedelta(minutes=5)  # an older forecast was not renewed: no executor lives


@dataclass(frozen=True, slots=True)
class JobSnapshot:
    """
    Attributes:
        effective_priority: None once the job runs or has ended.
        waiting: Why it does not run now; None once it runs or has ended.
        recheck_after_seconds: When asking again is worth while; None when it has ended.
        last_event: The newest event; None: the log has none any more.
    """

    job: Job
    effective_priority: int | None
    waiting: Waiting | None
    recheck_after_seconds: float | None
    last_event: JobEvent | None

    @property
    def waiting_for(self) -> str | None:
        """Why it does not run now, in words; None when nothing holds it."""
        return self.waiting.text if self.waiting else None

    @property
    def eta(self) -> datetime | None:
        """When a job that has begun should end, at the pace of its progress so far; None without progress."""
        job = self.job
        takes_several = CALLS in (job.costs or {})
        began = job.first_attempt_at if takes_several else job.started_at
        is_under_way = job.status == JobState.IN_PROGRESS or (takes_several and job.status in UNFINISHED)
        if began is None or not job.progress or not is_under_way:
            return None
        return began + (job.updated_at - began) * (100 / job.progress)


@dataclass(frozen=True, slots=True)
class BatchSnapshot:
    """
    Attributes:
        verdict: Its state in one word. `held_by`: what stops it, in words, if its verdict is `held`.
        counts: Items by state; a requeued item counts once, as its latest job.
        held_by_outage: How many of the rate_limited items wait for an outage to end, not for quota.
        scheduled: The queued items that wait for their time, not for their turn.
        progress: Percent of the items that have ended. A begun item that takes several calls counts by the part of
            its calls that it has made. 100 if there are no items, such as when every job was a duplicate.
        eta: When it should end, as stored some seconds ago. None: it has ended, it is held, an outage holds a part of
            it, nothing moves or nothing is known.
        eta_earliest: The earliest end, if that is much sooner than `eta`; None: it is not much sooner.
    """

    batch: Batch
    verdict: BatchVerdict
    held_by: str | None
    counts: Counts
    held_by_outage: int
    scheduled: Scheduled
    finished: int
    progress: float
    eta: datetime | None
    eta_earliest: datetime | None
    recheck_after_seconds: float | None

    @property
    def apart(self) -> Counts:
        """Items by state. Items held by an outage, and scheduled items, are counted apart, as screens show them."""
        return told_apart(self.counts, held_by_outage=self.held_by_outage, scheduled=self.scheduled.jobs)


def job_snapshot(job: Job) -> JobSnapshot:
    last_event = JobEvent.objects.filter(job_id=job.pk).order_by("-id").first()
    status = JobState(job.status)
    if status in TERMINAL:
        return JobSnapshot(job, None, None, None, last_event)
    waiting = explain_waiting(job)
    if waiting is None:
        return JobSnapshot(job, None, None, RECHECK_RUNNING_SECONDS, last_event)
    score = effective_priority_of(job, now=timezone.now())
    return JobSnapshot(job, score, waiting, waiting.recheck_after_seconds, last_event)


def batch_snapshots(batches: Iterable[Batch]) -> dict[UUID, BatchSnapshot]:
    """Take a snapshot of each batch, with a few reads for all."""
    rows = list(batches)
    ids = [batch.pk for batch in rows]
    counts, begun, held = batch_counts(ids), calls_made(ids), count_held_of(rows)
    later = scheduled_of_batches([pk for pk, found in counts.items() if found[JobState.QUEUED]])
    # Read the verdicts after the counts: a batch that has ended by its counts has then ended by its verdict, too.
    verdicts = verdicts_of(rows)
    return {
        batch.pk: _snapshot(
            verdicts[batch.pk],
            batch,
            counts=counts[batch.pk],
            held_by_outage=held.get(batch.pk, 0),
            scheduled=later.get(batch.pk, NOTHING_SCHEDULED),
            begun=begun.get(batch.pk, 0.0),
        )
        for batch in rows
    }


def batch_snapshot(batch: Batch) -> BatchSnapshot:
    return batch_snapshots([batch])[batch.pk]


def _snapshot(
    told: ToldVerdict, batch: Batch, *, counts: Counts, held_by_outage: int, scheduled: Scheduled, begun: float
) -> BatchSnapshot:
    finished = sum(counts[state] for state in TERMINAL)
    everything = sum(counts.values())
    now = timezone.now()
    is_held = held_by_outage or batch.paused or told.verdict is BatchVerdict.HELD
    moves = not is_held and batch.finished_at is None and finished < everything
    is_news = batch.foreseen_at is not None and now - batch.foreseen_at < FORECAST_HOLDS
    eta = max(now, batch.ends_at) if moves and is_news and batch.ends_at else None
    earliest = max(now, batch.ends_earliest) if eta and batch.ends_earliest else None
    return BatchSnapshot(
        batch=batch,
        verdict=told.verdict,
        held_by=told.held_by,
        counts=counts,
        held_by_outage=held_by_outage,
        scheduled=scheduled,
        finished=finished,
        progress=round(100 * (finished + begun) / everything, 1) if everything else 100.0,
        eta=eta,
        eta_earliest=earliest,
        recheck_after_seconds=None if finished == everything else _bounded_wait(eta),
    )


def batch_counts(batch_ids: Iterable[UUID]) -> dict[UUID, Counts]:
    """Return the items by state of each batch, from the counters that the transitions keep."""
    wanted = list(batch_ids)
    rows = JobCount.objects.filter(batch_id__in=wanted).values_list("batch_id").annotate(*SUMS)
    found = {batch_id: _counts(sums) for batch_id, *sums in rows}
    return {batch_id: found.get(batch_id, dict(NO_JOBS)) for batch_id in wanted}


def calls_made(batch_ids: Iterable[UUID]) -> dict[UUID, float]:
    """Return, by batch, the done parts of its begun jobs with several calls, added up as a number of jobs."""
    rows = Job.objects.filter(IN_SEVERAL_CALLS, batch_id__in=list(batch_ids)).order_by().values_list("batch_id")
    return {batch_id: percent / 100 for batch_id, percent in rows.annotate(Sum("progress"))}


def project_counts(project_id: str) -> Counts:
    """Jobs by state of a whole project; those deleted by retention stay counted."""
    rows = JobCount.objects.filter(project_id=project_id, batch_id=WHOLE_PROJECT)
    sums = rows.aggregate(**{state: Sum(state, default=0) for state in NO_JOBS})
    return {state: sums[state] for state in NO_JOBS}


def counts_by_project() -> dict[str, Counts]:
    """`project_counts` of each project, the project with the most unfinished jobs first."""
    rows = JobCount.objects.filter(batch_id=WHOLE_PROJECT).values_list("project_id").annotate(*SUMS).order_by()
    found = {project_id: _counts(sums) for project_id, *sums in rows}
    return dict(sorted(found.items(), key=lambda one: (-sum(one[1][state] for state in UNFINISHED), one[0])))


def _counts(sums: Sequence[int]) -> Counts:
    return dict(zip(NO_JOBS, sums, strict=True))


def _bounded_wait(until: datetime | None) -> float:
    """Seconds to wait before asking again: at least one, at most five minutes."""
    if until is None:
        return 5.0
    return min(300.0, max(1.0, (until - timezone.now()).total_seconds()))
