"""The database side of an executor: a thread that claims, renews, promotes and flushes, and waits for no handler."""

from __future__ import annotations

import logging
import os
import threading
import time
import uuid
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import UUID

import psycopg
from django.db import DatabaseError, InterfaceError, OperationalError, connection, transaction

from jobs.backoff import Policy
from jobs.features.pools.pools import ensure_pool
from jobs.features.results.store import result_store
from jobs.features.results.totals import add_figures
from jobs.features.results.writer import ResultWriter
from jobs.features.served_kinds.served_kinds import ServedKinds
from jobs.models import Executor
from jobs.services.claim import blocked_loop, claim, provider_quotas, quota_feedback
from jobs.services.claim.fair_share import ClassTurns
from jobs.services.claim.lanes import LaneGate
from jobs.services.claim.park import ADOPTED_AT_ONCE, FEW_ADOPTED_AT_ONCE, Parking, rest_seconds
from jobs.services.claim.restore_detector import RestoreDetector
from jobs.services.claim.scan_cursor import ScanCursor
from jobs.services.finish import finish
from jobs.services.finish.claimed import ClaimedJob
from jobs.services.finish.cost_samples import CostSamples
from jobs.services.finish.outcomes import Failed, GivenBack, Outcome, Progress
from jobs.services.finish.singly import raise_others, record_singly
from jobs.services.upkeep import executors
from jobs.services.upkeep.own_claims import compare_claims
from queueops.core.database import UnsuitableDatabase
from queueops.core.notify import Channel, notify
from queueops.core.pooler import ensure_session_is_ours
from queueops.core.postgres.local_settings import local_settings
from queueops.core.processes.isolate_failures import between_rows
from queueops.core.processes.lasting import LastingTrouble
from queueops.core.processes.readable import wait_readable
from queueops.core.telemetry import tracing
from queueops.core.telemetry.logs import tell_of
from queueops.tenancy.checks import ensure_projects_are_kept_apart
from queueops.tenancy.credential_pools import server_settings
from queueops.tenancy.secrets.secret_key import ensure_own_secret_key
from ratelimits.limiter import decide
from ratelimits.limits import catalogue
from ratelimits.money.budgets import budgets_of

from .adaptive_concurrency import AdaptiveConcurrency
from .duties import DUTY_SECONDS, Duties
from .loop import CANCELLED, LOOP_BUDGET_SECONDS, OVERRUN_SECONDS, STOPPING, HandlerLoop
from .open_credentials import Keyring, Opened
from .outcome_log import OutcomeLog

if TYPE_CHECKING:
    from .spans import JobSpans

logger = logging.getLogger(__name__)

PROMOTE_SECONDS = 0.25
SLEEP_AFTER_SECONDS = 5.0  # after so long without work, an executor that listens for notifications polls seldom
SELDOM_SECONDS = 5.0  # between such seldom polls, which find work without a notification
COMPANY_SECONDS = 0.02  # outcomes wait at most this long for others, to be written together
PARK_SECONDS = 0.5
ADOPT_AGAIN_SECONDS = 0.05
PROGRESS_SECONDS = 1.0  # a job's progress is written this often
RECONNECT_SECONDS = 1.0
LAST_RECONNECT_SECONDS = 0.1  # between two tries while the executor stops
UNSUITABLE_SECONDS = 10.0  # between two tries at a database that somebody must put right
# All frequent statements are served by indexes. Compiling them costs more than running them, and a plan made while the
# tables are small would still scan them once they have grown.
PLANNING = (("jit", "off"), ("plan_cache_mode", "force_generic_plan"), ("enable_seqscan", "off"))
STUCK_SECONDS = 30.0  # how long a handler may block the loop before its process is killed


@dataclass(frozen=True, slots=True)
class ExecutorSettings:
    """Durations in seconds; see docs/reference/settings.md."""

    slots: int
    lease_seconds: float
    renew_seconds: float
    sweep_seconds: float
    poll_seconds: float
    drain_grace_seconds: float
    listen: bool
    pool: str = ""
    starved_share: float = 0.1
    stuck_seconds: float = STUCK_SECONDS
    loop_budget_seconds: float = LOOP_BUDGET_SECONDS
    outcome_log: Path | None = None
    outcome_log_bytes: int = 0
    outcome_log_days: float = 0.0


class ExecutorPump:
    """
    One process's executor: this pump and its HandlerLoop.

    The pump claims only jobs that it can start now, so an urgent job waits for a slot and never behind prefetched jobs.
    A lost database stops claiming, not the handlers: outcomes are kept and written after the reconnect.
    """

    loop_class = HandlerLoop
    looks_for_trouble = True

    def __init__(
        self, settings: ExecutorSettings, *, cluster_pid: int, is_orphan: Callable[[], bool] = lambda: False
    ) -> None:
        """
        Args:
            is_orphan: Returns whether the process that guards this process has died, for systems whose kernel does not
                signal that. The executor then drains and ends its process.
        """
        self.id = uuid.uuid4()
        self.settings = settings
        self.cluster_pid = cluster_pid
        self._is_orphan = is_orphan
        self._outcome_log = (
            OutcomeLog(
                settings.outcome_log,
                self.id,
                most_bytes=settings.outcome_log_bytes,
                days=settings.outcome_log_days,
            )
            if settings.outcome_log
            else None
        )
        self._spans: JobSpans | None = None
        if tracer := tracing.tracer():
            from .spans import JobSpans

            self._spans = JobSpans(tracer, executor_id=self.id, pool=settings.pool)
        self._pulse = executors.PULSES.join(self.id)
        self._trouble = LastingTrouble(logger)
        store = result_store()
        self._results = ResultWriter(store) if store else None
        self.loop = self.loop_class(
            slots=settings.slots,
            wake=self._wake,
            spans=self._spans,
            budget_seconds=settings.loop_budget_seconds,
            keeps_ends=self._outcome_log is not None,
            results=self._results,
            pulse=self._pulse,
        )
        self._slots = settings.slots
        self._width = AdaptiveConcurrency(settings.slots)
        self._role = Executor.Role.GENERAL
        self._owned: dict[UUID, ClaimedJob] = {}
        self._begun_up_to = 0  # the highest token of the jobs that it has begun
        self._calls = 0  # calls under way, each in a slot: jobs that leave together are one call
        self._turns = ClassTurns(settings.starved_share)
        self._gate = LaneGate(settings.pool)
        self._heads = ScanCursor()
        self._witness = RestoreDetector(self.id)
        self._parking = Parking()
        self._learning = CostSamples()
        self._keyring = Keyring()
        self._kinds = ServedKinds(self.id, pool=settings.pool)
        self._duties = Duties(
            self.id,
            sweep_seconds=settings.sweep_seconds,
            silent_seconds=settings.lease_seconds,
            stuck_seconds=settings.stuck_seconds,
            outcome_log=self._outcome_log,
            looks_for_trouble=self.looks_for_trouble,
        )
        self._policies: dict[str, Policy] | None = None  # None: to be read before they are needed
        self._hint = True  # there may be jobs to claim
        self._told = False  # a notification said that jobs were just submitted
        self._has_spare = False  # the last claim found fewer jobs than there were slots
        self._connected = False
        self._failing: set[str] = set()  # the steps of a cycle whose last try failed
        self._leases_lost = 0
        self._next = dict.fromkeys(("claim", "promote", "renew", "tick", "progress", "park"), 0.0)
        self._often = {
            "claim": settings.poll_seconds,
            "promote": PROMOTE_SECONDS,
            "tick": DUTY_SECONDS,
            "park": PARK_SECONDS,
        }
        self._met_at = float("-inf")  # when it last had something to do
        self._renewed_at = float("-inf")
        self._cycle_began_at = 0.0
        self._stopping = threading.Event()
        self._stop_at = float("inf")
        self._interrupted = False
        self._ears, self._mouth = os.pipe()
        os.set_blocking(self._ears, False)
        os.set_blocking(self._mouth, False)
        self._thread = threading.Thread(target=self._run, name="pump", daemon=True)

    def start(self) -> None:
        """Begin. Call this after the fork: threads, loop and connection belong to this process alone."""
        self.loop.start()
        if self._spans:
            self._spans.start()
        self._thread.start()

    def stop(self) -> None:
        """Claim no more, let running jobs end within the grace period, give back the others. Returns when done."""
        self._stopping.set()
        self._wake()
        self._thread.join()

    @property
    def may_judge(self) -> bool:
        """Whether it has been connected long enough for other executors' heartbeats and leases to be up to date."""
        return self._connected and time.monotonic() >= self._duties.rests_until

    def _run(self) -> None:
        tell_of("executor", lambda: {"executor": self.id})  # inherited by handlers' tasks: their logs name the executor
        # Behind a pooler, settings are local to each transaction: a shared session would carry them to other clients.
        with local_settings(None if self.settings.listen else PLANNING), between_rows(self._keep_leases):
            self._work()

    def _work(self) -> None:
        while not self._is_done():
            try:
                self._pulse.beat()
                self._log_ends()  # first, because while the database is away only the outcome log gets the outcomes
                self._connect()
                self._cycle()
                if not self._failing:
                    self._go_on()
                self._wait()
            except (OperationalError, InterfaceError, psycopg.OperationalError) as error:
                if isinstance(error.__cause__, psycopg.errors.DeadlockDetected | psycopg.errors.SerializationFailure):
                    logger.warning("executor %s: %s; the cycle is repeated", self.id, str(error).strip())
                else:
                    self._disconnected(error)
            except UnsuitableDatabase as error:
                self._pulse.tell_trouble(is_in_trouble=True)
                words = f"executor {self.id} takes no jobs: {error.message}"
                self._trouble.tell(words, words, level=logging.CRITICAL)
                self._rest(UNSUITABLE_SECONDS)
            except DatabaseError as error:
                self._pulse.tell_trouble(is_in_trouble=True)
                self._tell_failed(error, "a statement failed; the cycle is repeated")
                time.sleep(0.1)
            except Exception as error:  # noqa: BLE001
                # Go on after any error: a dead pump would keep its process from working and from being replaced.
                self._tell_failed(error, "unexpected error in the pump")
                time.sleep(RECONNECT_SECONDS)
        self._leave()

    def _is_done(self) -> bool:
        if self.loop.leaked and not self._stopping.is_set():
            logger.error(
                "executor %s lost %s slots to handlers that ignore their end; it renews itself",
                self.id,
                self.loop.leaked,
            )
            self._stopping.set()
        if not self._stopping.is_set() and self._is_orphan():
            logger.error("executor %s: the process that guards it is gone; it drains and ends", self.id)
            self._stopping.set()
        if not self._stopping.is_set():
            return False
        now = time.monotonic()
        if self._stop_at == float("inf"):
            self._stop_at = now + self.settings.drain_grace_seconds
        if now >= self._stop_at and not self._interrupted:
            self._interrupted = True
            self.loop.cancel(list(self._owned.values()), reason=STOPPING)
        return not self._owned or now >= self._stop_at + OVERRUN_SECONDS + RECONNECT_SECONDS

    def _connect(self) -> None:
        if self._connected:
            return
        ours: Any = connection
        ours.ensure_connection()
        # A new one listens to nothing, and its database may be another: the end of this one comes to _disconnected.
        ours.kept = ours.connection
        if self.settings.listen:
            ensure_session_is_ours()
            connection.connection.add_notify_handler(lambda note: self._hear(note.channel))
            with connection.cursor() as cursor:
                cursor.execute("; ".join(f"SET {name} = {value}" for name, value in PLANNING))
                for channel in Channel:
                    cursor.execute(f"LISTEN {channel.value}")
        ensure_projects_are_kept_apart()
        ensure_own_secret_key()
        ensure_pool(self.settings.pool)
        self._witness.refuse_the_past()
        self._role, self._slots = executors.register(
            self.id, cluster_pid=self.cluster_pid, slots=self.settings.slots, pool=self.settings.pool
        )
        self._compare_claims()
        if not self._trouble.lasts:  # after trouble, _go_on logs it once a whole cycle went well
            logger.info("executor %s (%s) is ready with %s slots", self.id, self._role, self._slots)
        self._connected = True
        self._hint = True
        self._next["renew"] = 0.0  # otherwise a database that was put back would keep this executor's old heartbeat
        self._meet()

    def _compare_claims(self) -> None:
        """Compare claims with a database that was away or replaced. Put off the sweep, as heartbeats may be old."""
        self._duties.put_off_sweep(time.monotonic() + self.settings.lease_seconds)
        compared = compare_claims(self.id, list(self._owned.values()), begun_up_to=self._begun_up_to)
        if any(compared):
            logger.warning(
                "executor %s: %s claims were cut off before they began and come back; of those that it had begun, and"
                " whose end the database lacks, %s run again and %s are buried as unknown",
                self.id,
                *compared,
            )

    def _go_on(self) -> None:
        self._pulse.tell_trouble(is_in_trouble=False)
        if (seconds := self._trouble.end()) is not None:
            words = "executor %s (%s) is ready with %s slots again, after %.0f s"
            logger.info(words, self.id, self._role, self._slots, seconds)

    def _tell_failed(self, error: Exception, what: str) -> None:
        kind = str(error).partition("\n")[0]  # other lines name the values of a row: each try would be a new trouble
        self._trouble.tell(f"{type(error)} {kind}", f"executor {self.id}: {what}", level=logging.ERROR, traceback=True)

    def _disconnected(self, error: Exception) -> None:
        self._pulse.tell_trouble(is_in_trouble=True)
        self._trouble.tell("away", f"executor {self.id} lost the database: {str(error).strip()}")
        self._connected = False
        try:
            connection.close()
        except (DatabaseError, psycopg.Error):
            connection.connection = None
        self._rest(RECONNECT_SECONDS)

    def _rest(self, seconds: float) -> None:
        if self._stopping.wait(seconds):
            time.sleep(LAST_RECONNECT_SECONDS)  # otherwise it would connect hundreds of times a second until it ends

    def _cycle(self) -> None:
        now = self._cycle_began_at = time.monotonic()
        # Behind a pooler, only renewing shows that the database was replaced by another one, whose leases have lapsed.
        if now >= self._next["renew"] or (not self.settings.listen and self._duties.is_sweep_due(now)):
            self._renew_in_time(now)
        self._take_due("tick", now, self._do_duties)
        self._keep_leases()
        self._take_due("promote", now, self._promote)
        self._take_apart("kinds", lambda _: self._kinds.tend(), now)
        self._keep_leases()
        # Note this before the jobs' outcomes are written: otherwise the jobs could run again beside other jobs.
        if held := self.loop.watch.collect():
            blocked_loop.note_held(held, executor_id=self.id)
        self._widen_or_narrow(now)
        self._flush_and_claim(now)
        self._keep_leases()
        self._take_due("park", now, self._park_in_time)

    def _take_due(self, name: str, now: float, step: Callable[[float], None]) -> None:
        if now >= self._next[name]:
            self._again(name, now)
            self._take_apart(name, step, now)

    def _take_apart(self, name: str, step: Callable[[float], None], now: float) -> None:
        """Take a step of a cycle. A fault in it, such as a row that cannot be changed, does not stop other steps."""
        try:
            step(now)
        except (OperationalError, InterfaceError, psycopg.OperationalError):
            raise
        except Exception as error:  # noqa: BLE001
            self._failing.add(name)
            self._bear(error, f"its step {name} failed; the others go on")
        else:
            self._failing.discard(name)

    def _bear(self, error: Exception, what: str) -> None:
        self._pulse.tell_trouble(is_in_trouble=True)
        self._tell_failed(error, what)

    def _do_duties(self, now: float) -> None:
        quiet = self._is_quiet(now)
        self._policies = None if quiet else finish.retry_policies()
        if self._duties.do(now, quiet=quiet):
            self._meet()  # other executors wait for the duties of this one: poll often
        self._learning.write(now)
        server_settings.write_noted()

    def _promote(self, now: float) -> None:
        promoted, next_due = claim.promote_due()
        self._again("promote", now, at_most=next_due)
        if promoted:
            self._hint = True
            self._meet()

    def _renew_in_time(self, now: float) -> None:
        if now - self._renewed_at > self.settings.lease_seconds - self.settings.renew_seconds:
            # The database was away, or this machine stood still: leases may have lapsed although their executors
            # live. Rescuing their jobs and killing them before they could renew would turn an outage into crashes.
            self._duties.put_off_sweep(now + self.settings.lease_seconds)
        self._next["renew"] = now + self.settings.renew_seconds
        self._renew()
        self._renewed_at = now

    def _keep_leases(self) -> None:
        """
        Renew leases in the middle of a cycle that takes long.

        On a slow connection, a cycle's hundred statements take longer than a lease. Without this, other executors would
        claim the jobs although they run, and this cluster's other executors would kill this process as stuck.
        """
        now = time.monotonic()
        self._pulse.beat(now)
        often = self.settings.renew_seconds / 2
        if now - self._cycle_began_at > often and now - self._renewed_at > often:
            self._renew_in_time(now)

    def _meet(self) -> None:
        """Note that there was something to do: there may be more, so poll often again."""
        self._met_at = now = time.monotonic()
        for name, seconds in self._often.items():
            self._next[name] = min(self._next[name], now + seconds)

    def _is_quiet(self, now: float) -> bool:
        """Whether there was nothing to do for a while, and notifications will announce new work."""
        idle = not self._owned and not self._gate.has_lanes
        return idle and self.settings.listen and now - self._met_at > SLEEP_AFTER_SECONDS

    def _again(self, name: str, now: float, *, at_most: float | None = None) -> None:
        seconds = max(self._often[name], SELDOM_SECONDS) if self._is_quiet(now) else self._often[name]
        self._next[name] = now + (seconds if at_most is None else min(seconds, at_most))

    def _widen_or_narrow(self, now: float) -> None:
        if self._width.note(late=self.loop.take_late(), now=now):
            slots = self._width.slots
            logger.warning("executor %s: calls began too late to be sent; it begins at most %s now", self.id, slots)
        if self._width.slots == 1:
            self.loop.sends_late = True

    def _park_in_time(self, now: float) -> None:
        if self._duties.has_time and not self._stopping.is_set():
            self._park(now)

    def _park(self, now: float) -> None:
        """Park a few jobs in lanes that have no room; later cycles park more."""
        begun = time.monotonic()
        most = FEW_ADOPTED_AT_ONCE
        if self._role == Executor.Role.QUARANTINE:
            most = ADOPTED_AT_ONCE
            with transaction.atomic():
                self._gate.look(wanted=0)  # a quarantine executor claims nothing from lanes, so no claim reads them
        adopted = self._parking.adopt(most=most)
        if adopted:
            self._gate.hint()
            self._meet()
        if adopted == most:
            self._next["park"] = now + ADOPT_AGAIN_SECONDS
            return
        self._parking.park(self._gate.waiting)
        if not self._parking.is_through:
            ended = time.monotonic()
            self._next["park"] = ended + rest_seconds(ended - begun)

    def _begin_the_new(self) -> None:
        """
        Begin the job that was just submitted, if it is the only ready job and so competes with no other job.

        Where slots are scarce or reading the ready jobs is slow, the job takes its turn with all others. It also does
        so where an outcome waits: the outcome may be a refusal, after which counters cool down before a call.
        """
        told, self._told = self._told, False
        is_at_rest = self._has_spare and self._free_slots() > 0 and self.loop.waiting_seconds is None
        if not (told and is_at_rest) or self._heads.is_dear:
            return
        _, claimed, credentials = self._write([], [], wanted=1, new=True)
        if claimed:
            self._begin(claimed, credentials)
            with transaction.atomic():
                self._gate.look(wanted=0)
            self._hint = self._told or self._gate.has_lanes or self._kinds.must_look

    def _flush_and_claim(self, now: float) -> None:
        self._begin_the_new()
        free = self._free_slots()
        wants_work = self._hint or now >= self._next_claim(now)
        outcomes: list[Outcome] = []
        notes: list[Progress] = []
        if self._flush_is_due(claiming=wants_work and free > 0) or (
            self.loop.has_progress and now >= self._next["progress"]
        ):
            self._next["progress"] = now + PROGRESS_SECONDS
            outcomes, notes = self.loop.collect()
        if self._takes_more():
            free += sum(self._owns(outcome.job) and _is_call(outcome.job) for outcome in outcomes)
        refused = [outcome for outcome in outcomes if isinstance(outcome, Failed) and outcome.failure.push_back]
        # After a refusal, no call is sent before the counters of the refused quota have cooled down.
        claims = wants_work and free > 0 and not refused
        if not outcomes and not notes and not claims:
            return
        try:
            self._log_ends()
            outcomes = self._cool_down(outcomes) if refused else outcomes
            self._note_caps(outcomes)
            # Writing outcomes locks some periods of budgets, and claiming locks other periods. If two executors did
            # both in one commit, they could deadlock.
            apart = claims and any(map(_is_paid_for, outcomes))
            self._hint &= not claims  # cleared before the claim: it may miss work that is announced from now on
            lost, claimed, credentials = self._write(outcomes, notes, wanted=free if claims and not apart else 0)
        except Exception:
            self._hint |= claims
            self.loop.put_back(outcomes, notes)
            raise
        self._let_go(outcomes, notes, lost)
        if apart:
            _, claimed, credentials = self._write([], [], wanted=free)
        if claims:
            # A claim that found one job, with room for more, took the last ready job. A second claim would only delay
            # the job's handler.
            self._hint |= len(claimed) >= min(free, 2) or self._gate.has_refused or self._kinds.must_look
            self._has_spare = len(claimed) < free
            self._again("claim", now)
        if claimed:
            self._begin(claimed, credentials)
        if refused:
            self._gate.hint()

    def _let_go(self, outcomes: list[Outcome], notes: list[Progress], lost: set[UUID]) -> None:
        if self._spans:
            self._spans.ended(outcomes)
        for outcome in outcomes:
            if self._owns(outcome.job):
                self._disown(outcome.job.id)
        self._kinds.refuse(_misfits(outcomes))
        self._learning.note(outcomes)
        self._drop({note.job.id for note in notes if note.job.id in lost and self._owns(note.job)})
        self._count_lost({work.job for work in (*outcomes, *notes) if work.job.id in lost})

    def _begin(self, claimed: list[ClaimedJob], credentials: Opened) -> None:
        self._meet()
        self._drop({job.id for job in claimed if job.id in self._owned})
        self._owned.update((job.id, job) for job in claimed)
        self._begun_up_to = max(self._begun_up_to, *(job.token for job in claimed))
        self._witness.note(claimed)
        self._calls += sum(map(_is_call, claimed))
        if self._outcome_log:
            self._outcome_log.begin(claimed)
        if self._spans:
            self._spans.begin()
        self.loop.carry_out(claimed, credentials)

    def _log_ends(self) -> None:
        if self._outcome_log:
            self._outcome_log.end(self.loop.take_ends())

    def _cool_down(self, outcomes: list[Outcome]) -> list[Outcome]:
        try:
            return quota_feedback.cool_down(outcomes, actor=f"executor:{self.id}")
        except Exception as error:  # otherwise one provider's statement would keep all outcomes unwritten
            raise_others(error)
            logger.exception("executor %s: a refusal cannot be stored; its counters do not cool down", self.id)
            return outcomes

    def _note_caps(self, outcomes: list[Outcome]) -> None:
        try:
            provider_quotas.note_caps(provider_quotas.statements_of(outcomes).values(), actor=f"executor:{self.id}")
        except Exception as error:  # as in _cool_down
            raise_others(error)
            logger.exception("executor %s: a stated cap cannot be stored", self.id)

    def _next_claim(self, now: float) -> float:
        if self._role == Executor.Role.QUARANTINE:  # a quarantine executor claims nothing from lanes
            return self._next["claim"]
        return min(self._next["claim"], now + self._gate.next_look_seconds)

    def _free_slots(self) -> int:
        return min(self._slots, self._width.slots) - self._calls if self._takes_more() else 0

    def _takes_more(self) -> bool:
        """Whether a claimed job would begin. While a handler holds the loop, other executors should claim the job."""
        return not (self._stopping.is_set() or self.loop.watch.is_held)

    def _disown(self, job_id: UUID) -> ClaimedJob:
        job = self._owned.pop(job_id)
        self._calls -= _is_call(job)
        return job

    def _write(
        self, outcomes: list[Outcome], notes: list[Progress], *, wanted: int, new: bool = False
    ) -> tuple[set[UUID], list[ClaimedJob], Opened]:
        """
        Flush and claim in one commit, because a queue's throughput is bound by its commits.

        Returns:
            The ids of lost jobs, the claimed jobs, and the credentials that they name. Credentials are opened before
            the commit: otherwise the lease of a job that is claimed but cannot begin would be renewed for ever.
        """
        if outcomes or notes:
            self._meet()
        began = time.time_ns()
        try:
            with transaction.atomic():
                lost: set[UUID] = set()
                if outcomes or notes:
                    lost = finish.record_outcomes(outcomes, notes, policies=self._retry_policies()).lost
                settlements = finish.settlements_of(outcomes, provider_quotas.statements_of(outcomes))
                if wanted:
                    claimed = self._claim_new() if new else self._claim(wanted, settlements)
                    if self._spans:
                        self._spans.find(claimed, began)
                    return lost, claimed, self._keyring.open(claimed)
                decide.settle(settlements)
                return lost, [], {}
        except Exception as error:
            if not outcomes:
                raise
            raise_others(error)
            logger.exception("executor %s: outcomes are written one by one, because together they fail", self.id)
            return self._write_singly(outcomes), [], {}

    def _retry_policies(self) -> dict[str, Policy]:
        if self._policies is None:
            self._policies = finish.retry_policies()
        return self._policies

    def _write_singly(self, outcomes: list[Outcome]) -> set[UUID]:
        lost = record_singly(outcomes, policies=self._retry_policies())
        for outcome in outcomes:
            try:
                decide.settle(finish.settlements_of([outcome]))
            except Exception as error:  # as in _cool_down
                raise_others(error)
                logger.exception("executor %s: what a call used cannot be settled; its estimate stays", self.id)
        return lost

    def _flush_is_due(self, *, claiming: bool) -> bool:
        waiting = self.loop.waiting_seconds
        if waiting is None:
            return False
        return claiming or waiting >= COMPANY_SECONDS or self.loop.active == 0 or self._stopping.is_set()

    def _claim(self, wanted: int, settlements: list[decide.Settlement]) -> list[ClaimedJob]:
        lease = self.settings.lease_seconds
        if self._role == Executor.Role.QUARANTINE:
            return claim.claim_suspect(
                self.id, lease_seconds=lease, kinds=self._kinds, pool=self.settings.pool, settlements=settlements
            )
        if settlements:
            self._gate.hint()  # room for a call in flight, or tokens, may have come back
        return claim.claim_jobs(
            self.id,
            wanted=wanted,
            lease_seconds=lease,
            turns=self._turns,
            gate=self._gate,
            heads=self._heads,
            kinds=self._kinds,
            pool=self.settings.pool,
            settlements=settlements,
        )

    def _claim_new(self) -> list[ClaimedJob]:
        return claim.claim_new(
            self.id,
            lease_seconds=self.settings.lease_seconds,
            turns=self._turns,
            gate=self._gate,
            kinds=self._kinds,
            pool=self.settings.pool,
        )

    def _renew(self) -> None:
        if self._witness.refuse_the_past():
            self._compare_claims()
        owned = {job.id: job.token for job in self._owned.values()}
        lost = claim.renew_leases(owned, lease_seconds=self.settings.lease_seconds)
        self._count_lost({self._owned[job_id] for job_id in lost})
        self._drop(lost)
        known = executors.heartbeat(
            self.id,
            in_flight=self._calls,
            loop_lag_seconds=self.loop.lag_seconds,
            draining=self._stopping.is_set(),
            lost=self._leases_lost,
        )
        self._leases_lost = 0
        if self._results:
            with self._results.taken_figures() as figures:
                add_figures(figures)
        if not known:  # the executor's row was deleted during a long silence: register again
            self._connected = False

    def _drop(self, lost: set[UUID]) -> None:
        """Interrupt the handlers of jobs that this executor no longer owns, and drop their results."""
        if lost:
            jobs = [self._disown(job_id) for job_id in lost]
            if self._spans:
                self._spans.forget(jobs)
            self.loop.cancel(jobs, reason=CANCELLED)
            # Free the calls in flight that the jobs hold. How much the jobs have used until now is unknown.
            decide.settle([decide.Settlement(job.holder) for job in jobs if job.holds])

    def _count_lost(self, jobs: set[ClaimedJob]) -> None:
        if jobs:
            self._leases_lost += len(finish.find_lost(jobs))

    def _owns(self, job: ClaimedJob) -> bool:
        """Whether this executor owns the job by this claim, and not by another claim of the same job."""
        held = self._owned.get(job.id)
        return held is not None and held.token == job.token

    def _hear(self, channel: str) -> None:
        self._meet()
        if channel == Channel.CANCEL:
            self._next["renew"] = 0.0  # renewing finds out which jobs this executor no longer owns
            return
        if channel == Channel.LIMITS:
            catalogue.forget()
        if self._role != Executor.Role.QUARANTINE:  # a job that was just submitted is no suspect
            self._hint = self._told = True
            self._gate.hint()

    def _wait(self) -> None:
        """Sleep until the next task is due, a handler ends, or the database sends a notification."""
        now = time.monotonic()
        until = min(self._next["renew"], self._next["tick"], self._next["promote"], self._next["park"])
        if self._free_slots() > 0:
            until = now if self._hint else min(until, self._next_claim(now))
        if (waiting := self.loop.waiting_seconds) is not None:
            until = now if self.loop.active == 0 else min(until, now - waiting + COMPANY_SECONDS)
        if self.loop.has_progress:
            until = min(until, self._next["progress"])
        if self._stopping.is_set():
            until = min(until, now + 0.1)
        listening = [connection.connection.fileno()] if self.settings.listen else []
        ready = wait_readable([self._ears, *listening], seconds=max(0.0, until - now))
        if self._ears in ready:
            _drain(self._ears)
        if listening and listening[0] in ready:
            # The notify handler gets notifications that come while a statement runs; all others are read here.
            raw = connection.connection.pgconn
            raw.consume_input()
            while note := raw.notifies():
                self._hear(note.relname.decode())

    def _wake(self) -> None:
        with suppress(BlockingIOError):  # the pipe is full of wake-ups already
            os.write(self._mouth, b".")

    def _leave(self) -> None:
        self._close_loop()
        try:
            self._sign_off()
        except (DatabaseError, psycopg.Error):
            logger.warning("executor %s could not deregister; its row is forgotten later", self.id)
        connection.close()
        if self.loop.has_lost_threads or self._is_orphan():
            os._exit(0)  # a normal exit would wait for ever, for lost threads or for the next task of the cluster

    def _close_loop(self) -> None:
        self._duties.stop()
        self.loop.stop()
        if self._spans:
            self._spans.stop()
        if self._outcome_log:
            self._log_ends()
            self._outcome_log.close()
        self._pulse.leave()

    def _sign_off(self) -> None:
        self._learning.write(float("inf"))
        server_settings.write_noted()
        if self._results:
            with self._results.taken_figures() as figures:
                add_figures(figures)
        executors.deregister(self.id)
        notify(Channel.READY)  # other executors can claim the jobs that this one gave back


def _drain(pipe: int) -> None:
    with suppress(BlockingIOError):
        while os.read(pipe, 4096):
            pass


def _misfits(outcomes: list[Outcome]) -> set[UUID]:
    return {outcome.job.id for outcome in outcomes if isinstance(outcome, GivenBack) and outcome.misfit}


def _is_paid_for(outcome: Outcome) -> bool:
    """Whether a budget's periods may be locked when an outcome is written."""
    return outcome.job.bound is not None or (outcome.usage is not None and bool(budgets_of(outcome.job.project)))


def _is_call(job: ClaimedJob) -> bool:
    """Whether a job occupies a slot: of jobs that leave in one call, only the first does."""
    return job.group is None or job.group == job.id
