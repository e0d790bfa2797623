"""
Batches that stop themselves when too many of their first jobs have failed for good with the same error code.

At first, at most twice as many jobs go as are needed to decide about the batch; the others are held from their
submission on. Claims do not look at held jobs, so a guard costs claims nothing. Once enough jobs have ended, the batch
is paused, or the rest is let go.
"""

from __future__ import annotations

from collections import Counter
from typing import NamedTuple
from uuid import UUID

from django.db import transaction

from jobs.models import Batch, Job, PauseSwitch
from jobs.services.operate import pauses
from jobs.states import TERMINAL, UNFINISHED, GuardState, JobState
from queueops.audit import trail
from queueops.core.notify import Channel, notify
from queueops.core.processes.isolate_failures import one_by_one
from queueops.core.sql import run_sql

LET_GO_CHUNKS = 4  # chunks of a batch's jobs in one turn
TENDED_AT_ONCE = 200  # batches in one turn
SYSTEM = "system"


class GuardFinding(NamedTuple):
    """`ended`: how many first jobs have ended. `failed`: how many failed with `code`, the most frequent error code."""

    ended: int
    failed: int
    code: str


def tend_guards() -> None:
    """
    Pause batches whose first jobs fail, and let the other jobs of batches that passed go.

    House-keeping calls it each second, outside transactions. If no guard is at work, it runs two short queries.
    """
    tried = Batch.objects.filter(finished_at=None, guard_state=GuardState.TRIAL).order_by("pk")
    one_by_one(tried[:TENDED_AT_ONCE], _judge, what="the guard of the batch")
    going = Batch.objects.filter(finished_at=None, trial_until__isnull=False).exclude(guard_state=GuardState.TRIAL)
    one_by_one(going.order_by("pk")[:TENDED_AT_ONCE], _let_go, what="the rest of the batch")


def told(guard: dict[str, object]) -> str:
    """Return a guard's finding in words."""
    return f"{guard['failed']} of its first {guard['ended']} jobs failed for good with {guard['code']}"


def _judge(batch: Batch) -> None:
    guard = batch.guard or {}
    first = min(int(guard["first"]), batch.total)
    found = _look(batch.pk, first, since=guard.get("since"))
    is_left = Job.objects.filter(batch_id=batch.pk, status__in=sorted(UNFINISHED)).exists()
    if found.failed and found.failed * 100 >= int(guard["percent"]) * first and is_left:
        _stop(batch, found)
    elif found.ended >= first or not is_left:
        Batch.objects.filter(pk=batch.pk, guard_state=GuardState.TRIAL).update(guard_state=GuardState.PASSED)


def _look(batch_id: UUID, first: int, *, since: str | None = None) -> GuardFinding:
    # While a batch is on trial, few of its jobs have ended, so the index on (batch, status) finds few.
    ended = Job.objects.filter(batch_id=batch_id, status__in=sorted(TERMINAL)).order_by("finished_at", "pk")
    if since is not None:  # the batch was resumed: jobs that ended before do not count
        ended = ended.filter(finished_at__gte=since)
    rows = list(ended.values_list("status", "last_error_code")[:first])
    codes = Counter(code for status, code in rows if status == JobState.FAILED)
    [(code, failed)] = codes.most_common(1) or [("", 0)]
    return GuardFinding(len(rows), failed, code)


def _stop(batch: Batch, found: GuardFinding) -> None:
    guard = {**(batch.guard or {}), **found._asdict()}
    with transaction.atomic(durable=True):
        rows = Batch.objects.filter(pk=batch.pk, guard_state=GuardState.TRIAL)
        if not rows.update(guard=guard, guard_state=GuardState.STOPPED, trial_until=None, paused=True):
            return
        switch, _ = PauseSwitch.objects.get_or_create(
            scope=PauseSwitch.Scope.BATCH,
            key=str(batch.pk),
            window=None,
            defaults={"paused_by": SYSTEM, "reason": told(guard)},
        )
        trail.record(
            actor=SYSTEM,
            action="pause",
            target=str(switch),
            after={"paused": True, **guard},
            moved=1,
            reason=told(guard),
            project_id=batch.project_id,
        )
    pauses.hold(switch)


def _let_go(batch: Batch) -> None:
    """Put back the next of the batch's held jobs; jobs that another pause holds stay held."""
    after = batch.trial_until
    for _ in range(LET_GO_CHUNKS):
        if after is None:
            return
        with transaction.atomic(durable=True):
            given = {"after": after, "most": pauses.HOLD_CHUNK, "batch": batch.pk}
            [(released, last)] = run_sql("jobs", "release_held_jobs", given)
            Batch.objects.filter(pk=batch.pk).update(trial_until=last)
            if released:
                notify(Channel.READY)
        after = last
