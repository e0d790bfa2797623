"""
Duties that one executor does for all: one executor at a time does each duty, under a lease of its own.

Where thousands of lanes or jobs wait, house-keeping takes long, and a pump that does it does not claim meanwhile. The
quarantine executor therefore does the duties, as its pump has little else to do; without one, other executors do them.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any
from uuid import UUID

from jobs.feature import OwnRounds
from jobs.features import FEATURES
from jobs.features.flow import flow
from jobs.features.served_kinds import unserved
from jobs.features.watches import watch
from jobs.services.operate import pauses
from jobs.services.upkeep import batches, executors, upkeep, worker_deaths
from queueops.core.processes.isolate_failures import one_by_one
from ratelimits.limiter import decide
from ratelimits.money import holds
from ratelimits.usage import release

from .outcome_log import OutcomeLog

DUTY_SECONDS = 1.0
ALERT_SECONDS = 5.0
SAMPLE_SECONDS = 5.0
FORGET_SECONDS = 60.0
SELDOM_DUTY_SECONDS = 20.0  # while no job is under way: the duties cost more than an idle executor's other work


class Duties:
    """
    One executor's share of the duties.

    Args:
        silent_seconds: The lease: an executor without a heartbeat for so long counts as dead.
        stuck_seconds: How long a handler may block the loop before its process is killed.
        looks_for_trouble: Whether to open and resolve alerts, too.
    """

    def __init__(
        self,
        executor: UUID,
        *,
        sweep_seconds: float,
        silent_seconds: float,
        stuck_seconds: float,
        outcome_log: OutcomeLog | None = None,
        looks_for_trouble: bool = True,
    ) -> None:
        self.executor = executor
        self.sweep_seconds = sweep_seconds
        self.silent_seconds = silent_seconds
        self.stuck_seconds = stuck_seconds
        self.has_time = False  # whether this executor may do work that keeps claims waiting
        self.looks_for_trouble = looks_for_trouble
        self.rests_until = float("-inf")
        self._of_features = [_duty(feature.find(name)) for feature in FEATURES for name in feature.duties]
        self._rounds: list[OwnRounds] = [
            feature.find(name)(executor, outcome_log) for feature in FEATURES for name in feature.rounds
        ]
        self._sweep_at = self._all_at = self._alert_at = self._sample_at = self._forget_at = 0.0

    def put_off_sweep(self, until: float) -> None:
        """Judge no executor as silent before that time."""
        self._sweep_at = self.rests_until = until

    def is_sweep_due(self, now: float) -> bool:
        return now >= self._sweep_at

    def put_off_alerts(self, until: float) -> None:
        """Look for no alerts before that time."""
        self._alert_at = until

    def do(self, now: float, *, quiet: bool = False) -> bool:
        """
        Do what is due; call it each DUTY_SECONDS.

        Args:
            now: Seconds of the monotonic clock.
            quiet: This executor has nothing to do: one statement then asks whether anything is due at all.

        Returns:
            Whether this executor is quiet although jobs are under way, whose executors wait for its duties.
        """
        _do_all(self._tell_worker_deaths)
        if self.is_sweep_due(now):
            self._sweep_at = now + self.sweep_seconds
            executors.kill_stuck_executors(silent_seconds=self.silent_seconds, stuck_seconds=self.stuck_seconds)
            self._sweep()
            executors.forget_gone_executors(silent_seconds=self.silent_seconds)
        self.has_time = executors.has_time(self.executor, silent_seconds=self.silent_seconds)
        if not self.has_time:
            return False
        around = upkeep.look_around() if quiet else upkeep.Around(is_under_way=True, is_due=True)
        is_news = quiet and around.is_under_way
        quiet = not around.is_under_way
        if around.is_due or not quiet or now >= self._all_at:
            self._all_at = now + SELDOM_DUTY_SECONDS
            self._do_all_duties(now)
        if now >= self._alert_at:
            seconds = SELDOM_DUTY_SECONDS if quiet else ALERT_SECONDS
            self._alert_at = now + seconds
            if executors.take_duty("alerts", holder=self.executor, term_seconds=3 * seconds):
                _do_all(unserved.tend_unserved, release.expire_reservations)
                if self.looks_for_trouble:
                    _do_all(watch.tend_alerts)
        if now >= self._sample_at and self._sums_up():
            self._sample_at = now + SAMPLE_SECONDS
            _do_all(flow.sample_backlog)
            if now >= self._forget_at:
                self._forget_at = now + FORGET_SECONDS
                _do_all(flow.forget_old_samples)
        return is_news

    def _sweep(self) -> None:
        if not executors.take_duty("sweep", holder=self.executor, term_seconds=self.sweep_seconds):
            return
        left: list[UUID] = []
        upkeep.rescue_lapsed(left)
        if left:  # a holder may renew its duty for ever, and the host that can read these would never have it
            executors.give_up_duty("sweep", holder=self.executor)

    def _finish_batches(self) -> None:
        if batches.finish_batches():  # as in _sweep, another host may be able to close these
            executors.give_up_duty("tick", holder=self.executor)

    def _tell_worker_deaths(self) -> None:
        worker_deaths.tell_worker_deaths(executors.PULSES)

    def _do_all_duties(self, now: float) -> None:
        if executors.take_duty("tick", holder=self.executor, term_seconds=3 * DUTY_SECONDS):
            _do_all(
                pauses.tend_ramp,
                upkeep.expire_waiting,
                self._finish_batches,
                batches.foresee_batches,
                decide.reclaim_expired,
                holds.lose_expired,
                *self._of_features,
            )
        if self._sums_up():
            _do_all(flow.sum_up)
        _do_all(*(partial(rounds.do, now) for rounds in self._rounds))

    def _sums_up(self) -> bool:
        return executors.take_duty("flow", holder=self.executor, term_seconds=3 * DUTY_SECONDS)

    def stop(self) -> None:
        """Stop the features' rounds, because the executor ends."""
        _do_all(*(rounds.stop for rounds in self._rounds))


def _duty(found: Any) -> Callable[[], object]:
    """Return a feature's duty: the function itself, or the `do` of a new instance if it is a class."""
    do: Callable[[], object] = found().do if isinstance(found, type) else found
    return do


def _do_all(*duties: Callable[[], object]) -> None:
    """Do each duty; one that raises stops neither the next duty nor the pump's claims."""
    one_by_one(duties, lambda duty: duty(), what="the duty")
