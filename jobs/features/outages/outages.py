"""Outages as people see and steer them: which jobs wait, closing a breaker, and sending a probe at once."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from uuid import UUID

from django.db import transaction
from django.db.models import Sum

from jobs.features.outages.breaker import MAX_HELD_COUNTED
from jobs.models import Batch, Job, ServiceBreaker
from jobs.services.operate.job_filter import held_by_outage
from jobs.services.operate.scheduled_jobs import is_scheduled
from jobs.states import OUTAGE, SCHEDULED, JobState
from queueops.audit import trail
from queueops.core.clock import TransactionNow as Now
from queueops.tenancy.moves import projects_away

Key = tuple[str, str, str]


def open_breakers(most: int) -> list[ServiceBreaker]:
    """Return the open breakers of projects that live in this installation, the oldest first."""
    here = ServiceBreaker.objects.exclude(opened_at=None).exclude(project_id__in=projects_away())
    return list(here.order_by("opened_at", "pk")[:most])


def grouped(breakers: Iterable[ServiceBreaker]) -> dict[str, list[ServiceBreaker]]:
    """Group breakers, which each project has for itself, by their target's name for people."""
    by_name: dict[str, list[ServiceBreaker]] = {}
    for one in breakers:
        by_name.setdefault(one.name, []).append(one)
    return by_name


def count_held(project_id: str | None = None) -> int:
    """Sum up the breakers' counts of waiting jobs, which are noted each second and are MAX_HELD_COUNTED at most."""
    out = ServiceBreaker.objects.exclude(opened_at=None)
    held: int = (out.filter(project_id=project_id) if project_id else out).aggregate(held=Sum("holds", default=0))[
        "held"
    ]
    return held


def count_held_by_project() -> dict[str, int]:
    """`count_held` for each project; projects without any are left out."""
    holding = ServiceBreaker.objects.exclude(opened_at=None).filter(holds__gt=0).order_by()
    return dict(holding.values_list("project_id").annotate(held=Sum("holds")))


def count_held_of(batches: Iterable[Batch]) -> dict[UUID, int]:
    """How many jobs of each batch wait for an outage, at most MAX_HELD_COUNTED; batches without any are left out."""
    out = ServiceBreaker.objects.exclude(opened_at=None)
    projects = set(out.values_list("project_id", flat=True))
    waiting = Job.objects.filter(held_by_outage()).order_by().values("pk")
    return {
        batch.pk: waiting.filter(batch_id=batch.pk)[:MAX_HELD_COUNTED].count()
        for batch in batches
        if batch.project_id in projects
    }


def out_keys() -> set[Key]:
    """Service, target and project of every open breaker."""
    return set(ServiceBreaker.objects.exclude(opened_at=None).values_list("service", "target", "project_id"))


def is_held(job: Job, out: set[Key]) -> bool:
    """
    Whether a job waits for an outage to end, and not for quota.

    Args:
        out: See `out_keys`.
    """
    return job.status == JobState.RATE_LIMITED and (job.service, job.target, job.project_id) in out


def shown_state(job: Job, out: set[Key]) -> str:
    """
    The state of a job as people are told it: one of `states.SHOWN`.

    Args:
        out: See `out_keys`.
    """
    if is_held(job, out):
        return OUTAGE
    return SCHEDULED if is_scheduled(job) else job.status


@transaction.atomic
def close_breakers(breaker_ids: Sequence[int], *, actor: str, reason: str = "") -> int:
    """
    Close breakers because a person says so, and forget their counted failures; their jobs go on within seconds.

    If the target still does not answer, the breaker opens again after as many failures as the first time.

    Returns:
        How many were open.
    """
    breakers = _lock_open(breaker_ids)
    ServiceBreaker.objects.filter(pk__in=[one.pk for one in breakers]).delete()
    _record("close_breaker", breakers, actor=actor, reason=reason)
    return len(breakers)


@transaction.atomic
def probe_now(breaker_ids: Sequence[int], *, actor: str, reason: str = "") -> int:
    """Send the next probe of open breakers at once, unless one is under way. Returns how many were open."""
    breakers = _lock_open(breaker_ids)
    ServiceBreaker.objects.filter(pk__in=[one.pk for one in breakers]).update(
        next_probe_at=Now(), probed_at=None, updated_at=Now()
    )
    _record("probe_breaker", breakers, actor=actor, reason=reason)
    return len(breakers)


def _lock_open(breaker_ids: Sequence[int]) -> list[ServiceBreaker]:
    rows = ServiceBreaker.objects.filter(pk__in=breaker_ids, opened_at__isnull=False)
    return list(rows.order_by("service", "target", "project_id").select_for_update())


def _record(action: str, breakers: Sequence[ServiceBreaker], *, actor: str, reason: str) -> None:
    for one in breakers:
        trail.record(
            actor=actor,
            action=action,
            target=f"breaker {one}",
            before={"opened_at": one.opened_at, "failures": one.failures, "probes": one.probes},
            reason=reason,
            project_id=one.project_id,
        )
