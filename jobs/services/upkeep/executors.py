"""The register of live executors, and the leases under which they do the periodic duties."""

from __future__ import annotations

import logging
import os
import signal
import socket
import time
from collections.abc import Sequence
from datetime import timedelta
from uuid import UUID, uuid4

import psutil
from django.db import connection, transaction
from django.db.models import BooleanField, Exists, ExpressionWrapper, F, Max, Q

from jobs.features.served_kinds.served_kinds import kinds_served
from jobs.models import DutyLease, Executor, Job
from jobs.states import RUNNING
from queueops.core.clock import Now, database_moment
from queueops.core.processes.pulses import Pulse, Pulses, age_of, is_running, start_of
from queueops.core.sql import run_sql
from ratelimits.alerts.alerts import open_alert
from ratelimits.models import QuotaAlert

from .worker_deaths import tell_death

logger = logging.getLogger(__name__)

# Drawn once for each start of a cluster, because its sentinel and workers are forked from the process that draws it.
# Host names and pids may be equal for two clusters, in containers and in a restored copy of a database.
CLUSTER_ID = uuid4()
PULSES = Pulses()  # signs of life of this cluster's workers, which judge one another by these and not by rows


def register(
    executor_id: UUID, *, cluster_pid: int, slots: int, pool: str = "", cluster_id: UUID = CLUSTER_ID
) -> tuple[Executor.Role, int]:
    """
    Register this process as an executor, unless it is registered.

    One executor of each cluster takes the quarantine seat: the first, and after its death the executor that the
    sentinel starts in its place. It runs one suspect job at a time, so that a job that kills its process ends no other
    job.

    Returns:
        Its role and how many jobs it may run at once.
    """
    known = Executor.objects.filter(pk=executor_id).first()
    if known is not None:
        return Executor.Role(known.role), known.slots
    row = {
        "id": executor_id,
        "host": socket.gethostname(),
        "pid": os.getpid(),
        "process_started_at": psutil.Process().create_time(),
        "cluster_id": cluster_id,
        "cluster_pid": cluster_pid,
        "kinds": kinds_served(),
        "pool": pool,
    }
    with transaction.atomic():
        _lock_cluster(cluster_id)
        seat = Executor.objects.filter(cluster_id=cluster_id, role=Executor.Role.QUARANTINE).first()
        if seat is not None and not is_alive(seat):
            seat.delete()
            seat = None
        role = Executor.Role.GENERAL if seat else Executor.Role.QUARANTINE
        created = Executor.objects.create(**row, role=role, slots=slots if seat else 1)
    return role, created.slots


def heartbeat(executor_id: UUID, *, in_flight: int, loop_lag_seconds: float, draining: bool, lost: int) -> bool:
    """Store a heartbeat; False: the executor is not registered. `lost`: leases lost since the last heartbeat."""
    updated = Executor.objects.filter(pk=executor_id).update(
        heartbeat_at=Now(),
        in_flight=in_flight,
        loop_lag_ms=loop_lag_seconds * 1000,
        draining=draining,
        leases_lost=F("leases_lost") + lost,
    )
    return updated > 0


def has_time(executor_id: UUID, *, silent_seconds: float) -> bool:
    """
    Whether this executor should do the duties that one executor does for all.

    Executors in the quarantine seat do them, because they are idle except for suspect jobs. The others do them while no
    executor in that seat lives.
    """
    living = Executor.objects.filter(heartbeat_at__gt=Now() - timedelta(seconds=silent_seconds), draining=False)
    spare = set(living.filter(role=Executor.Role.QUARANTINE).values_list("pk", flat=True))
    return not spare or executor_id in spare


def deregister(executor_id: UUID) -> None:
    Executor.objects.filter(pk=executor_id).delete()


def take_duty(duty: str, *, holder: UUID, term_seconds: float) -> bool:
    """Take a duty for `term_seconds`; return whether `holder` has it. A holder may always renew its own term."""
    return bool(run_sql("jobs", "take_duty", {"duty": duty, "holder": holder, "term": term_seconds}))


def give_up_duty(duty: str, *, holder: UUID) -> None:
    """Let another executor take a duty now."""
    DutyLease.objects.filter(duty=duty, holder=holder).delete()


def kill_stuck_executors(
    *, silent_seconds: float, stuck_seconds: float, cluster_id: UUID = CLUSTER_ID, pulses: Pulses = PULSES
) -> list[int]:
    """
    Kill executors of this cluster that are silent or whose event loop is blocked; delete the rows of dead ones.

    A process that does not answer can't be asked to stop; its jobs come back when their leases lapse, and the sentinel
    starts another process. Executors are judged by their own signs of life alone (queueops.core.processes.pulses). Rows
    are no proof: if the database was put back or could not be written, the rows of sound executors are old. An executor
    whose pump waits for a failed database is not stuck.

    Each kill opens an alert. Otherwise, only a log would tell of the kill by the time somebody looks.

    Returns:
        The pids killed.
    """
    killed = []
    for pulse in pulses.read():
        late = time.monotonic() - pulse.worked_at
        silent = 0.0 if pulse.is_in_trouble else time.monotonic() - pulse.beat_at
        if pulse.pid == os.getpid() or not (silent > silent_seconds or late > stuck_seconds) or not pulse.is_alive:
            continue
        logger.error(
            "executor %s does not answer (handlers' loop %.0f ms late); killing its process %s",
            pulse.owner,
            late * 1000,
            pulse.pid,
        )
        os.kill(pulse.pid, signal.SIGKILL)
        killed.append(pulse.pid)
        _tell_killed(pulse, seconds=max(silent, late))
        tell_death(pulse)
        pulses.forget(pulse)
    for executor in Executor.objects.filter(
        cluster_id=cluster_id, heartbeat_at__lt=Now() - timedelta(seconds=silent_seconds)
    ):
        if not is_alive(executor):
            deregister(executor.pk)
    return killed


def _tell_killed(pulse: Pulse, *, seconds: float) -> None:
    executor = Executor.objects.filter(pk=pulse.owner).first()
    named = executor or f"{socket.gethostname()}:{pulse.pid}"
    open_alert(
        QuotaAlert.Kind.STUCK_EXECUTOR,
        str(pulse.owner),
        severity=QuotaAlert.Severity.WARNING,
        message=f"Executor {named} did not answer for {seconds:.0f} s and was killed; its cluster starts another, "
        "and its jobs come back when their leases lapse",
        figures={"in_flight": executor.in_flight if executor else 0, "killed": True},
    )


def forget_gone_executors(*, silent_seconds: float) -> int:
    """
    Delete the rows of dead executors whose jobs were rescued; until then, `vanished` needs the rows.

    Args:
        silent_seconds: How long an executor of this host whose process has ended must have been silent; for any other
            executor, ten times as long. An executor that lives after all registers again.
    """
    now, here = Now(), socket.gethostname()
    silent = Executor.objects.filter(heartbeat_at__lt=now - timedelta(seconds=silent_seconds))
    long_silent = Q(heartbeat_at__lt=now - timedelta(seconds=10 * silent_seconds))
    return sum(
        _forget(executor)
        for executor in silent.annotate(is_long=ExpressionWrapper(long_silent, BooleanField()))
        if executor.is_long or (executor.host == here and not is_alive(executor))
    )


def vanished(jobs: Sequence[Job], *, lease_seconds: float) -> set[UUID]:
    """
    Return the jobs, among these with a lapsed lease, whose executor went away together with its whole cluster.

    A job that brings down its process leaves the cluster's other executors alive, and the sentinel starts a new one: at
    least one of them has sent a heartbeat since. If the host, its network or the sentinel fails, none has sent one.

    Args:
        lease_seconds: The length of a lease. Executors renew at least twice within it, so a heartbeat more than half a
            lease after the job's last renewal comes from a survivor.
    """
    cluster_of = dict(Executor.objects.filter(pk__in={job.executor for job in jobs}).values_list("pk", "cluster_id"))
    members = Executor.objects.filter(cluster_id__in=set(cluster_of.values())).order_by()
    last_sign = dict(members.values_list("cluster_id").annotate(Max("heartbeat_at")))
    return {
        job.pk
        for job in jobs
        if job.executor in cluster_of
        and job.lease_expires_at is not None
        and last_sign[cluster_of[job.executor]] < job.lease_expires_at - timedelta(seconds=lease_seconds / 2)
    }


def is_alive(executor: Executor) -> bool:
    """Whether the process of this row runs on this host; another process with its pid does not count."""
    if is_running(executor.pid, executor.process_started_at - psutil.boot_time()):
        return True
    # A system clock that was set moves all starts, also those of the living. The database's clock and the process's age
    # then tell: a process that was there at the last heartbeat is the row's own, which had the number.
    try:
        silent = database_moment() - executor.heartbeat_at
        known = start_of(executor.pid), age_of(executor.pid)
    except psutil.NoSuchProcess:
        return False
    return known[1] > silent.total_seconds() and is_running(executor.pid, known[0])


def _forget(executor: Executor) -> int:
    """Delete an executor's row, unless it sent a heartbeat meanwhile or still has jobs to be rescued."""
    running = Job.objects.filter(executor=executor.pk, status__in=RUNNING)
    row = Executor.objects.filter(~Exists(running), pk=executor.pk, heartbeat_at=executor.heartbeat_at)
    return row.delete()[0]


def _lock_cluster(cluster_id: UUID) -> None:
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_advisory_xact_lock(hashtextextended(%s, 0))", [f"queueops {cluster_id}"])
