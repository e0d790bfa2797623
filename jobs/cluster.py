"""
Integrates django-q2, which supervises the worker processes, brokers operator tasks and runs schedules.

Only this module and jobs.forking import django_q. Jobs never pass through its broker: each worker process hosts an
executor that claims jobs from the Job table.
"""

from __future__ import annotations

import logging
import multiprocessing.process
import os
import signal
import sys
import time
from argparse import ArgumentParser
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from queue import Empty
from types import FrameType
from typing import Any
from uuid import UUID, uuid4

import django_q.cluster
import django_q.scheduler
from django.conf import settings
from django.db import DatabaseError, InterfaceError, OperationalError, close_old_connections, connection, transaction
from django_q.brokers.orm import ORM
from django_q.conf import Conf
from django_q.management.commands import qcluster
from django_q.models import OrmQ, Schedule, Task
from django_q.queues import Queue
from django_q.signals import post_spawn, pre_execute
from django_q.tasks import async_task

from jobs.door.batches import forget_batches
from jobs.door.calls import forget_calls
from jobs.door.files import forget_files
from jobs.executor.outcome_log import ensure_usable
from jobs.executor.pump import STUCK_SECONDS, ExecutorPump, ExecutorSettings
from jobs.features.pools.pools import alive, ensure_pool
from jobs.features.results import garbage_collect
from jobs.features.results.store import result_store
from jobs.features.uploads import uploads
from jobs.forking import FORKING
from jobs.models import Executor
from jobs.services.operate import bulk_run, pauses
from jobs.services.upkeep import executors, partitions, retention, upkeep
from queueops.audit import stream
from queueops.core.clock import Now, database_now, with_clocks
from queueops.core.errors import QueueOpsError
from queueops.core.pooler import ensure_session_is_ours
from queueops.core.processes.garbage import spare_the_collector
from queueops.core.processes.lasting import LastingTrouble
from queueops.core.processes.parent import end_with_parent
from queueops.core.processes.stop_signals import STOP_SIGNALS, handle_stop
from queueops.core.values.numbers import MEGABYTE
from queueops.tenancy.rights import give_rights
from queueops.tenancy.secrets.secret_key import ensure_own_secret_key
from ratelimits.limits.defaults import tell_unheeded_settings
from ratelimits.tuning.upkeep import forget_old
from ratelimits.usage import release

logger = logging.getLogger(__name__)


# The only functions that a schedule or an operator's task may run: a Schedule row accepts any dotted path.
ALLOWED_TASKS = frozenset(
    {
        "jobs.cluster.run_operation",
        "jobs.cluster.keep_partitions",
        "jobs.cluster.apply_retention",
        "jobs.cluster.settle_holds",
        "jobs.cluster.restart_operations",
        "jobs.cluster.sweep_leases",
        "jobs.cluster.expire_reservations",
        "jobs.cluster.clean_executors",
        "jobs.cluster.stream_audit",
        "jobs.cluster.sweep_result_store",
    }
)

# minutes between runs, by the function's name; each is idempotent and short
HOUSE_KEEPING = {
    "keep_partitions": 60,
    "apply_retention": 1,
    "settle_holds": 1,
    "restart_operations": 1,
    "sweep_leases": 1,
    "expire_reservations": 1,
    "clean_executors": 1,
    "stream_audit": 1,
    "sweep_result_store": 60,
}

HAS_TASKS = "SELECT 1 FROM django_q_ormq WHERE key = %s AND lock <= {{now}} LIMIT 1"
POLL_QUEUE_SECONDS = 1.0  # the longest wait of one poll, which ends at once when a task comes
READ_AGAIN_SECONDS = 0.005  # the pause after another worker has taken the task
LOCK_SECONDS = 5.0  # a worker holds the lock of its timer for less than a millisecond
RETENTION_SECONDS = 10.0
STREAM_SECONDS = 30.0
RESULT_SWEEP_SECONDS = 10.0
TASKS_AWAY_SECONDS = 1.0  # between two checks whether the database is back


class TaskNotAllowed(Exception):
    """The function is not in ALLOWED_TASKS, which lists what django-q2 may run here."""


class SkipLockedBroker(ORM):  # django_q has no types
    """
    Hands out tasks with one SKIP LOCKED statement instead of a read and an optimistic update for each row.

    Times are by the database's clock: a host whose clock is ahead would otherwise lock tasks for too long.
    """

    delay = timedelta()
    _is_prepared = False
    _away: LastingTrouble | None = None

    def enqueue(self, task: str) -> int:
        row = OrmQ.objects.create(key=self.list_key or Conf.CLUSTER_NAME, payload=task, lock=Now() + self.delay)
        return int(row.pk)

    def dequeue(self) -> list[tuple[int, str]] | None:
        """
        Take up to Conf.BULK tasks; if there is none, return None after Conf.POLL seconds.

        Also return None while the database is away. An error raised here would end the calling process, ten seconds
        later and with a traceback, and the process that replaces it would meet the same error.
        """
        self._away = self._away or LastingTrouble(logger)
        try:
            ready = self._take_ready()
        except (OperationalError, InterfaceError) as error:
            connection.close()
            self._away.tell(
                "away", f"no task is handed out, the database is away or takes no writes: {str(error).strip()}"
            )
            time.sleep(TASKS_AWAY_SECONDS)
            return None
        if (seconds := self._away.end()) is not None:
            logger.info("tasks are handed out again, after %.0f s without the database", seconds)
        if ready:
            return ready
        time.sleep(Conf.POLL)
        return None

    def _take_ready(self) -> list[tuple[int, str]]:
        if connection.errors_occurred:  # only after an error: beginning a session costs more than all its queries
            close_old_connections()
        if not self._is_prepared:
            ensure_own_secret_key()  # with another key, tasks could not be read and would be thrown away
            self._is_prepared = begin_version()
        return self._take() if self._has_some() else []

    def _has_some(self) -> bool:
        """Whether tasks wait; asked without a transaction, because an idle installation asks each second."""
        with connection.cursor() as cursor:
            cursor.execute(with_clocks(HAS_TASKS), [self.list_key])
            return cursor.fetchone() is not None

    def _take(self) -> list[tuple[int, str]]:
        with transaction.atomic():
            ready = list(
                OrmQ.objects.select_for_update(skip_locked=True)
                .filter(key=self.list_key, lock__lte=Now())
                .order_by("id")[: Conf.BULK]
            )
            OrmQ.objects.filter(pk__in=[task.pk for task in ready]).update(lock=Now() + timedelta(seconds=Conf.RETRY))
        return [(task.pk, task.payload) for task in ready]


class LaterBroker(SkipLockedBroker):
    """Enqueues tasks that nobody takes before `delay_seconds` have passed."""

    def __init__(self, list_key: str | None = None, *, delay_seconds: float = 0.0) -> None:
        super().__init__(list_key)
        self.delay = timedelta(seconds=delay_seconds)


class DatabaseClock:
    """The database's clock, for the scheduler: a host whose own clock is ahead would put off every schedule."""

    @staticmethod
    def now() -> datetime:
        return datetime.fromtimestamp(database_now(), UTC)


class KillSafeQueue(Queue):  # django_q has no types
    """
    A queue whose reader holds the lock only while it reads, not while it waits.

    multiprocessing's own queue waits in `get()` with the lock held. If a worker is killed there, the lock is never
    released. No other worker would get a task again, or the STOP message that ends a worker.
    """

    def get(self, block: bool = True, timeout: float | None = None) -> Any:  # noqa: FBT001, FBT002 - its base class's
        until = None if timeout is None else time.monotonic() + timeout
        while True:
            left = POLL_QUEUE_SECONDS if until is None else until - time.monotonic()
            if self._reader.poll(min(POLL_QUEUE_SECONDS, max(0.0, left)) if block else 0):
                try:
                    # Do not block: otherwise a second reader would wait, with the lock, for a task that the first has
                    # taken. If it were killed meanwhile, no later task could be read.
                    return super().get(block=False)
                except Empty:
                    time.sleep(READ_AGAIN_SECONDS)
            if not block or (until is not None and time.monotonic() >= until):
                raise Empty


class KillSafeLock:
    """
    The lock of a number that a worker and its sentinel share, which a killed holder keeps for `seconds` at most.

    The sentinel waits for this lock before it looks whether the worker lives. Waiting for ever, it would replace no
    worker any more, run no schedule and not stop.
    """

    def __init__(self, seconds: float = LOCK_SECONDS) -> None:
        self._lock = FORKING.RLock()
        self._seconds = seconds

    def acquire(self) -> bool:
        """Take the lock; False: another process has kept it longer than a living process would."""
        return self._lock.acquire(timeout=self._seconds)

    def release(self) -> None:
        with suppress(AssertionError):  # the lock was not taken
            self._lock.release()

    def __enter__(self) -> bool:
        return self.acquire()

    def __exit__(self, *error: object) -> None:
        self.release()


def kill_safe_value(kind: str, start: float) -> Any:
    """Return a number that forked processes share."""
    return FORKING.Value(kind, start, lock=KillSafeLock())  # type: ignore[call-overload]


class CarefulCluster(django_q.cluster.Cluster):  # django_q has no types
    """A cluster that refuses to start with another installation's secret key, or with LISTEN in shared sessions."""

    def start(self) -> int:
        try:
            if directory := settings.QUEUEOPS.outcome_log:
                ensure_usable(directory)
            ensure_own_secret_key()
            ensure_session_is_ours()
            ensure_pool(settings.QUEUEOPS.pool)
            tell_unheeded_settings()
        except QueueOpsError as error:
            sys.exit(error.message)
        except DatabaseError:
            pass  # the database is away; the processes that take tasks or jobs check again
        finally:
            connection.close()  # before the fork
        handle_stop(self.sig_handler)
        return int(super().start())

    def sig_handler(self, signum: int, frame: FrameType | None) -> None:
        for name in STOP_SIGNALS:
            signal.signal(name, _do_nothing)  # otherwise a second signal during the first's handler would wait for ever
        super().sig_handler(signum, frame)


class CarefulSentinel(django_q.cluster.Sentinel):  # django_q has no types
    """A sentinel that its master alone stops: a signal to the process group must not end it before its workers."""

    def start(self) -> None:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        super().start()

    def reincarnate(self, process: Any) -> None:
        if process in self.pool and process.timer.value == 0:
            process.kill()  # it is stuck, and would take the SIGTERM of django-q2 for a wish to drain
        super().reincarnate(process)


def sentinel(*arguments: Any) -> None:
    """django-q2's sentinel, made to end with its master; its workers then drain by themselves."""
    for name in (signal.SIGHUP, signal.SIGTERM):
        signal.signal(name, signal.SIG_IGN)  # it has inherited the master's handler
    end_with_parent(_parent(), signal.SIGKILL)
    CarefulSentinel(*arguments)


def scheduler(broker: ORM | None = None) -> None:
    """django-q2's scheduler, made silent while the database is away: the process that hands out tasks reports that."""
    close_old_connections()
    try:
        connection.ensure_connection()
    except (OperationalError, InterfaceError):
        return
    _scheduler(broker=broker)


def pusher(*arguments: Any) -> None:
    """django-q2's pusher, made to end with its sentinel. Tasks that it had handed out are handed out again."""
    for name in (signal.SIGHUP, signal.SIGTERM):
        signal.signal(name, signal.SIG_DFL)  # it has inherited the sentinel's
    end_with_parent(_parent())
    _pusher(*arguments)


def monitor(*arguments: Any) -> None:
    """django-q2's monitor, made to end with its sentinel. Tasks whose results it had not saved are repeated."""
    for name in (signal.SIGHUP, signal.SIGTERM):
        signal.signal(name, signal.SIG_DFL)  # it has inherited the sentinel's
    end_with_parent(_parent())
    _monitor(*arguments)


def worker(*arguments: Any) -> None:
    """
    django-q2's worker, made to drain and end when its sentinel dies: otherwise nobody would guard or stop it.

    It also drains and ends at SIGTERM, which many supervisors send to the whole process group.
    """
    signal.signal(signal.SIGHUP, _end)
    signal.signal(signal.SIGTERM, _end)
    end_with_parent(_parent(), signal.SIGHUP)
    try:
        _worker(*arguments)
    finally:
        # Stop here: at exit, Python 3.14 and later would first wait for the handlers' threads.
        for name in (signal.SIGHUP, signal.SIGTERM):
            signal.signal(name, signal.SIG_IGN)  # another signal now would cut off the drain
        for executor in _hosted:
            executor.stop()


def _end(signum: int, frame: FrameType | None) -> None:
    if signum == signal.SIGTERM:
        logger.info("this worker is asked to stop; it drains and ends")
    else:
        logger.error("the process that guards this worker is gone; it drains and ends")
    raise SystemExit(0)


def _do_nothing(signum: int, frame: FrameType | None) -> None:
    """Do nothing. Unlike SIG_IGN, a handler also takes signals that have already arrived."""


def _parent() -> int:
    parent = multiprocessing.process.parent_process()
    return parent.pid or 0 if parent else 0


class Command(qcluster.Command):  # django_q has no types
    """django-q2's qcluster command, with an option to serve one pool."""

    requires_system_checks = ()  # importing URLs and screens for them takes a second; the web process runs them

    def add_arguments(self, parser: ArgumentParser) -> None:
        super().add_arguments(parser)
        parser.add_argument("--pool", help="Carry out the jobs of this pool only; otherwise QUEUEOPS_POOL says which.")

    def handle(self, *args: Any, pool: str | None = None, **options: Any) -> None:
        if pool is not None:
            settings.QUEUEOPS = replace(settings.QUEUEOPS, pool=pool)
        super().handle(*args, **options)


qcluster.Cluster = CarefulCluster
qcluster.Command = Command
django_q.scheduler.timezone = DatabaseClock
django_q.scheduler.localtime = DatabaseClock.now
django_q.cluster.Queue = KillSafeQueue
django_q.cluster.Event, django_q.cluster.Value = FORKING.Event, kill_safe_value
django_q.cluster.Sentinel = sentinel
_scheduler, django_q.cluster.scheduler = django_q.cluster.scheduler, scheduler
_pusher, django_q.cluster.pusher = django_q.cluster.pusher, pusher
_monitor, django_q.cluster.monitor = django_q.cluster.monitor, monitor
_worker, django_q.cluster.worker = django_q.cluster.worker, worker


_hosted: list[ExecutorPump] = []  # the one executor of this worker process


def host_executor(**kwargs: Any) -> None:
    """Start this worker process's executor; `worker` drains it when the process ends."""
    guard = _parent()
    chosen = settings.QUEUEOPS
    executor = ExecutorPump(
        ExecutorSettings(
            slots=chosen.executor_slots,
            lease_seconds=chosen.lease_seconds,
            renew_seconds=chosen.renew_seconds,
            sweep_seconds=chosen.sweep_seconds,
            poll_seconds=chosen.poll_seconds,
            drain_grace_seconds=chosen.drain_grace_seconds,
            listen=chosen.listen,
            pool=chosen.pool,
            loop_budget_seconds=chosen.loop_budget_seconds,
            outcome_log=chosen.outcome_log,
            outcome_log_bytes=chosen.outcome_log_mb * MEGABYTE,
            outcome_log_days=chosen.outcome_log_days,
        ),
        cluster_pid=guard,
        is_orphan=lambda: os.getppid() != guard,
    )
    spare_the_collector()
    executor.start()
    _hosted.append(executor)


class RefusedArguments:
    """Replaces the arguments of a task that may not run: unpacking it raises before the function is called."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __iter__(self) -> Iterator[Any]:
        raise TaskNotAllowed(f"{self.name} is not on the list of what may run")


def refuse_foreign_task(*, func: Any, task: dict[str, Any], **kwargs: Any) -> None:
    """
    Let a task that is not in ALLOWED_TASKS fail before it runs, with its name in the result.

    Such a task may be a duty of a later version. An error raised here would end the worker, and with it its jobs.
    """
    name = f"{getattr(func, '__module__', '')}.{getattr(func, '__qualname__', func)}"
    if func is not None and name not in ALLOWED_TASKS:  # django-q2 itself refuses a function that does not exist
        logger.error("django-q2: %s is not on the list of what may run; it is refused", name)
        task["args"] = RefusedArguments(name)


post_spawn.connect(host_executor, dispatch_uid="jobs.host_executor")
pre_execute.connect(refuse_foreign_task, dispatch_uid="jobs.refuse_foreign_task")


def begin_version() -> bool:
    """
    Add the schedules of this version's duties, and the rights on its new tables.

    Workers of the previous version may fail at these schedules and tables. Processes of this version therefore add them
    as they start; `migrate` adds them only if no executor lives.

    Returns:
        Whether all is added now; the tables may not exist yet.
    """
    if not give_rights():
        return False
    ensure_schedules()
    return True


def begin_version_unless_others_work() -> None:
    """
    Call `begin_version` after a migration, unless executors live.

    Workers of 1.0.0 end when they meet a duty that they do not know. The workers that replace them refuse to work if
    the API may use a new table.
    """
    if not Executor.objects.filter(alive()).exists():
        begin_version()


def ensure_schedules() -> None:
    """Create the house-keeping schedules that are missing; schedules edited in the admin stay unchanged."""
    known = set(Schedule.objects.filter(name__in=HOUSE_KEEPING).values_list("name", flat=True))
    for name, minutes in HOUSE_KEEPING.items():
        if name in known:
            continue
        timing = {"schedule_type": Schedule.MINUTES, "minutes": minutes, "next_run": DatabaseClock.now()}
        Schedule.objects.get_or_create(name=name, defaults={"func": f"jobs.cluster.{name}", **timing})


def forget_tasks() -> int:
    """Delete the waiting tasks; return how many. Bulk operations and schedules go on with new tasks."""
    return int(OrmQ.objects.all().delete()[0])


def enqueue_operation(operation_id: UUID, turn: int) -> None:
    """
    Have a worker carry out the next chunk of a bulk operation when it is due, after the caller's transaction.

    Args:
        turn: The operation's turn; see BulkOperation.
    """

    def enqueue() -> None:
        broker = LaterBroker(delay_seconds=bulk_run.seconds_until_due(operation_id))
        async_task("jobs.cluster.run_operation", str(operation_id), turn, broker=broker)

    transaction.on_commit(enqueue)


bulk_run.hand_to_worker = enqueue_operation


def run_operation(operation_id: str, turn: int | None = None) -> None:
    """Carry out one chunk of a bulk operation, and enqueue a task for the next chunk."""
    if bulk_run.run_bulk_chunk(UUID(operation_id), turn=turn):
        enqueue_operation(UUID(operation_id), turn or 0)


def keep_partitions() -> list[str]:
    """Make the event log's partitions for the days ahead."""
    return partitions.make_partitions()


def apply_retention(holder: str = "") -> dict[str, int]:
    """
    Delete rows older than their retention; while there are more, enqueue a task that goes on.

    Each task is short, because stopping a worker waits for its task.

    Args:
        holder: The holder of the duty, if this task continues an earlier one. If another holder has it, the task ends.
    """
    own = UUID(holder) if holder else uuid4()
    if not executors.take_duty("retention", holder=own, term_seconds=3 * RETENTION_SECONDS):
        return {}
    deleted = retention.apply_retention(seconds=RETENTION_SECONDS)
    before = datetime.fromtimestamp(database_now(), UTC) - timedelta(days=settings.QUEUEOPS.operation_retention_days)
    old = list(Task.objects.filter(stopped__lt=before).values_list("pk", flat=True)[: retention.ROWS_OF_A_DELETE])
    tasks, _ = Task.objects.filter(pk__in=old).delete()
    if not deleted.is_through:
        async_task("jobs.cluster.apply_retention", str(own))
    return {**deleted.rows, "tasks": tasks, **_forget(), "limiter_rows": forget_old()}


def _forget() -> dict[str, int]:
    return {
        "uploads": uploads.forget_uploads(),
        "door_files": forget_files(),
        "door_batches": forget_batches(),
        "door_calls": forget_calls(),
    }


def settle_holds() -> None:
    """Finish pauses and resumes that a killed process left half done."""
    pauses.settle_holds()


def restart_operations() -> None:
    """Go on with bulk operations whose chain of tasks was lost."""
    bulk_run.restart_stalled_operations()


def sweep_leases() -> int:
    """Take back jobs with a lapsed lease. Executors do so every few seconds; this runs in case none of them does."""
    return upkeep.rescue_lapsed() if _may_judge() else 0


def expire_reservations() -> int:
    """Release reservations of allowances that have expired. Executors do so every few seconds as well."""
    return release.expire_reservations()


def clean_executors() -> list[int]:
    """Kill this cluster's executors that do not answer, and delete the rows of executors that died long ago."""
    if not _may_judge():
        return []
    lease = settings.QUEUEOPS.lease_seconds
    killed = executors.kill_stuck_executors(silent_seconds=lease, stuck_seconds=STUCK_SECONDS)
    executors.forget_gone_executors(silent_seconds=lease)
    return killed


def _may_judge() -> bool:
    """False while heartbeats and leases may be out of date, after the database was away or was replaced."""
    return all(executor.may_judge for executor in _hosted)


def stream_audit() -> None:
    """Send the audit trail's new entries, unless `manage.py stream_audit` has sent them already."""
    if target := settings.QUEUEOPS.audit_stream:
        stream.send_new(target, seconds=STREAM_SECONDS)


def sweep_result_store(after: str = "", holder: str = "") -> int:
    """
    Remove objects of the result store that no job refers to; while there are more, enqueue a task that goes on.

    Args:
        after: Where in the store the previous task stopped; empty: begin anew.
        holder: The holder of the duty, as in apply_retention.
    """
    store = result_store()
    own = UUID(holder) if holder else uuid4()
    if store is None or not executors.take_duty("results", holder=own, term_seconds=6 * RESULT_SWEEP_SECONDS):
        return 0
    try:
        garbage_collect.ensure_own_store(store)
    except garbage_collect.ForeignStore as error:
        logger.warning("%s", error.message)
        return 0
    swept = garbage_collect.sweep_results(store, after=after, seconds=RESULT_SWEEP_SECONDS)
    if swept.after:
        async_task("jobs.cluster.sweep_result_store", swept.after, str(own))
    return swept.removed
