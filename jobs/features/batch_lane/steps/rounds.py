"""
Rounds of the batch lane's duties, in which the steps of different credentials run side by side.

A round finds in the rows which steps are due, so the next holder of a duty goes on where the last was cut off. A slow
provider delays no other provider's batches: each credential's calls run in a thread of their own, and may take all the
time that they are allowed.
"""

from __future__ import annotations

import hashlib
import logging
import threading
import time
from collections.abc import Callable, Collection, Sequence
from concurrent.futures import CancelledError, Future, wait
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, NamedTuple

import psycopg
from django.conf import settings
from django.db import DatabaseError, connections
from django.db.models import F, Q, QuerySet
from django.db.models.functions import Least

from jobs.classify import clean
from jobs.handlers.errors import ProviderError
from jobs.handlers.registry import find_handler, served_names
from jobs.models import BatchSearch, Job, ProviderBatch
from queueops.core.clock import Now, database_now
from queueops.core.errors import QueueOpsError

from .advance import MAX_COUNTED, Step, look_later
from .calls import CallLoop
from .collect import collect_waiting, open_searches
from .deadlines import hand_back_late
from .search import Search, look_through_later
from .settle import OutcomeNotes

logger = logging.getLogger(__name__)

FIRST_FAULT_SECONDS = 2.0
LAST_FAULT_DOUBLING = 8
COLLECT_SHARE = 0.05  # looks that collect nothing take at most this share of the time
STEPS_AT_ONCE = 8  # steps side by side, each with a connection to the database
PLACES_OF_FAULTY = 4  # at most so many of STEPS_AT_ONCE are for credentials whose last call failed
LATE = ""  # stands in place of a kind, for the duty to hand back late lines of every kind
DUTY = "batch lane"
MAX_DUTY_LENGTH = 40
Due = BatchSearch | ProviderBatch


def is_needed() -> bool:
    """Whether a job waits for a batch, a batch needs a step, or a search after a restore is open."""
    waiting = Job.objects.filter(via="batch", status__in=["queued", "retried"], scheduled_at__isnull=False, held=False)
    return _to_work_on().exists() or waiting.exists() or open_searches().exists()


def kinds_with_batches() -> list[str]:
    """The kinds, former names too, whose batches this process can make and read."""
    return [kind for kind in served_names() if find_handler(kind).batch is not None]


def duty_of(kind: str) -> str:
    """
    Return the name of a kind's duty. Each kind has a duty of its own: otherwise a process without the kind's handler
    could have the duty, and the kind's batches would wait.

    LATE has a duty of its own.
    """
    name = f"{DUTY} {kind}".strip()
    return name if len(name) <= MAX_DUTY_LENGTH else f"{DUTY} {hashlib.sha256(kind.encode()).hexdigest()[:16]}"


class StepQueue(NamedTuple):
    """Batches of one account; their steps are taken one after another."""

    service: str
    credential: str


@dataclass(frozen=True, slots=True)
class _Place:
    is_faulty: bool
    done: Future[None]


class Rounds:
    """
    One process's rounds of the batch lane. Call `make` and `wait` from one thread, outside transactions.

    Args:
        is_over: Called before each step of a kind; True if this process ends or another has the duty.
        log: Notes which lines are sent, and how they end.
    """

    def __init__(self, calls: CallLoop, *, is_over: Callable[[str], bool], log: OutcomeNotes | None = None) -> None:
        self._calls = calls
        self._log = log
        self._is_over = is_over
        self._since: float | None = None
        self._collect_at = 0.0
        self._places: dict[StepQueue, _Place] = {}

    def make(self, kinds: Collection[str]) -> None:
        """Hand back late lines, collect waiting jobs, and begin a step of each due batch; no call is waited for."""
        if self._since is None:
            self._since = database_now()
        if LATE in kinds:
            hand_back_late(since=self._since)
        self._collect(kinds)
        self._begin_steps(kinds)

    def wait(self, seconds: float | None = None) -> None:
        """Wait for the steps that are under way. An unexpected error of a step is raised here."""
        ended = wait([place.done for place in self._places.values()], timeout=seconds).done
        self._places = {queue: place for queue, place in self._places.items() if place.done not in ended}
        for future in ended:
            future.result()

    def _collect(self, kinds: Collection[str]) -> None:
        began = time.monotonic()
        if began < self._collect_at:
            return
        if not collect_waiting(kinds):
            # Each look reads all jobs that cannot be collected yet: the longer it takes, the later the next look comes.
            self._collect_at = time.monotonic() + (time.monotonic() - began) / COLLECT_SHARE

    def _begin_steps(self, kinds: Collection[str]) -> None:
        queues: dict[StepQueue, list[Due]] = {}
        faulty: set[StepQueue] = set()
        for due in _due():
            for one in due.filter(kind__in=kinds).order_by("look_at").only("service", "credential", "faults"):
                queue = StepQueue(one.service, one.credential)
                queues.setdefault(queue, []).append(one)
                if one.faults:
                    faulty.add(queue)
        self._places = {queue: place for queue, place in self._places.items() if not place.done.done()}
        for queue in sorted(queues, key=faulty.__contains__):
            is_faulty, places = queue in faulty, self._places.values()
            if len(places) >= STEPS_AT_ONCE or (
                is_faulty and sum(place.is_faulty for place in places) >= PLACES_OF_FAULTY
            ):
                break
            if queue not in self._places:
                done: Future[None] = Future()
                steps = (queues[queue], done)
                # It may be refused for want of memory or threads: a place that was taken before would never be free.
                threading.Thread(target=self._take_steps, args=steps, name="batch-step", daemon=True).start()
                self._places[queue] = _Place(is_faulty, done)

    def _take_steps(self, rows: Sequence[Due], done: Future[None]) -> None:
        """Take one step for each row, in a thread of its own. The queue's place is free once its connection closes."""
        failure: BaseException | None = None
        try:
            for row in rows:
                [still_due] = [due for due in _due() if due.model is type(row)]
                one = still_due.filter(pk=row.pk).first()
                if one is not None and not self._is_over(one.kind):
                    self._take_step(one)
        except CancelledError:
            logger.info("batch lane: a call was cut off; whoever has the duty next goes on")
        except (DatabaseError, psycopg.Error) as error:
            logger.warning("batch lane: %s; it goes on when the database answers", str(error).strip())
        except BaseException as error:
            logger.exception("batch lane: unexpected error")
            failure = error
        finally:
            with suppress(DatabaseError, psycopg.Error):
                connections.close_all()
            if failure is None:
                done.set_result(None)
            else:
                done.set_exception(failure)

    def _take_step(self, row: Due) -> None:
        step = Search(row, self._calls) if isinstance(row, BatchSearch) else Step(row, self._calls, self._log)
        try:
            step.make()
        except CancelledError:
            raise
        except (ProviderError, QueueOpsError) as error:
            _note_fault(row, clean(str(error)), at_least=getattr(error, "retry_after", None) or 0.0)
        except Exception as error:  # otherwise one faulty row would block all others
            logger.exception("%s %s: the step failed", type(row).__name__, row.pk)
            _note_fault(row, clean(f"{type(error).__name__}: {error}"))


def _to_work_on() -> QuerySet[ProviderBatch]:
    """Batches that have not ended, and closed batches that still have files at their providers."""
    kept = Q(closed_at__isnull=False, is_kept=True, found_by_count=False)
    return ProviderBatch.objects.filter(Q(state__in=ProviderBatch.UNFINISHED) | kept)


def _due() -> tuple[QuerySet[BatchSearch], QuerySet[ProviderBatch]]:
    """
    Return due searches, and due batches. A credential's searches come before its batches.
    """
    return open_searches().filter(look_at__lte=Now()), _to_work_on().filter(look_at__lte=Now())


def _note_fault(row: Due, error: str, *, at_least: float = 0.0) -> None:
    """Note a failed step; the more fail in a row, the longer the next try waits."""
    doublings = min(row.faults, LAST_FAULT_DOUBLING)
    pause = max(at_least, min(settings.QUEUEOPS.batch_poll_seconds, FIRST_FAULT_SECONDS * 2**doublings))
    noted: dict[str, Any] = {"faults": Least(F("faults") + 1, MAX_COUNTED), "looked_at": Now()}
    if isinstance(row, BatchSearch) or row.closed_at is None or not row.error:
        noted["error"] = error  # a closed batch keeps the reason of its end, whatever fails later
    type(row).objects.filter(pk=row.pk).update(**noted)
    if isinstance(row, BatchSearch):
        look_through_later(row, pause, error=error)
    else:
        look_later(row, pause)
