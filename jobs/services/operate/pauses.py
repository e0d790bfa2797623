"""
Pausing and resuming.

A pause switch stops claims from the moment it is committed. That is enough for a project and for the whole
installation, because claims do not read their jobs. The jobs of a batch, service or kind are held as well, that is,
taken out of the ready index. Otherwise every claim would read them in vain. The holds follow in bounded statements,
each its own transaction; if they are cut off, `settle_holds` completes them.
"""

from __future__ import annotations

import math
import time
from dataclasses import dataclass
from datetime import timedelta
from uuid import UUID

from django.db import transaction
from django.db.models import Sum

from jobs.errors import NotPaused, UnknownPauseTarget
from jobs.handlers.registry import UnknownKind, find_handler
from jobs.models import Batch, Executor, Job, PauseSwitch
from jobs.states import WAITING, GuardState, JobState
from queueops.audit import trail
from queueops.core.clock import Now, TransactionNow
from queueops.core.notify import Channel, notify
from queueops.core.processes.isolate_failures import one_by_one
from queueops.core.sql import run_sql
from queueops.core.values.reasons import clean_reason
from queueops.tenancy.models import Project
from queueops.tenancy.moves import refuse_writes
from ratelimits.limits import ramps
from ratelimits.limits.catalogue import LIMITS_KEPT_SECONDS

from .bulk_outcome import Canary
from .job_filter import Counted, JobFilter, count_jobs

HOLD_CHUNK = 5000  # rows of one statement: its locks last some tens of milliseconds
NO_ID = UUID(int=0)
MAX_PAUSE_KEY_LENGTH = 100
# Wait until every process has read its limits again: a process without the ramp would claim at full speed.
RAMP_KNOWN_SECONDS = 2 * LIMITS_KEPT_SECONDS
SILENT_EXECUTOR_SECONDS = 30  # after so long without a heartbeat, an executor's slots don't count

Scope = PauseSwitch.Scope
OF_A_KIND = frozenset({Scope.KIND, Scope.UNKNOWN})
HOLDING = frozenset({Scope.BATCH, Scope.SERVICE, Scope.KIND, Scope.UNKNOWN})
OURS = frozenset({Scope.UNKNOWN, Scope.UNFIT, Scope.SEALED, Scope.REFUSED})
OPERATORS = {scope.value: scope for scope in Scope if scope not in OURS}  # scopes that people pause


@dataclass(frozen=True, slots=True)
class SettledHolds:
    held: int
    released: int


def pause_batch(batch_id: UUID, *, actor: str, reason: str = "") -> int:
    """Pause a batch; see `pause_scope`."""
    return pause_scope(Scope.BATCH, str(batch_id), actor=actor, reason=reason)


def resume_batch(batch_id: UUID, *, actor: str, reason: str = "") -> int:
    """Resume a batch; see `resume_scope`."""
    return resume_scope(Scope.BATCH, str(batch_id), actor=actor, reason=reason)


def resume_batch_by_canary(batch_id: UUID, *, canary: Canary, actor: str, reason: str = "") -> int:
    """
    Resume a batch so that a few of its waiting jobs go first; its guard lets the rest go, or stops it again.

    Returns:
        How many jobs were put back.

    Raises:
        UnknownPauseTarget, InvalidPace: It stays paused.
    """
    canary.check()
    return _resume(Scope.BATCH, str(batch_id), actor=actor, reason=reason, canary=canary)


def _try_first(batch_id: str, canary: Canary) -> None:
    """Have the guard of a batch let a few of its waiting jobs go, in the caller's transaction."""
    waiting = Job.objects.filter(batch_id=batch_id, status__in=sorted(WAITING))
    # Leave out jobs with a time of their own: the rest of the batch would wait for that time, too.
    now = waiting.exclude(status=JobState.QUEUED, scheduled_at__isnull=False).order_by("pk")
    ids = list(now.values_list("pk", flat=True)[: canary.rows])
    if ids:
        # Use the clock by which jobs' ends are stored.
        since = Batch.objects.filter(pk=batch_id).values_list(TransactionNow(), flat=True).get()
        guard = {"first": len(ids), "percent": canary.percent, "since": since.isoformat()}
        Batch.objects.filter(pk=batch_id).update(guard=guard, guard_state=GuardState.TRIAL, trial_until=ids[-1])


def count_covered(scope: str, key: str) -> Counted:
    """
    How many waiting jobs a pause would keep from starting; bounded, see `count_jobs`.

    Raises:
        UnknownPauseTarget
    """
    wanted, key, _ = _target(scope, key)
    field = {Scope.PROJECT: "project_id", Scope.SERVICE: "service", Scope.KIND: "kind", Scope.BATCH: "batch_id"}
    given = {} if wanted is Scope.GLOBAL else {field[wanted]: key}
    return count_jobs(JobFilter.model_validate(given), WAITING)


def pause_scope(scope: str, key: str, *, actor: str, reason: str = "") -> int:
    """
    Stop claims of a project, service, kind or batch, or of everything (`global`, with an empty key).

    Running jobs go on. A second pause of the same scope only completes its holds. A pause of everything ends the ramp.
    Not to be called inside a transaction: the switch must be committed before the holds begin.

    Returns:
        How many jobs were held; always 0 for `project` and `global`, which need no holds.

    Raises:
        UnknownPauseTarget: No such scope, project or batch. Services and kinds may be paused before their
        first job.
    """
    with transaction.atomic(durable=True):
        wanted, key, project_id = _target(scope, key)
        reason = clean_reason(reason)
        switch, created = PauseSwitch.objects.get_or_create(
            scope=wanted, key=key, window=None, defaults={"reason": reason, "paused_by": actor}
        )
        if wanted is Scope.BATCH:
            Batch.objects.filter(pk=key).update(paused=True)
        if wanted is Scope.GLOBAL:
            ramps.drop_ramp()
        trail.record(
            actor=actor,
            action="pause",
            target=str(switch),
            after={"paused": True},
            moved=int(created),
            reason=reason,
            project_id=project_id,
        )
    return hold(switch) if wanted in HOLDING else 0


def resume_scope(scope: str, key: str, *, actor: str, reason: str = "") -> int:
    """
    Remove a pause switch of people or of a batch that stopped itself, and put back jobs that no other switch covers.

    The switch of a maintenance window stays until the window ends. Not to be called inside a transaction.

    Returns:
        How many jobs were put back.

    Raises:
        UnknownPauseTarget: No such scope, project or batch.
        ProjectMoved, ProjectMoving: It stays paused here.
    """
    return _resume(scope, key, actor=actor, reason=reason)


def _resume(scope: str, key: str, *, actor: str, reason: str, canary: Canary | None = None) -> int:
    with transaction.atomic(durable=True):
        wanted, key, project_id = _target(scope, key)
        if wanted is Scope.PROJECT:
            refuse_writes(key)
        removed, _ = PauseSwitch.objects.filter(scope=wanted, key=key, window=None).delete()
        if canary and removed:  # otherwise a repeated request would hold the running jobs back again
            _try_first(key, canary)
        if wanted is Scope.BATCH:
            Batch.objects.filter(pk=key).update(paused=False)
            Batch.objects.filter(pk=key, guard_state=GuardState.STOPPED).update(guard_state=GuardState.WENT_ON)
        if wanted is Scope.GLOBAL:
            ramps.drop_ramp()  # in case a ramp was being prepared
        trail.record(
            actor=actor,
            action="resume",
            target=f"{wanted} {key}".strip(),
            after={"paused": False},
            moved=removed,
            reason=clean_reason(reason),
            project_id=project_id,
        )
        notify(Channel.READY)
    return release_uncovered() if wanted in HOLDING else 0


def resume_everything(*, over_seconds: float, actor: str, reason: str = "") -> None:
    """
    End the pause of everything, with a ramp: every limit, and the slots of services without one, open bit by bit.

    Takes RAMP_KNOWN_SECONDS. Not to be called inside a transaction.

    Raises:
        NotPaused: The pause of everything does not exist, or has ended meanwhile.
        InvalidRamp: The ramp is too short or too long.
    """
    reason = clean_reason(reason)
    with transaction.atomic(durable=True):
        _lock_global()
        ramps.prepare_ramp(over_seconds=over_seconds, slots=count_slots(), actor=actor)
    time.sleep(RAMP_KNOWN_SECONDS)
    with transaction.atomic(durable=True):
        _lock_global()
        if not ramps.begin_ramp():
            raise NotPaused("Somebody has paused everything again meanwhile.")
        PauseSwitch.objects.filter(scope=Scope.GLOBAL, window=None).delete()
        trail.record(
            actor=actor,
            action="resume",
            target="global",
            after={"paused": False, "over_seconds": over_seconds},
            reason=reason,
        )
        notify(Channel.READY)


def _lock_global() -> None:
    if not PauseSwitch.objects.select_for_update().filter(scope=Scope.GLOBAL, window=None):
        raise NotPaused("Not everything is paused: there is nothing to resume with a ramp.")


def count_slots() -> int:
    """How many jobs the present executors carry out at once, without quarantine's."""
    alive = Executor.objects.filter(draining=False, heartbeat_at__gt=Now() - timedelta(seconds=SILENT_EXECUTOR_SECONDS))
    return int(alive.filter(role=Executor.Role.GENERAL).aggregate(all=Sum("slots"))["all"] or 0)


def tend_ramp() -> None:
    """Update the ramp's number of slots, as executors come and go. For house-keeping."""
    if ramps.is_prepared():
        ramps.set_slots(count_slots())


def settle_holds() -> SettledHolds:
    """
    Make the holds agree with the switches: complete holds that a killed process left half done, and hold jobs that
    arrived meanwhile.

    For house-keeping; not to be called inside a transaction. If all agrees, it costs one short statement per switch.
    """
    switches = PauseSwitch.objects.filter(scope__in=HOLDING)
    held: list[int] = []
    one_by_one(switches, lambda switch: held.append(hold(switch)), what="the pause")
    return SettledHolds(held=sum(held), released=release_uncovered())


def _target(scope: str, key: str) -> tuple[Scope, str, str]:
    """The scope, the key as switches keep it, and the project that it belongs to, if any."""
    try:
        wanted = OPERATORS[scope]
        key = str(UUID(key)) if wanted is Scope.BATCH else key
    except (KeyError, ValueError):
        raise _unknown(scope, key) from None
    project_id = ""
    if wanted is Scope.BATCH:
        found = Batch.objects.filter(pk=key).values_list("project_id", flat=True).first()
        project_id = found or ""
        exists = found is not None
    elif wanted is Scope.PROJECT:
        project_id = key
        exists = Project.objects.filter(pk=key).exists()
    else:
        exists = not key if wanted is Scope.GLOBAL else 0 < len(key) <= MAX_PAUSE_KEY_LENGTH and "\0" not in key
    if not exists:
        raise _unknown(scope, key)
    return wanted, key, project_id


def _unknown(scope: str, key: str) -> UnknownPauseTarget:
    return UnknownPauseTarget(f"There is no {scope} {key!r} to pause.", scope=scope, key=key)


def hold(switch: PauseSwitch, *, chunks: float = math.inf) -> int:
    """Take the jobs that a switch covers out of the ready index, at most `chunks` chunks. Not in a transaction."""
    parameters = {
        "scope": switch.scope,
        "key": switch.key,
        "batch": UUID(switch.key) if switch.scope == Scope.BATCH else None,
        "service": switch.key if switch.scope == Scope.SERVICE else None,
        "kind": switch.key if switch.scope in OF_A_KIND else None,
        "pool": switch.pool if switch.scope == Scope.UNKNOWN else None,
        "most": HOLD_CHUNK,
    }
    if switch.scope in OF_A_KIND:
        parameters["service"] = _service_of(switch.key)
    total = done = 0
    while True:
        with transaction.atomic(durable=True):
            [(found, held)] = run_sql("jobs", "hold_jobs", parameters)
        total, done = total + int(held), done + 1
        if found < HOLD_CHUNK or not held or done >= chunks:  # if no job was held, the switch was removed
            return total


def _service_of(kind: str) -> str | None:
    """Return the service that jobs of the kind call; None: it differs by payload, or the kind is unknown."""
    try:
        service = find_handler(kind).service
    except UnknownKind:
        return None
    return service if isinstance(service, str) else None


def release_uncovered(*, chunks: float = math.inf) -> int:
    """Put back held jobs that no switch covers any more, at most `chunks` chunks. Not in a transaction."""
    total, done, after = 0, 0, NO_ID
    while True:
        with transaction.atomic(durable=True):
            [(released, last)] = run_sql(
                "jobs", "release_held_jobs", {"after": after, "most": HOLD_CHUNK, "batch": None}
            )
            if released:
                notify(Channel.READY)
        total, done = total + int(released), done + 1
        if last is None or done >= chunks:
            return total
        after = last
