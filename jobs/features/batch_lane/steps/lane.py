"""The batch lane's threads: a call to a batch API may take minutes, and the pump cannot wait for it."""

from __future__ import annotations

import logging
import threading
import time
from contextlib import suppress
from uuid import UUID

import psycopg
from django.db import DatabaseError, connection

from jobs.features.batch_lane.steps.calls import CallLoop
from jobs.features.batch_lane.steps.rounds import LATE, Rounds, duty_of, is_needed, kinds_with_batches
from jobs.features.batch_lane.steps.settle import OutcomeNotes
from jobs.services.upkeep.executors import take_duty

logger = logging.getLogger(__name__)

LANE_TERM_SECONDS = 10.0  # a duty's term; unless `wake` renews it, the thread ends and closes its connection
LANE_SECONDS = 2.0  # between two looks for duties
LANE_STEP_SECONDS = 0.5  # between two looks at what is due
LAST_STEPS_SECONDS = 3.0  # how long the thread waits at its end for steps that are under way


class BatchLane:
    """One executor's share of the duties. `do`, `wake` and `stop` are for the pump's thread."""

    def __init__(self, executor: UUID, log: OutcomeNotes | None = None) -> None:
        self._executor = executor
        self._log = log
        self._look_at = 0.0
        self._until: dict[str, float] = {}
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None

    def do(self, now: float) -> None:
        """Take the duties that nobody has, one for each kind, and have the thread do them."""
        if now < self._look_at:
            return
        self._look_at = now + LANE_SECONDS
        if not is_needed():
            return
        for kind in (LATE, *kinds_with_batches()):
            if take_duty(duty_of(kind), holder=self._executor, term_seconds=LANE_TERM_SECONDS):
                self.wake(kind)

    def wake(self, kind: str) -> None:
        """Say that this executor has the duty of a kind for LANE_TERM_SECONDS more."""
        self._until[kind] = time.monotonic() + LANE_TERM_SECONDS
        if self._thread is None or not self._thread.is_alive():
            self._thread = threading.Thread(target=self._run, name="batch-lane", daemon=True)
            self._thread.start()

    def stop(self, *, seconds: float = 5.0) -> None:
        """Begin no further step, and wait up to `seconds` for steps under way; the duty's next holder does the rest."""
        self._stopping.set()
        if self._thread is not None:
            self._thread.join(timeout=seconds)

    def _run(self) -> None:
        calls = CallLoop()
        rounds = Rounds(calls, is_over=self._is_over, log=self._log)
        try:
            while kinds := [kind for kind in list(self._until) if not self._is_over(kind)]:
                try:
                    rounds.make(kinds)
                except (DatabaseError, psycopg.Error) as error:
                    logger.warning("batch lane: %s; it goes on when the database answers", str(error).strip())
                    connection.close()
                except Exception:
                    logger.exception("batch lane: unexpected error")
                self._stopping.wait(LANE_STEP_SECONDS)
            with suppress(Exception):  # the step has logged it
                rounds.wait(LAST_STEPS_SECONDS)
        finally:
            with suppress(DatabaseError, psycopg.Error):
                connection.close()
            calls.close()

    def _is_over(self, kind: str) -> bool:
        return self._stopping.is_set() or time.monotonic() >= self._until[kind]
