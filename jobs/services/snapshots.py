"""What producers and screens are told of a job, a batch or a project."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from uuid import UUID

from django.db.models import Sum
from django.utils import timezone

from jobs.aging import Rule, effective_priority
from jobs.models import WHOLE_PROJECT, AgingRule, Batch, Job, JobCount, JobEvent, PauseSwitch, ServiceBreaker
from jobs.states import RUNNING, TERMINAL, JobState, Priority

Counts = dict[str, int]

NO_JOBS: Counts = {state.value: 0 for state in JobState}
SUMS = [Sum(state.value) for state in JobState]


@dataclass(frozen=True, slots=True)
class JobSnapshot:
    """
    Attributes:
        effective_priority: None once the job runs or has ended.
        waiting_for: Why it does not run now, in words; None when nothing holds it.
        recheck_after_seconds: When asking again is worth while; None when it has ended.
        last_event: type, message and time of the newest event.
        cursor: The newest event's id.
    """

    job: Job
    effective_priority: int | None
    waiting_for: str | None
    recheck_after_seconds: float | None
    last_event: JobEvent | None

    @property
    def eta(self) -> datetime | None:
        """When a running job should end, if it goes on as it has; None without progress."""
        job = self.job
        if job.status != JobState.IN_PROGRESS or not job.progress or job.started_at is None:
            return None
        return job.started_at + (job.updated_at - job.started_at) * (100 / job.progress)

    @property
    def cursor(self) -> int:
        return self.last_event.id if self.last_event else 0


@dataclass(frozen=True, slots=True)
class BatchSnapshot:
    """
    Attributes:
        counts: Items by state; a requeued item counts once, as its latest job.
        progress: Percent of the items that have ended; 100 of none, as where every job was a duplicate.
        eta: None while the rate is unknown, when nothing moves, and once the batch has ended.
    """

    batch: Batch
    counts: Counts
    finished: int
    progress: float
    eta: datetime | None
    recheck_after_seconds: float | None


def job_snapshot(job: Job) -> JobSnapshot:
    last_event = JobEvent.objects.filter(job_id=job.pk).order_by("-id").first()
    status = JobState(job.status)
    if status in TERMINAL:
        return JobSnapshot(job, None, None, None, last_event)
    if status in RUNNING:
        return JobSnapshot(job, None, None, 1.0, last_event)
    now = timezone.now()
    reason, seconds = _waiting(job, now)
    return JobSnapshot(job, effective_priority_of(job, now=now), reason, seconds, last_event)


def batch_snapshot(batch: Batch, counts: Counts | None = None) -> BatchSnapshot:
    """Args: counts: From `batch_counts`, where a caller shows many batches."""
    counts = counts or batch_counts([batch.pk])[batch.pk]
    finished = sum(counts[state] for state in TERMINAL)
    everything = sum(counts.values())
    eta = None
    if batch.rate_per_second and not batch.paused and batch.finished_at is None:
        eta = timezone.now() + timedelta(seconds=(everything - finished) / batch.rate_per_second)
    return BatchSnapshot(
        batch=batch,
        counts=counts,
        finished=finished,
        progress=round(100 * finished / everything, 1) if everything else 100.0,
        eta=eta,
        recheck_after_seconds=None if finished == everything else _bounded_wait(eta),
    )


def batch_counts(batch_ids: Iterable[UUID]) -> dict[UUID, Counts]:
    """Items by state of each batch, from the counters the transitions keep."""
    wanted = list(batch_ids)
    rows = JobCount.objects.filter(batch_id__in=wanted).values_list("batch_id").annotate(*SUMS)
    found = {batch_id: _counts(sums) for batch_id, *sums in rows}
    return {batch_id: found.get(batch_id, dict(NO_JOBS)) for batch_id in wanted}


def project_counts(project_id: str) -> Counts:
    """Jobs by state of a whole project; those deleted by retention stay counted."""
    rows = JobCount.objects.filter(project_id=project_id, batch_id=WHOLE_PROJECT)
    sums = rows.aggregate(**{state: Sum(state, default=0) for state in NO_JOBS})
    return {state: sums[state] for state in NO_JOBS}


def effective_priority_of(job: Job, *, now: datetime) -> int:
    """The score by which the job is claimed, by the same rules as the claim itself."""
    age = max(0.0, (now - job.eligible_since).total_seconds())
    return effective_priority(Priority(job.priority), age, aging_rules())


def aging_rules() -> dict[Priority, Rule]:
    return {
        Priority(row.tier): Rule(
            base=row.base,
            cap=row.cap,
            first_after=row.first_after_seconds,
            first_score=row.first_score,
            step=row.step_seconds,
            promote_after=row.promote_after_seconds,
            promote_to=Priority(row.promote_to) if row.promote_to else None,
        )
        for row in AgingRule.objects.all()
    }


def _counts(sums: Sequence[int]) -> Counts:
    return dict(zip(NO_JOBS, sums, strict=True))


def _waiting(job: Job, now: datetime) -> tuple[str | None, float]:
    for switch in PauseSwitch.objects.all():
        covered = {
            PauseSwitch.Scope.GLOBAL: "",
            PauseSwitch.Scope.PROJECT: job.project_id,
            PauseSwitch.Scope.SERVICE: job.service,
            PauseSwitch.Scope.KIND: job.kind,
            PauseSwitch.Scope.BATCH: str(job.batch_id),
        }[PauseSwitch.Scope(switch.scope)]
        if switch.key == covered:
            why = f": {switch.reason}" if switch.reason else ""
            return f"{switch} is paused{why}", 30.0
    breaker = ServiceBreaker.objects.filter(service=job.service, opened_at__isnull=False).first()
    if breaker is not None:
        return f"{job.service} does not answer: {breaker.last_error}", _bounded_wait(breaker.next_probe_at)
    if job.held:
        return "it is held", 30.0
    if job.scheduled_at is not None:
        reasons = {
            JobState.QUEUED: "it is scheduled for later",
            JobState.RATE_LIMITED: "a limit has no room",
            JobState.RETRIED: f"it is tried again after: {job.last_error_message or job.last_error_code or 'a stop'}",
        }
        return reasons[JobState(job.status)], _bounded_wait(job.scheduled_at)
    return "other jobs go first", 1.0


def _bounded_wait(until: datetime | None) -> float:
    """Seconds to wait before asking again: at least one, at most five minutes."""
    if until is None:
        return 5.0
    return min(300.0, max(1.0, (until - timezone.now()).total_seconds()))
