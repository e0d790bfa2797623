"""Ends the waiting of jobs and batches once the jobs and batches that they wait for have ended."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import NamedTuple
from uuid import UUID

from django.db import transaction

from jobs.models import Batch, Dependency, Job
from jobs.services.operate.job_actions import carry_out_cancel
from jobs.services.submit.results import BulkResult, distinct_ids
from jobs.states import UNFINISHED, GuardState
from queueops.audit import trail
from queueops.core.notify import Channel, notify
from queueops.core.processes.isolate_failures import one_by_one
from queueops.core.sql import run_sql, run_sql_as
from queueops.core.values.reasons import clean_reason

from .take_values import take_values

DEPENDANTS_AT_ONCE = 1_000  # owners (jobs and batches that wait) looked at by one statement
DEPENDANTS_A_TURN = 5_000  # owners in one turn, which take about 70 ms: the process has other duties, too
RELEASED_IN_ONE = 2_000  # jobs of one transaction
TAKING_IN_ONE = 20  # jobs of one transaction, if they take values: each reads results and is validated again
TAKING_A_TURN = 200  # jobs that take values in one turn, at 4 ms of CPU each
ACTOR = "system"
NO_ID = UUID(int=0)
TakeValues = Callable[[Sequence[UUID]], set[UUID]]
WAITED = {"go": "what it waited for has ended", "let_go": "it was told not to wait any longer for others"}


class Verdict(NamedTuple):
    owner_id: UUID
    project: str
    of_batch: bool
    verdict: str
    failed: UUID | None
    takes: bool = False  # whether the owner takes values from the results of other jobs


class DependantsDuty:
    """
    Ends the waits of jobs and batches that need not wait any more. Each turn looks at the next DEPENDANTS_A_TURN by id.

    The duty reads every verdict from the rows of the jobs waited for, so it makes up for missed or half-done work. Two
    processes may do it at once without harm.

    Args:
        take: Gives jobs the values that they take from others, and returns the jobs that must wait on.
    """

    def __init__(self, take: TakeValues = take_values) -> None:
        self._after = NO_ID
        self._may_take = TAKING_A_TURN
        self._take = take

    def do(self) -> int:
        """
        Return how many owners have stopped waiting. Not to be called inside a transaction; one statement if none waits.
        """
        done = looked_at = 0
        self._may_take = TAKING_A_TURN
        while looked_at < DEPENDANTS_A_TURN:
            found = run_sql_as(Verdict, "jobs", "choose_dependants", {"after": self._after, "most": DEPENDANTS_AT_ONCE})
            self._after = found[-1].owner_id if len(found) == DEPENDANTS_AT_ONCE else NO_ID
            due = [one for one in found if one.verdict != "wait"]
            portions = self._for_this_turn(_portions(due))
            one_by_one(portions, partial(_end_waiting, take=self._take), what="the wait for other jobs")
            done, looked_at = done + sum(map(len, portions)), looked_at + len(found)
            if self._after == NO_ID:
                break
        return done

    def _for_this_turn(self, portions: Iterable[Sequence[Verdict]]) -> list[Sequence[Verdict]]:
        """Leave jobs that take values for the next turn if this turn has no time for more of them."""
        chosen = []
        for portion in portions:
            if portion[0].takes:
                if self._may_take <= 0:
                    continue
                self._may_take -= len(portion)
            chosen.append(portion)
        return chosen


@transaction.atomic
def go_on(owner_ids: Iterable[UUID], *, of_batch: bool, actor: str, reason: str = "") -> BulkResult:
    """
    Let waiting jobs or batches go on without waiting for others; the duty puts them back at its next turn.

    A batch whose guard still judges its first jobs goes on with its other jobs.

    Scheduled times, pauses and budgets count as before. A job whose batch waits goes on with its batch.

    Raises:
        TooManyJobs: Nothing was changed.
    """
    ids = distinct_ids(owner_ids)
    rows = Dependency.objects.filter(owner_id__in=ids, of_batch=of_batch, let_go=False)
    waited_for: dict[UUID, list[str]] = {}
    for owner, other in rows.order_by("owner_id", "on_id").values_list("owner_id", "on_id"):
        waited_for.setdefault(owner, []).append(str(other))
    moved = [one for one in ids if one in waited_for and rows.filter(owner_id=one).update(let_go=True)]
    if of_batch:
        tried = Batch.objects.filter(pk__in=ids, guard_state=GuardState.TRIAL).order_by("pk").select_for_update()
        for batch in tried:
            waited_for.setdefault(batch.pk, []).append("its first jobs")
        Batch.objects.filter(pk__in=[batch.pk for batch in tried]).update(guard_state=GuardState.WENT_ON)
        moved += [batch.pk for batch in tried if batch.pk not in moved]
    for one in moved:
        model = Batch if of_batch else Job
        trail.record(
            actor=actor,
            action="go_on",
            target=f"{'batch' if of_batch else 'job'} {one}",
            before={"waits_for": waited_for[one]},
            reason=clean_reason(reason),
            project_id=model.objects.values_list("project_id", flat=True).get(pk=one),
        )
    return BulkResult(moved, [one for one in ids if one not in moved])


def _portions(due: Sequence[Verdict]) -> Iterator[Sequence[Verdict]]:
    """Yield each batch alone, and jobs of one verdict and project together: in small portions if they take values."""
    yield from ([one] for one in due if one.of_batch)
    jobs = [one for one in due if not one.of_batch]
    going = [one.owner_id for one in jobs if one.verdict in WAITED]
    taking = set(Job.objects.filter(pk__in=going, takes__isnull=False).values_list("pk", flat=True)) if going else set()
    jobs = [one._replace(takes=one.owner_id in taking) for one in jobs]
    for verdict, project, takes in sorted({(one.verdict, one.project, one.takes) for one in jobs}):
        alike = [one for one in jobs if (one.verdict, one.project, one.takes) == (verdict, project, takes)]
        most = TAKING_IN_ONE if takes else RELEASED_IN_ONE
        yield from (alike[start : start + most] for start in range(0, len(alike), most))


def _end_waiting(portion: Sequence[Verdict], *, take: TakeValues = set) -> None:
    verdict, of_batch = portion[0].verdict, portion[0].of_batch
    if of_batch and verdict != "over":
        after = NO_ID
        while ids := _next_of_batch(portion[0].owner_id, after):
            with transaction.atomic(durable=True):
                _settle(portion, ids, take=take)
            after = ids[-1]
    with transaction.atomic(durable=True):
        owners = {one.owner_id for one in portion}
        if not of_batch and verdict != "over":
            owners -= _settle(portion, sorted(owners), take=take)
        Dependency.objects.filter(owner_id__in=owners).delete()


def _next_of_batch(batch_id: UUID, after: UUID) -> list[UUID]:
    rows = Job.objects.filter(batch_id=batch_id, held=True, status__in=sorted(UNFINISHED), pk__gt=after)
    return list(rows.order_by("pk").values_list("pk", flat=True)[:RELEASED_IN_ONE])


def _settle(portion: Sequence[Verdict], ids: Sequence[UUID], *, take: TakeValues) -> set[UUID]:
    """Settle the waits of owners; return the owners that must wait on after all."""
    # A second process waits here, and then finds nothing left to do.
    locked = Dependency.objects.filter(owner_id__in=[one.owner_id for one in portion]).order_by("owner_id", "on_id")
    waiting = set(locked.select_for_update().values_list("owner_id", flat=True))
    owners = {one.owner_id: one for one in portion if one.owner_id in waiting}
    if not portion[0].of_batch:
        ids = [one for one in ids if one in owners]
    if not owners or not ids:
        return set()
    if portion[0].verdict in WAITED:
        batch = portion[0].owner_id if portion[0].of_batch else None
        given = {"ids": list(ids), "batch": batch, "project": portion[0].project, "message": WAITED[portion[0].verdict]}
        open_too = portion[0].verdict == "let_go"
        untaken = take(ids) if portion[0].takes else set()
        given["ids"] = [one for one in ids if one not in untaken]
        waiting_on = {one for (one,) in run_sql("jobs", "release_dependants", {**given, "open_too": open_too})}
        notify(Channel.READY)
        return waiting_on | untaken
    by_failed: dict[UUID | None, list[UUID]] = {}
    for one in ids:
        by_failed.setdefault(owners.get(one, portion[0]).failed, []).append(one)
    for failed, cancelled in by_failed.items():
        carry_out_cancel(cancelled, actor=ACTOR, reason=f"{failed}, which it waits for, did not succeed")
    return set()
