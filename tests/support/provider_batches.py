"""Rounds of the duties that tend provider batches, and what may happen within one."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any

from jobs.executor.outcome_log import OutcomeLog
from jobs.features.batch_lane.steps.calls import CallLoop
from jobs.features.batch_lane.steps.rounds import LATE, Rounds, kinds_with_batches
from jobs.handlers.errors import ProviderError


def make_round(calls: CallLoop, log: OutcomeLog | None = None) -> None:
    """One round of a holder of all duties, and the end of its steps."""
    rounds = Rounds(calls, is_over=lambda kind: False, log=log)
    rounds.make([LATE, *kinds_with_batches()])
    rounds.wait()


class Interrupted(CallLoop):
    """Something happens before the first call that makes a batch."""

    def __init__(self, event: Callable[[], object]) -> None:
        super().__init__()
        self._events = [event]

    def run(self, work: Coroutine[Any, Any, Any]) -> Any:
        try:
            if getattr(work, "__name__", "") == "create" and self._events:
                self._events.pop()()
        except BaseException:
            work.close()
            raise
        return super().run(work)


def tend_interrupted(event: Callable[[], object]) -> None:
    calls = Interrupted(event)
    try:
        make_round(calls)
    finally:
        calls.close()


def refuse_for_now() -> None:
    raise ProviderError(429, "too many calls", code="http_429", outcome="answered")
