"""
The outage breaker: a service that does not answer is asked by one probe at a time, and its work waits unharmed.

Closed: failures are counted. Open, from THRESHOLD consecutive connect errors or 5xx answers on: its ready jobs are
parked (rate_limited without a time), failures spend no attempts, and one parked job at a time is let through as a
probe. The first success closes it, and the parked jobs are released.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from uuid import UUID

from django.db import connection, transaction
from django.db.models import Q
from django.db.models.functions import Now

from jobs.models import Job, PauseSwitch, ServiceBreaker
from jobs.querysets import JobQuerySet
from jobs.states import RUNNING, JobState
from jobs.transitions import Move, move_jobs
from queueops.core.notify import Channel, notify
from queueops.core.sql import run_sql

THRESHOLD = 10
AT_ONCE = 2000  # jobs parked or released in one statement
FIRST_PROBE_SECONDS = 2.0
LONGEST_PROBE_SECONDS = 60.0
LAST_DOUBLING = 5  # 2 s doubled five times is past the longest; an outage of days would overflow


def record_answers(succeeded: Collection[str], failed: Mapping[str, tuple[int, str]]) -> set[str]:
    """
    Count what services answered, in the caller's transaction.

    Args:
        succeeded: Services that answered properly.
        failed: By service: how many calls failed by its fault, and the last error.

    Returns:
        The services of `failed` whose breaker is open now.
    """
    if succeeded:
        run_sql("jobs", "close_breakers", {"services": sorted(succeeded)})
    is_open = set()
    for service in sorted(failed.keys() - set(succeeded)):
        count, error = failed[service]
        parameters = {
            "service": service,
            "count": count,
            "error": error,
            "threshold": THRESHOLD,
            "first_probe": FIRST_PROBE_SECONDS,
        }
        if run_sql("jobs", "count_outages", parameters)[0][0]:
            is_open.add(service)
    return is_open


def tend_breakers() -> None:
    """Park the ready jobs of silent services, send due probes, release what waits for services that work again."""
    for breaker in ServiceBreaker.objects.all():
        if breaker.opened_at is not None:
            _park(breaker.service)
            _probe(breaker.service)
        elif breaker.failures == 0 and not _release(breaker.service):
            ServiceBreaker.objects.filter(service=breaker.service, failures=0, opened_at=None).delete()


def _park(service: str) -> None:
    moved = AT_ONCE
    while moved == AT_ONCE:
        with transaction.atomic():
            ids = _ready_jobs(service)
            moved = len(move_jobs("park", [Move(job_id) for job_id in ids], message=f"{service} does not answer"))


def _ready_jobs(service: str) -> list[UUID]:
    ready = Job.objects.filter(service=service, status=JobState.QUEUED, scheduled_at=None, held=False)
    is_probe = ServiceBreaker.objects.filter(service=service, probe_job_id__isnull=False).values("probe_job_id")
    return ready.exclude(pk__in=is_probe).select_for_update(skip_locked=True)[:AT_ONCE].ids()


@transaction.atomic()
def _probe(service: str) -> None:
    """Let one parked job through, if it is time; the longer the outage, the rarer."""
    breaker = (
        ServiceBreaker.objects.select_for_update(skip_locked=True)
        .filter(service=service, opened_at__isnull=False, next_probe_at__lte=Now())
        .first()
    )
    if breaker is None or Job.objects.filter(pk__in=[breaker.probe_job_id], status__in=RUNNING).exists():
        return  # a service that takes longer to fail than the pause lasts would get a second probe beside the first
    # Work that is paused would never be claimed, and the service never asked.
    pauses = PauseSwitch.objects.filter(scope=PauseSwitch.Scope.PROJECT).values("key")
    parked = _probe_candidates(service).exclude(project_id__in=pauses)[:1].ids()
    if not parked:
        return
    pause = min(LONGEST_PROBE_SECONDS, FIRST_PROBE_SECONDS * 2 ** min(breaker.probes, LAST_DOUBLING))
    with connection.cursor() as cursor:
        cursor.execute(
            "UPDATE jobs_servicebreaker SET probe_job_id = %s, probes = probes + 1,"
            " next_probe_at = now() + %s * interval '1 second' WHERE service = %s",
            [parked[0], pause, service],
        )
    move_jobs("release", [Move(parked[0])], message="sent as a probe")
    notify(Channel.READY)


@transaction.atomic()
def _release(service: str) -> int:
    ids = _parked_jobs(service)[:AT_ONCE].ids()
    moved = move_jobs("release", [Move(job_id) for job_id in ids], message=f"{service} answers again")
    if moved:
        notify(Channel.READY)
    return len(moved)


def _probe_candidates(service: str) -> JobQuerySet:
    """Also those parked for a limit, oldest first: the oldest is at the head of its lane, where claims look."""
    waiting = Job.objects.filter(service=service, status=JobState.RATE_LIMITED, held=False)
    in_turn = waiting.filter(Q(scheduled_at=None) | Q(lane__isnull=False))
    return in_turn.order_by("eligible_since", "id").select_for_update(skip_locked=True)


def _parked_jobs(service: str) -> JobQuerySet:
    parked = Job.objects.filter(service=service, status=JobState.RATE_LIMITED, scheduled_at=None, held=False)
    return parked.order_by("eligible_since", "id").select_for_update(skip_locked=True)
