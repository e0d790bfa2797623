"""
Makes dead letters of jobs whose kind or payload no worker took for QUEUEOPS_UNSERVED_HOURS.

Jobs that wait for a payload key are left alone. The hours of a job begin once it could run: after its time, its
dependencies, and whatever else keeps it.
"""

from __future__ import annotations

from datetime import timedelta

from django.conf import settings
from django.db import transaction
from django.db.models import Exists, OuterRef, Q

from jobs.classify import Failure
from jobs.features.served_kinds.served_kinds import INVALID_PAYLOAD, UNSERVED, closed_by, held_as_unknown, misfits_of
from jobs.models import Dependency, Job, PauseSwitch
from jobs.services.finish.finish import bury
from queueops.core.clock import Now
from queueops.core.processes.isolate_failures import one_by_one
from queueops.core.sealing import is_sealed, left_sealed
from queueops.core.sql import run_sql

AT_ONCE = 500
PUT_OFF_SHARE = 0.1  # of the hours: how often jobs that something else keeps are written


def tend_unserved() -> int:
    """
    Bury jobs that have been held for QUEUEOPS_UNSERVED_HOURS because no worker knows their kind or takes their payload.

    At most AT_ONCE of a kind; the rest is for the next call.

    Returns:
        How many were buried.
    """
    # Jobs that need a payload key wait as long as it takes: nobody could requeue them without the key.
    switches = PauseSwitch.objects.filter(scope__in=UNSERVED).exclude(scope=PauseSwitch.Scope.SEALED)
    buried: list[int] = []
    with left_sealed():  # an error that was sealed is written as it is
        one_by_one(switches, lambda switch: buried.append(_tend(switch)), what="the unserved kind")
    return sum(buried)


def waiting_for(switch: PauseSwitch) -> Q:
    """The jobs that a switch holds."""
    if switch.scope == PauseSwitch.Scope.UNFIT:
        return misfits_of(switch.key)
    if switch.scope == PauseSwitch.Scope.SEALED:
        return closed_by(switch.key)
    return held_as_unknown(switch)


@transaction.atomic
def _tend(switch: PauseSwitch) -> int:
    if _put_off(switch) == AT_ONCE:
        return 0  # others may be left that something else keeps
    held = Job.objects.filter(waiting_for(switch))
    late = Now() - timedelta(hours=settings.QUEUEOPS.unserved_hours)
    could_run = Q(scheduled_at=None) | Q(scheduled_at__lt=late)
    waits = Exists(Dependency.objects.filter(owner_id__in=[OuterRef("pk"), OuterRef("batch_id")]))
    # The switch must be old, too: before it, something else may have held a job for days, such as its batch's pause.
    lacking = Exists(PauseSwitch.objects.filter(pk=switch.pk, created_at__lt=late))
    lost = held.filter(could_run, ~waits, lacking, updated_at__lt=late)
    old = lost.order_by("id").select_for_update(skip_locked=True)[:AT_ONCE]
    buried = len(bury("reject", {job.pk: (job.kind, _failure(switch, job)) for job in old}))
    if not held.exists():
        switch.delete()
    return buried


def _put_off(switch: PauseSwitch) -> int:
    """
    Begin anew the hours of jobs that a pause, a guard, a budget or stopped calls keep, too; at most AT_ONCE.

    Without this, what is let go after days would be buried at once.
    """
    is_unfit = switch.scope == PauseSwitch.Scope.UNFIT
    parameters = {
        "kind": switch.key,
        "pool": None if is_unfit else switch.pool,
        "code": INVALID_PAYLOAD if is_unfit else None,
        "older": PUT_OFF_SHARE * settings.QUEUEOPS.unserved_hours * 3600,
        "most": AT_ONCE,
    }
    return len(run_sql("jobs", "put_off_unserved", parameters))


def _failure(switch: PauseSwitch, job: Job) -> Failure:
    hours = f"{settings.QUEUEOPS.unserved_hours:g} h"
    if switch.scope == PauseSwitch.Scope.UNFIT:
        said = f"no worker took its payload within {hours}: {job.last_error_message}"
        return Failure(INVALID_PAYLOAD, "ValidationError", said if is_sealed(said) else said[:2000], "refused")
    of = f" of pool {switch.pool}" if switch.pool else ""
    said = f"no worker{of} that knows {job.kind!r} came within {hours}"
    return Failure("unknown_kind", "UnknownKind", said, "not_sent")
