"""Whether a project has work of some sort, in reads that are bounded however long its queue is."""

from __future__ import annotations

from django.db import connection, transaction

from jobs.features.served_kinds.served_kinds import UNSERVED
from jobs.features.served_kinds.unserved import waiting_for
from jobs.handlers.registry import served_names
from jobs.models import Job, PauseSwitch, RefusedCalls
from jobs.states import WAITING, CallType, JobState

from .retention import BY_INDEX

MAX_OF_A_PROJECT = 1_000

Scope = PauseSwitch.Scope


def calls_service(project_id: str, service: str) -> bool:
    """
    Whether waiting jobs of the project call the service.

    Held, scheduled and retried jobs count only if they are among the newest MAX_OF_A_PROJECT jobs of the project.
    """
    # The queries of ready and parked jobs repeat the conditions of jobs_job_lane_idx and jobs_job_parked_idx: no other
    # index finds a project's jobs by service.
    alike = Job.objects.filter(project_id=project_id, service=service, call_type__in=CallType.values, held=False)
    ready = alike.filter(status=JobState.QUEUED, scheduled_at=None)
    parked = alike.filter(status=JobState.RATE_LIMITED)
    newest = Job.objects.filter(project_id=project_id).order_by("-id")[:MAX_OF_A_PROJECT]
    others = Job.objects.filter(pk__in=newest.values("pk"), service=service, status__in=WAITING)
    return any(rows.order_by().exists() for rows in (ready, parked, others))


def is_held_by(switch: PauseSwitch, project_id: str) -> bool:
    """Whether the switch holds jobs of the project. For a kind whose payloads do not fit, only some jobs are read."""
    if switch.scope == Scope.GLOBAL:
        return True
    held = Job.objects.filter(project_id=project_id, held=True, status__in=WAITING).order_by()
    match switch.scope:
        case Scope.SERVICE:
            # Name every kind, because the index has the kind before the service.
            return held.filter(kind__in=sorted(served_names()), service=switch.key).exists()
        case Scope.KIND:
            return held.filter(kind=switch.key).exists()
        case Scope.REFUSED:
            return RefusedCalls.objects.filter(name=switch.key, project_id=project_id).exists()
        case scope if scope in UNSERVED:
            of_kind = held.filter(kind=switch.key).values_list("pk", flat=True)[:MAX_OF_A_PROJECT]
            with transaction.atomic(), connection.cursor() as cursor:
                cursor.execute(BY_INDEX)  # otherwise, PostgreSQL 15 would read the whole table for these few jobs
                return Job.objects.filter(waiting_for(switch), pk__in=list(of_kind)).order_by().exists()
    return False
