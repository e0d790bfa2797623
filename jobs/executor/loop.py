"""The handler side of an executor: an asyncio loop in a thread of its own, which never waits for the database."""

from __future__ import annotations

import asyncio
import json
import logging
import math
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from contextvars import copy_context
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any, cast
from uuid import UUID, uuid4

import pydantic_core
from django.conf import settings
from django.db import close_old_connections, transaction
from pydantic import ValidationError

from jobs.classify import Failure, clean, failure_of, with_push_back
from jobs.features.budget_holds.spend import told_once
from jobs.features.results.writer import ResultWriter, Writing
from jobs.features.served_kinds.served_kinds import kept_closed, refusal_of, version_of
from jobs.handlers.errors import UNTOLD, ProviderError, TimeLimitPassed, Used, alone_in, time_limit
from jobs.handlers.registry import (
    Answer,
    Bisect,
    Continue,
    Done,
    EndedBatch,
    Handler,
    JobCancelled,
    NotOurs,
    Poison,
    RunningJob,
    check_answer,
    close_handlers,
    find_handler,
)
from jobs.services.finish.claimed import ClaimedJob
from jobs.services.finish.finish import complete_here
from jobs.services.finish.outcomes import Failed, GivenBack, Outcome, Progress, Succeeded
from jobs.services.finish.result_text import partial_text, result_text
from jobs.tracebacks import secrets_of
from queueops.core.errors import QueueOpsError
from queueops.core.outbound.client import CallNotes, call_notes
from queueops.core.processes.pulses import OwnPulse
from queueops.core.sealing import SealedAway
from queueops.core.telemetry.logs import tell_of
from queueops.tenancy.secrets.credentials import OpenCredential
from ratelimits.costs import Usage
from ratelimits.rate_headers import StatedQuota, read_quotas

from .attempt_log import KEEPER, AttemptLog, current_log
from .loop_watchdog import LoopWatch, tell_whose

if TYPE_CHECKING:
    from .spans import JobSpans

logger = logging.getLogger(__name__)

TICK_SECONDS = 0.5
LOOP_BUDGET_SECONDS = 2.0  # for one step of a handler: while the step lasts, no other job in the loop goes on
OVERRUN_SECONDS = 5.0  # how long a handler may ignore its cancellation before its slot is written off
OUT_OF_MEMORY_EXIT = 137  # the exit code of a process that the kernel kills

CANCELLED = "cancelled"
STOPPING = "stopping"
HALF = "#"  # begins the suffix that bisecting adds to a coalesce key


Opened = OpenCredential | QueueOpsError


@dataclass(slots=True)
class _Run:
    """One job in the loop."""

    job: ClaimedJob
    begun: float
    credential: Opened | None = None
    group: Sequence[_Run] = ()  # the runs that share its call, itself included
    task: asyncio.Task[None] | None = None
    running: RunningJob[Any] | None = None
    service: str = ""
    retry: str = "moderate"
    repeatable: bool = False
    ending: str = ""  # why it is cancelled from outside: CANCELLED or STOPPING; empty: it is not
    notes: CallNotes = field(default_factory=CallNotes)  # the runs of a group share one object
    leads: bool = True  # its outcome lists the calls; in a group, only the first run's does
    timed_out: bool = False
    deadline: float = field(default=float("inf"))
    stored: Succeeded | None = None  # set once its handler's own transaction has completed the job
    log: AttemptLog = field(default_factory=AttemptLog)  # in a group, only the first run's has lines

    @property
    def calls(self) -> list[tuple[int, int]]:
        return self.notes.answers if self.leads else []


class HandlerLoop:
    """
    Carries out claimed jobs and collects their outcomes.

    Threads: `start`, `carry_out`, `cancel`, `collect` and the properties are for the pump's thread; the rest runs on
    the loop's own. The loop calls `wake` when there is something to collect; `wake` must be cheap and thread-safe.
    """

    def __init__(
        self,
        *,
        slots: int,
        wake: Callable[[], None],
        budget_seconds: float = LOOP_BUDGET_SECONDS,
        keeps_ends: bool = False,
        spans: JobSpans | None = None,
        results: ResultWriter | None = None,
        pulse: OwnPulse | None = None,
    ) -> None:
        self.slots = slots
        self.watch = LoopWatch(budget_seconds=budget_seconds, wake=wake, pulse=pulse)
        self._pulse = pulse
        self.wake = wake
        self.last_tick = time.monotonic()
        self.leaked = 0  # handlers that ignored their cancellation: their threads can't be taken back
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._serve, name="handlers", daemon=True)
        self._threads = ThreadPoolExecutor(max_workers=slots, thread_name_prefix="handler")
        # By job and fencing token: a job that was taken away and claimed again may begin before its former run ends.
        self._runs: dict[tuple[UUID, int], _Run] = {}
        self._strays: dict[Future[Answer], float] = {}  # threads whose job has ended, and until when each may go on
        self._outcomes: deque[Outcome] = deque()
        self._ends: deque[Outcome] | None = deque() if keeps_ends else None
        self._spans = spans
        self._results = results
        self._progress: dict[UUID, Progress] = {}
        self._first_outcome_at: float | None = None
        # Whether late calls are sent, too, until a call is in time. True once calls are late even one at a time: all
        # work would stop if late calls were not sent.
        self.sends_late = False
        self._was_late = False

    def start(self) -> None:
        logging.getLogger().addHandler(KEEPER)
        self._thread.start()

    def carry_out(self, jobs: Sequence[ClaimedJob], credentials: Mapping[str, Opened] | None = None) -> None:
        """
        Begin these jobs. Each ends in exactly one outcome, unless `cancel` drops it.

        Args:
            credentials: The credentials that the jobs name, by name; an error for a credential that cannot be opened.
        """
        self._loop.call_soon_threadsafe(self._begin, jobs, credentials or {})

    def cancel(self, jobs: Sequence[ClaimedJob], *, reason: str = CANCELLED) -> None:
        """Interrupt jobs: CANCELLED drops their outcome, STOPPING gives them back."""
        self._loop.call_soon_threadsafe(self._interrupt, jobs, reason)

    def collect(self) -> tuple[list[Outcome], list[Progress]]:
        """Return the outcomes and the progress since the last call."""
        self._first_outcome_at = None
        outcomes = [self._outcomes.popleft() for _ in range(len(self._outcomes))]
        notes, self._progress = self._progress, {}
        return outcomes, list(notes.values())

    def take_ends(self) -> list[Outcome]:
        """Return the outcomes since the last call, collected or not; empty if made without `keeps_ends`."""
        return [self._ends.popleft() for _ in range(len(self._ends))] if self._ends else []

    def take_late(self) -> bool:
        """Say whether a call was too late to be sent since the last `take_late`: the loop lags behind the claims."""
        was_late, self._was_late = self._was_late, False
        return was_late

    def put_back(self, outcomes: Sequence[Outcome], notes: Sequence[Progress]) -> None:
        """Keep outcomes and progress that could not be written, for the next `collect`."""
        self._outcomes.extendleft(reversed(outcomes))
        self._progress = {note.job.id: note for note in notes} | self._progress

    @property
    def waiting_seconds(self) -> float | None:
        """How long the oldest uncollected outcome has waited; None: no outcome waits."""
        first = self._first_outcome_at
        if first is None:
            return 0.0 if self._outcomes else None
        return time.monotonic() - first

    @property
    def has_progress(self) -> bool:
        return bool(self._progress)

    @property
    def active(self) -> int:
        """Jobs without an outcome yet."""
        return len(self._runs)

    @property
    def has_lost_threads(self) -> bool:
        """Whether a handler still runs in a thread although its job has ended; the process can't end by itself."""
        stuck = self._results is not None and self._results.is_stuck
        return stuck or self.leaked > 0 or any(not call.done() for call in self._strays)

    @property
    def lag_seconds(self) -> float:
        """How late the loop's heartbeat is: a handler that blocks the loop shows here."""
        return max(0.0, time.monotonic() - self.last_tick - TICK_SECONDS)

    def stop(self) -> None:
        """Close what handlers keep open, and stop the loop. Call it when no job is left."""
        self.watch.stop()
        closing = asyncio.run_coroutine_threadsafe(close_handlers(), self._loop)
        with suppress(TimeoutError):  # otherwise a handler that blocks the loop would keep the process from ending
            closing.result(timeout=5)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(timeout=5)
        if not self._loop.is_running():
            self._loop.close()
        self._threads.shutdown(wait=False, cancel_futures=True)
        if self._results is not None:
            self._results.stop()

    def _serve(self) -> None:
        asyncio.set_event_loop(self._loop)
        self.watch.start()
        self._loop.set_task_factory(self.watch.make_task)
        self._loop.call_soon(self._tick)
        self._loop.run_forever()

    def _tick(self) -> None:
        self.last_tick = time.monotonic()
        if self._pulse:
            self._pulse.tick(self.last_tick)
        for run in [run for run in self._runs.values() if run.deadline < self.last_tick]:
            self._write_off(run)
        for call, deadline in list(self._strays.items()):
            if call.done():
                del self._strays[call]
            elif deadline < self.last_tick:
                logger.error("a synchronous handler ignores its end; its thread is lost")
                self.leaked += 1
                del self._strays[call]
        self._loop.call_later(TICK_SECONDS, self._tick)

    def _begin(self, jobs: Sequence[ClaimedJob], credentials: Mapping[str, Opened]) -> None:
        now = time.monotonic()
        groups: dict[UUID, list[_Run]] = {}
        for job in jobs:
            run = self._runs[job.id, job.token] = _Run(job, now, credentials.get(job.credential or ""))
            if job.coalesce_key is None:
                tell_whose([job])
                run.task = self._loop.create_task(self._carry_out(run))
            else:
                groups.setdefault(job.group or job.id, []).append(run)
        for runs in groups.values():
            tell_whose([run.job for run in runs])
            task = self._loop.create_task(self._carry_out_group(runs))
            for run in runs:
                run.task, run.group = task, runs

    def _interrupt(self, jobs: Sequence[ClaimedJob], reason: str) -> None:
        for job in jobs:
            run = self._runs.get((job.id, job.token))
            if run is None or run.task is None or run.ending:
                continue
            if reason == CANCELLED and any(other.ending != CANCELLED for other in run.group if other is not run):
                run.ending = reason  # other jobs need the call, so it goes on; this job gets no outcome
                self._end(run, None)
                continue
            run.ending = reason
            run.deadline = time.monotonic() + OVERRUN_SECONDS
            if run.running is not None:
                run.running.cancelled.set()
            run.task.cancel()
            if run.running is None:
                # A task that is cancelled before its first step never runs, so it would never end this job.
                self._end(run, self._interrupted(run))

    async def _carry_out(self, run: _Run) -> None:
        outcome: Outcome | None
        call_notes.set(run.notes)
        tell_of("job", partial(_facts, run.job))
        current_log.set(run.log)
        if self._spans:
            self._spans.begin_calls([run.job])
        try:
            outcome = _unsent(run) if self._is_too_late([run]) else self._answered(run, await self._call(run))
        except BaseException as error:  # noqa: BLE001 - sys.exit() too would end the loop, and every job in it
            outcome = self._broken(run, error)
        [outcome] = await self._with_places([run], [outcome])
        self._end(run, outcome)

    async def _carry_out_group(self, runs: Sequence[_Run]) -> None:
        """Make one call for several jobs. Find out which job makes the call fail, so that only that job fails."""
        if self._is_too_late(runs):
            for run in runs:
                self._end(run, _unsent(run))
            return
        bound = next((run.job.bound for run in runs if run.job.bound is not None), None)
        ready = self._ready(runs)
        if not ready:
            return
        outcomes: list[Outcome | None]
        for run in ready[1:]:
            run.notes, run.leads = ready[0].notes, False
        call_notes.set(ready[0].notes)
        tell_of("job", partial(_facts, ready[0].job))
        current_log.set(ready[0].log)
        if self._spans:
            self._spans.begin_calls([run.job for run in ready])
        try:
            handler = find_handler(ready[0].job.kind)
            async with time_limit(handler.timeout.total_seconds()):
                answers = await handler.function([run.running for run in ready])
            outcomes = [self._ended(run, answer) for run, answer in zip(ready, answers, strict=True)]
        except Poison as poison:
            outcomes = self._without_poison(ready, poison.errors)
        except Bisect:
            outcomes = _halves(ready)
        except BaseException as error:  # noqa: BLE001 - as in _carry_out
            outcomes = self._broken_together(ready, error)
        wanted = [
            outcome if (run.job.id, run.job.token) in self._runs else None
            for run, outcome in zip(ready, outcomes, strict=True)
        ]
        told = await self._with_places(ready, told_once(wanted, bound=bound))
        for run, outcome in zip(ready, told, strict=True):
            self._end(run, outcome)

    async def _with_places(self, runs: Sequence[_Run], outcomes: Sequence[Outcome | None]) -> Sequence[Outcome | None]:
        """Write large results to the result store, all at once; the outcomes then refer to them."""
        if self._results is None:
            return outcomes
        for run in runs:
            run.deadline = time.monotonic() + settings.QUEUEOPS.result_store_seconds + OVERRUN_SECONDS
        begun = [
            self._results.begin(outcome.job, outcome.result)
            if isinstance(outcome, Succeeded) and run.stored is None
            else None
            for run, outcome in zip(runs, outcomes, strict=True)
        ]
        return [
            outcome if writing is None else await self._with_place(self._results, run, outcome, writing)
            for run, outcome, writing in zip(runs, outcomes, begun, strict=True)
        ]

    async def _with_place(
        self, results: ResultWriter, run: _Run, outcome: Outcome | None, writing: Writing
    ) -> Outcome | None:
        if not isinstance(outcome, Succeeded) or outcome.result is None:
            return outcome
        try:
            text = await results.finish(writing, run.job, outcome.result)
        except Exception as error:  # noqa: BLE001 - as in _carry_out
            return self._told(outcome, self._broken(run, error))
        return None if run.ending == CANCELLED else replace(outcome, result=text)

    @staticmethod
    def _told(outcome: Succeeded | GivenBack, broken: Outcome | None) -> Outcome | None:
        """Return the failure of a call that succeeded but whose result could not be kept; the call's cost stays."""
        if not isinstance(broken, Failed):
            return broken
        return replace(broken, service="", cost=outcome.cost, usage=outcome.usage, stated=outcome.stated)

    def _ready(self, runs: Sequence[_Run]) -> list[_Run]:
        """Return the jobs of a group that the call can be made for. End the others, without the call's cost bound."""
        ready, broken = [], []
        for run in runs:
            if run.ending:
                continue  # cancelled before the call began
            try:
                self._prepare(run)
                ready.append(run)
            except BaseException as error:  # noqa: BLE001 - as in _carry_out
                broken.append((run, self._broken(run, error)))
        for run, outcome in broken:
            if ready and outcome is not None:
                outcome = replace(outcome, job=outcome.job._replace(bound=None))  # noqa: PLW2901 - without its bound
            self._end(run, outcome)
        return ready

    def _without_poison(self, runs: Sequence[_Run], errors: Mapping[int, ProviderError]) -> list[Outcome | None]:
        if errors.keys().isdisjoint(range(len(runs))):  # no job is named: sent again, the call would fail again
            return self._broken_together(runs, next(iter(errors.values())))
        return [
            self._broken(run, errors[place])
            if place in errors
            else GivenBack(run.job, "sent again without another", cost=0)  # providers do not count refused calls
            for place, run in enumerate(runs)
        ]

    def _broken_together(self, runs: Sequence[_Run], error: BaseException) -> list[Outcome | None]:
        """Return the outcomes of a call that failed as a whole. The first states what the call used: it was one."""
        first, *others = [self._broken(run, error) for run in runs]
        if getattr(error, "used", UNTOLD) == UNTOLD:
            return [first, *others]
        return [first, *(replace(one, cost=0, usage=None) if isinstance(one, Failed) else one for one in others)]

    def _is_too_late(self, runs: Sequence[_Run]) -> bool:
        """Whether a call is too late to be sent: its provider would count it in a later window than our limits do."""
        send_by = min((run.job.send_by for run in runs if run.job.send_by is not None), default=None)
        if send_by is None:
            return False
        if time.monotonic() <= send_by:
            self.sends_late = False
            return False
        self._was_late = True
        return not self.sends_late

    def _ended(self, run: _Run, answer: Answer | BaseException) -> Outcome | None:
        """Return the outcome of one job of a group's call; a result that cannot be kept fails only its own job."""
        try:
            return self._broken(run, answer) if isinstance(answer, BaseException) else self._answered(run, answer)
        except Exception as error:  # noqa: BLE001 - as in _carry_out
            return self._broken(run, error)

    def _answered(self, run: _Run, answer: Answer) -> Outcome | None:
        check_answer(answer)
        if isinstance(answer, Continue):
            cost = _cost(run, _told_cost(answer))
            usage = _usage(run, answer.usage)
            back = GivenBack(
                run.job, clean(answer.message), None, cost, calls=run.calls, usage=usage, stated=_stated(run)
            )
            try:
                return replace(back, partial=partial_text(answer.partial))
            except Exception as error:  # noqa: BLE001 - as in _carry_out
                return self._told(back, self._broken(run, error))
        cost = _cost(run, _told_cost(answer)) if answer else None
        known = _cost(run, answer.known_cost) if answer else None
        usage = _usage(run, answer.usage) if answer else None
        done = Succeeded(
            run.job, run.service, None, self._elapsed_ms(run), cost, run.calls, known, usage=usage, stated=_stated(run)
        )
        try:
            done.result = result_text(answer.result if answer else None)
        except Exception as error:  # noqa: BLE001 - as in _carry_out
            return self._told(done, self._broken(run, error))
        return done

    def _broken(self, run: _Run, error: BaseException) -> Outcome | None:
        """Return the outcome of a job whose handler raised an exception."""
        error = alone_in(error, repeatable=run.repeatable)
        if isinstance(error, asyncio.CancelledError | JobCancelled):
            return self._interrupted(run)
        if isinstance(error, MemoryError):
            # The process may be damaged. Exiting counts a crash for each of its jobs, and after a second crash the
            # guilty job runs in quarantine.
            logger.critical("out of memory while carrying out job %s (%s)", run.job.id, run.job.kind)
            os._exit(OUT_OF_MEMORY_EXIT)
        if isinstance(error, _InvalidPayload | SealedAway):
            return _unread(run.job, error)
        if isinstance(error, TimeLimitPassed):
            return self._failed(run, self._timeout(run))
        if isinstance(error, pydantic_core.PydanticSerializationError):
            return self._failed(run, Failure("result_not_json", type(error).__qualname__, clean(str(error))))
        if isinstance(error, QueueOpsError) and error is run.credential:
            return self._failed(run, Failure(error.code, type(error).__qualname__, clean(error.message), "refused"))
        return self._raised(run, error)

    def _raised(self, run: _Run, error: BaseException) -> Failed:
        try:
            return self._failed(run, failure_of(error, secrets_of(run.credential)), used=getattr(error, "used", UNTOLD))
        except Exception as fault:  # noqa: BLE001 - its class is the handler's code; without an outcome its slot is lost
            message = f"{type(error).__qualname__}, which cannot be described: {type(fault).__qualname__}"
            return self._failed(run, Failure("handler_error", type(error).__qualname__[:200], clean(message)))

    def _prepare(self, run: _Run) -> tuple[Handler, RunningJob[Any]]:
        """Read the payload and make the handler's argument; raises errors that _broken understands."""
        job = run.job
        handler = find_handler(job.kind)
        run.retry = handler.retry
        if job.closed_by:
            raise SealedAway(job.closed_by)
        try:
            payload = handler.schema.validate_json(job.payload)
            if job.fallback_step:
                payload = _another_way(handler, payload, job.fallback_step)
        except ValidationError as error:
            raise _InvalidPayload(error) from None
        run.service = handler.service_of(payload) if handler.calls_out else ""
        run.repeatable = handler.is_repeatable(payload)
        if isinstance(run.credential, QueueOpsError):
            raise run.credential
        running = run.running = RunningJob(
            id=job.id,
            payload=payload,
            project=job.project,
            user_id=job.user_id,
            effect_key=job.effect_key,
            attempt=job.retry_count + 1,
            report=lambda percent, message: self._note(run, percent, message),
            say=run.log.add,
            end=lambda result: self._complete_here(run, result),
            cost=job.cost,
            credential=run.credential,
            partial=None if job.partial is None else json.loads(job.partial),
            fallback_step=job.fallback_step,
            fallback_reason=job.fallback_reason,
            payload_text=job.payload,
            ended_batch=EndedBatch.read(job.ended_batch),
        )
        run.deadline = run.begun + handler.timeout.total_seconds() + OVERRUN_SECONDS
        return handler, running

    def _complete_here(self, run: _Run, result: Any) -> None:
        """Complete the job in the handler's thread, and in the transaction that it has open there."""
        log = run.log.kept(secrets_of(run.credential)) if run.log else ()
        text, elapsed_ms = result_text(result), self._elapsed_ms(run)
        if self._results is not None:
            text = self._results.write(run.job, text)
        done = Succeeded(run.job, run.service, text, elapsed_ms, calls=run.calls, log=log, stored=True)
        if not transaction.get_connection().in_atomic_block:
            raise transaction.TransactionManagementError("job.complete() needs a transaction")
        if run.ending or not complete_here(done):
            raise NotOurs
        transaction.on_commit(lambda: setattr(run, "stored", done))

    async def _call(self, run: _Run) -> Answer:
        handler, running = self._prepare(run)
        limit = self._loop.call_later(handler.timeout.total_seconds(), _time_out, run)
        try:
            if handler.coalesce:  # the job leaves alone, or was submitted before its kind coalesced
                [answer] = await handler.function([running])
                if isinstance(answer, Exception):
                    raise answer
                return cast("Answer", answer)
            if handler.is_async:
                return cast("Answer", await handler.function(running))
            return await self._call_in_thread(handler, running)
        except asyncio.CancelledError:
            if run.timed_out and run.task is not None and run.task.uncancel() == 0:
                raise TimeLimitPassed from None
            raise
        finally:
            limit.cancel()

    async def _call_in_thread(self, handler: Handler, running: RunningJob[Any]) -> Answer:
        call = self._threads.submit(copy_context().run, _call_sync, handler, running)
        try:
            return await asyncio.wrap_future(call)
        except asyncio.CancelledError:
            if not call.cancel():  # the thread goes on until the handler checks whether it is cancelled
                self._strays[call] = time.monotonic() + OVERRUN_SECONDS
            raise
        except TimeoutError as error:  # asyncio puts a new one, without a traceback, in the place of the handler's own
            raise call.exception() or error from None
        finally:
            del call  # breaks a reference cycle: an exception in the future refers to this frame

    def _interrupted(self, run: _Run) -> Outcome | None:
        if run.ending == CANCELLED:
            return None
        if not run.ending:
            return self._failed(run, Failure("handler_error", "CancelledError", "the handler cancelled itself"))
        if run.repeatable or run.running is None:
            return GivenBack(run.job, "its executor stops", cost=0 if run.running is None else None)
        message = "its executor stopped while the call was under way"
        return self._failed(run, Failure("outcome_unknown", "interrupted", message))

    def _timeout(self, run: _Run) -> Failure:
        if run.running is not None:
            run.running.cancelled.set()
        return Failure("timeout", "TimeoutError", f"no end after {self._elapsed_ms(run) / 1000:.1f} s")

    def _failed(self, run: _Run, failure: Failure, *, used: Used = UNTOLD) -> Failed:
        failure = with_push_back(failure, run.notes.refusal)
        return Failed(
            run.job,
            run.service,
            run.retry,
            run.repeatable,
            failure,
            self._elapsed_ms(run),
            run.calls,
            cost=_cost(run, used[0]),
            usage=_usage(run, used[1]),
        )

    def _write_off(self, run: _Run) -> None:
        """Give up on a handler that ignores its cancellation. Its thread stays busy: the process must be replaced."""
        logger.error("job %s (%s) ignores its cancellation; its slot is lost", run.job.id, run.job.kind)
        self.leaked += 1
        self._end(run, None if run.ending == CANCELLED else self._failed(run, self._timeout(run)))

    def _end(self, run: _Run, outcome: Outcome | None) -> None:
        if self._runs.pop((run.job.id, run.job.token), None) is None:
            return  # the handler was written off before
        run.running, run.group = None, ()  # break reference cycles: the run would wait for the garbage collector
        if run.stored is not None:  # the job is completed, whatever happened after the commit
            outcome = replace(outcome, stored=True) if isinstance(outcome, Succeeded) else run.stored
        if self._spans:
            self._spans.end_call(run.job, outcome)
        self.watch.end(run.job, comes_back=isinstance(outcome, Failed | GivenBack))
        if outcome is not None:
            if run.log:
                outcome = replace(outcome, log=run.log.kept(secrets_of(run.credential)))
            if self._ends is not None:
                self._ends.append(outcome)
            self._outcomes.append(outcome)
            if self._first_outcome_at is None:
                self._first_outcome_at = time.monotonic()
                self.wake()
            elif not self._runs:
                self.wake()
        elif not self._runs:
            self.wake()

    def _note(self, run: _Run, percent: int, message: str) -> None:
        if not run.ending:  # otherwise the note would overwrite the progress of the job's next run
            self._progress[run.job.id] = Progress(run.job, percent, clean(message))

    def _elapsed_ms(self, run: _Run) -> float:
        return (time.monotonic() - run.begun) * 1000


def _time_out(run: _Run) -> None:
    """Time a call out as asyncio.timeout does, in a third of the time that asyncio.timeout takes."""
    run.timed_out = True
    if run.task is not None:
        run.task.cancel()


def _facts(job: ClaimedJob) -> dict[str, Any]:
    """The fields that log lines of a job's handler get."""
    return {"job": job.id, "kind": job.kind, "batch": job.batch_id, "project": job.project}


def _unread(job: ClaimedJob, error: _InvalidPayload | SealedAway) -> GivenBack:
    if isinstance(error, SealedAway):
        return GivenBack(job, kept_closed(error.key), cost=0, closed=True)
    refusal = refusal_of(version_of(find_handler(job.kind)))
    return GivenBack(job, clean(refusal + str(error)), misfit=True)  # a later version may have made the payload


def _another_way(handler: Handler, payload: Any, step: int) -> Any:
    """Return the payload of the fallback with that number; unchanged if a later version removed that fallback."""
    ways = handler.fallback(payload) if handler.fallback else ()
    return ways[step - 1].payload if step <= len(ways) else payload


def _unsent(run: _Run) -> GivenBack:
    return GivenBack(run.job, "not sent: its executor was too late with it", cost=0)


def _halves(runs: Sequence[_Run]) -> list[Outcome | None]:
    """Give a group back as two halves that never leave together again, to find the job that makes the call fail."""
    base = (runs[0].job.coalesce_key or "").partition(HALF)[0]
    keys = [f"{base}{HALF}{uuid4().hex[:12]}" for _ in range(2)]
    middle = len(runs) // 2
    return [
        GivenBack(run.job, "sent again in two halves", cost=0, coalesce_key=keys[place >= middle], calls=run.calls)
        for place, run in enumerate(runs)
    ]


def _cost(run: _Run, cost: int | None) -> int | None:
    """Return the cost that the handler reported; None instead of an invalid cost, which would make the flush fail."""
    if cost is None or (type(cost) in (int, float) and 0 <= cost < math.inf):
        return cost
    logger.error("job %s (%s) says that it cost %r; its estimate stands", run.job.id, run.job.kind, cost)
    return None


def _stated(run: _Run) -> tuple[StatedQuota, ...]:
    """Return the quotas that the provider stated, if a limit counts the call."""
    headers = run.notes.headers if run.leads else None
    if headers is None or (run.job.send_by is None and not run.job.holds):
        return ()
    age = time.monotonic() - run.begun
    return tuple(replace(quota, age_seconds=age) for quota in read_quotas(headers))


def _told_cost(answer: Done | Continue) -> int | None:
    return answer.usage.tokens if answer.cost is None and answer.usage is not None else answer.cost


def _usage(run: _Run, usage: Usage | None) -> Usage | None:
    """Return the usage that the handler reported; None instead of an invalid usage, as in `_cost`."""
    if usage is None or usage.is_sound:
        return usage
    logger.error("job %s (%s) says that it used %r; its estimate stands", run.job.id, run.job.kind, usage)
    return None


class _InvalidPayload(ValueError):
    """The stored payload no longer fits the handler's schema."""

    def __init__(self, error: ValidationError) -> None:
        super().__init__(str(error))


def _call_sync(handler: Handler, running: RunningJob[Any]) -> Answer:
    connection: Any = transaction.get_connection()
    within = connection.has_open_transaction  # a test's
    try:
        answer = cast("Answer", handler.function(running))
        if connection.has_open_transaction and not within:  # otherwise the job would be completed without its writes
            raise transaction.TransactionManagementError("the handler left a transaction open; what it wrote is undone")
        return answer
    finally:
        close_old_connections()
