"""
Calls that stop because their provider refuses all of them: by the fault of the account or model, not of a job.

Where a provider states that an account has no credit or is switched off, calls with its credential stop at once. A
refusal that concerns every job of a credential or model stops them once STOPS_AFTER jobs in a row have met it. These
jobs are dead letters; the rest wait under a pause switch of the platform's own. One job a minute tries; the first
success ends the stop. For faults of the account, credentials of pools have other rules: see credential_refusals.py.
"""

from __future__ import annotations

import threading
import zlib
from collections.abc import Sequence
from datetime import timedelta
from http import HTTPStatus
from typing import NamedTuple
from uuid import UUID

from cachetools import TTLCache, cached
from django.db import transaction
from django.db.models import Q

from jobs.classify import Failure
from jobs.features.pools.pools import pools_served
from jobs.features.refused_calls.another_way import send_another_way
from jobs.features.refused_calls.models import MAX_NAME_LENGTH
from jobs.handlers.errors import ANSWER_BLOCKED
from jobs.handlers.refusals import ACCOUNT_CLOSED
from jobs.lanes import pool_of_lane
from jobs.models import Job, PauseSwitch, RefusedCalls
from jobs.services.finish.claimed import ClaimedJob
from jobs.services.finish.encrypted_outcomes import outward
from jobs.services.finish.outcomes import Failed, GivenBack, Succeeded
from jobs.services.operate import pauses
from jobs.states import WAITING, CallType, JobState
from queueops.audit import trail
from queueops.core.clock import Now
from queueops.core.notify import Channel, notify
from queueops.core.postgres.replica import from_primary
from queueops.core.processes.isolate_failures import one_by_one
from queueops.core.sql import plain_array, run_sql
from queueops.tenancy.credential_pools.pools import MARK

STOPS_AFTER = 20  # jobs in a row, none of which succeeded
TRIED_EVERY = timedelta(minutes=1)
CHUNKS = 4  # chunks of jobs held or put back at once; house-keeping does the rest
MAX_HELD_LOOKED_AT = 2_000  # held jobs that one turn checks for one that may try
COUNTS_KEPT_SECONDS = 0.5
SYSTEM = "system"

_lock = threading.Lock()
_known: TTLCache[object, list[RefusedCalls]] = TTLCache(1, COUNTS_KEPT_SECONDS)


class SharedRefusal(NamedTuple):
    """Which calls a failure concerns. An empty `model`: all of the credential. `stated`: one failure stops them."""

    project: str
    service: str
    credential: str
    model: str
    code: str
    stated: bool


def note_stops(failed: Sequence[Failed]) -> set[UUID]:
    """
    Count refusals that are the fault of an account or model and not of a job, in the caller's transaction.

    Returns:
        The jobs that wait, held, and spend no attempt: their calls have stopped.
    """
    found: dict[SharedRefusal, list[Failed]] = {}
    for one in failed:
        if refusal := _refusal_of(one.job, one.failure):
            found.setdefault(refusal, []).append(one)
    waits: set[UUID] = set()
    for refusal in sorted(found):  # in one order, or two flushes would wait for each other
        waits |= _count(refusal, found[refusal])
    if found:
        forget()
    return waits


def keep_stopped(jobs: set[UUID]) -> None:
    """Hold jobs, just given back in the caller's transaction, whose calls have stopped."""
    if jobs:
        Job.objects.filter(pk__in=jobs, status=JobState.RETRIED).update(held=True, updated_at=Now())


def note_answered(answered: Sequence[Succeeded | GivenBack]) -> None:
    """End the counts and stops that concern these accepted calls. No statement runs if nothing is counted."""
    known = _counted() if answered else []
    over = [row.pk for row in known if any(_concerns(row, one.job) for one in answered)]
    if over and RefusedCalls.objects.filter(pk__in=over).delete()[0]:
        forget()


def tend_stops() -> None:
    """Hold the jobs of stopped calls, let one job a minute of each stop try, and put back jobs of stops that ended."""
    opened: list[bool] = []
    switches = PauseSwitch.objects.filter(scope=PauseSwitch.Scope.REFUSED).order_by("pk")
    one_by_one(list(switches), lambda switch: opened.append(_tend(switch)), what="the stop of refused calls")
    if any(opened):
        pauses.release_uncovered(chunks=CHUNKS)


def _tend(switch: PauseSwitch) -> bool:
    """Tend one stop; return whether jobs may be put back."""
    row = RefusedCalls.objects.filter(name=switch.key, stopped_at__isnull=False).first()
    if row is None:
        switch.delete()
        return True
    due = RefusedCalls.objects.filter(Q(tried_at=None) | Q(tried_at__lt=Now() - TRIED_EVERY), pk=row.pk)
    if not due.exists():
        return False
    opened = _hold(row)
    _let_one_try(row)
    return opened


@transaction.atomic
def try_now(switches: Sequence[PauseSwitch], *, actor: str) -> int:
    """Let one job of each switch try within a second. Returns how many of the switches still stop calls."""
    names = [switch.key for switch in switches if switch.scope == PauseSwitch.Scope.REFUSED]
    rows = list(RefusedCalls.objects.filter(name__in=names, stopped_at__isnull=False))
    for row in rows:
        after = {"failures": row.failures, "code": row.code}
        trail.record(actor=actor, action="try_refused", target=row.name, after=after, project_id=row.project_id)
    RefusedCalls.objects.filter(pk__in=[row.pk for row in rows]).update(tried_at=None, probe_job_id=None)
    return len(rows)


def forget() -> None:
    """Drop the cached counts; the next call reads them again."""
    with _lock:
        _known.clear()


def jobs_of(row: RefusedCalls) -> Q:
    """The jobs whose calls this row counts; jobs/sql/fragments/call_counted.sql says the same."""
    credential = Q(credential=row.credential) if row.credential else Q(credential=None) | Q(credential="")
    if row.credential.startswith(MARK):
        credential = Q(lane__contains=f"/{row.credential}/")
    found = Q(credential, project_id=row.project_id, service=row.service, call_type__in=CallType.values)
    return found & Q(model=row.model) if row.model else found


def whose(job: Job) -> Q:
    """The rows that count the calls of a waiting job."""
    pool = pool_of_lane(job.lane)
    credential = f"{MARK}{pool}" if pool else job.credential or ""
    return Q(project_id=job.project_id, service=job.service, credential=credential, model__in=["", job.model or ""])


def _refusal_of(job: ClaimedJob, failure: Failure) -> SharedRefusal | None:
    if failure.outcome == "not_sent" or failure.push_back is not None or failure.code == ANSWER_BLOCKED:
        return None
    pool = pool_of_lane(job.lane)
    credential = f"{MARK}{pool}" if pool else job.credential or ""
    if failure.code in ACCOUNT_CLOSED or failure.status in (HTTPStatus.UNAUTHORIZED, HTTPStatus.PAYMENT_REQUIRED):
        if pool or not credential:
            return None
        return SharedRefusal(job.project, job.service, credential, "", failure.code, failure.code in ACCOUNT_CLOSED)
    if job.model and failure.status in (HTTPStatus.FORBIDDEN, HTTPStatus.NOT_FOUND):
        return SharedRefusal(job.project, job.service, credential, job.model, failure.code, stated=False)
    return None


def _count(refusal: SharedRefusal, failed: Sequence[Failed]) -> set[UUID]:
    whose = {"project_id": refusal.project, "service": refusal.service, "credential": refusal.credential}
    whose["model"] = refusal.model
    name = _name_of(refusal)
    new = RefusedCalls(**whose, name=name, code=refusal.code, failures=0)
    # This also locks an existing row: otherwise a success in another process could delete it before it is read.
    RefusedCalls.objects.bulk_create([new], update_conflicts=True, unique_fields=[*whose], update_fields=["updated_at"])
    row = RefusedCalls.objects.get(**whose)
    before = row.failures if row.code == refusal.code else 0
    dying = 0 if row.stopped_at or refusal.stated else max(0, STOPS_AFTER - before)
    row.code, row.failures = refusal.code, before + len(failed)
    row.last_error = outward(failed[-1].job, failed[-1].failure.code, failed[-1].failure.message)[:500]
    if row.probe_job_id in {one.job.id for one in failed}:
        row.probe_job_id = None
    row.updated_at = Now()
    if row.stopped_at is None and (refusal.stated or row.failures >= STOPS_AFTER):
        row.stopped_at = Now()
    if row.stopped_at:  # each time: another process may just be deleting the switch of an earlier stop
        PauseSwitch.objects.get_or_create(
            scope=PauseSwitch.Scope.REFUSED,
            key=row.name,
            window=None,
            defaults={"paused_by": SYSTEM, "reason": row.last_error},
        )
    row.save()
    return {one.job.id for one in failed[dying:]}


def _name_of(refusal: SharedRefusal) -> str:
    of_model = f", {refusal.model}" if refusal.model else ""
    name = f"{refusal.service}{of_model} with {refusal.credential or 'no credential'} of {refusal.project}"
    return name if len(name) <= MAX_NAME_LENGTH else f"{name[: MAX_NAME_LENGTH - 9]} {zlib.crc32(name.encode()):08x}"


@cached(_known, lock=_lock)
@from_primary
def _counted() -> list[RefusedCalls]:
    return list(RefusedCalls.objects.all())


def _concerns(row: RefusedCalls, job: ClaimedJob) -> bool:
    pool = pool_of_lane(job.lane)
    credential = f"{MARK}{pool}" if pool else job.credential or ""
    return (row.project_id, row.service, row.credential) == (job.project, job.service, credential) and row.model in (
        "",
        job.model or "",
    )


def _hold(row: RefusedCalls) -> bool:
    """Take some of the row's waiting jobs out of the ready index. Returns whether some went another way instead."""
    waiting = Job.objects.filter(jobs_of(row), held=False).exclude(pk=row.probe_job_id or UUID(int=0))
    ready = waiting.filter(status=JobState.QUEUED, scheduled_at=None)
    parked = waiting.filter(status=JobState.RATE_LIMITED)
    has_gone = False
    for rows in [ready, parked] * CHUNKS:
        with transaction.atomic():
            if not RefusedCalls.objects.select_for_update().filter(pk=row.pk, stopped_at__isnull=False).exists():
                return has_gone
            ids = list(rows.order_by().values_list("pk", flat=True)[: pauses.HOLD_CHUNK])
            found = list(Job.objects.select_for_update().filter(pk__in=ids, status__in=WAITING).order_by("pk"))
            Job.objects.filter(pk__in=[job.pk for job in found]).update(held=True, updated_at=Now())
            if row.code in ACCOUNT_CLOSED:
                has_gone |= bool(send_another_way(ids))
    return has_gone


def _let_one_try(row: RefusedCalls) -> None:
    """
    Put back the first of the row's held jobs that some executor serves and nothing else holds.

    If no job waits, delete the row.

    A turn checks MAX_HELD_LOOKED_AT jobs. If something else holds all of them, `probe_job_id` keeps the last one, and
    the next turn goes on behind it, within a second. After the last job, the next search begins in a minute.
    """
    waiting = Job.objects.filter(jobs_of(row), held=True, status__in=WAITING)
    # Keep the order of the index of held jobs: for any other order, all of them would be sorted.
    due = waiting.filter(Q(scheduled_at=None) | Q(scheduled_at__lte=Now())).order_by("pk")
    if (served := pools_served()) is not None:  # a job that nobody claims would keep the others from trying
        due = due.filter(pool__in=served)
    behind = due.filter(pk__gt=_looked_at_until(row))
    looked_at = dict(behind.values_list("pk", "project_id")[:MAX_HELD_LOOKED_AT])
    given = {"ids": plain_array(list(looked_at)), "projects": list(looked_at.values()), "stop": row.name}
    if any(_lets_go(row, pk) for (pk,) in run_sql("jobs", "find_free_to_try", given)):
        return
    rows = RefusedCalls.objects.filter(pk=row.pk)
    if len(looked_at) == MAX_HELD_LOOKED_AT:
        rows.update(probe_job_id=max(looked_at))
    elif waiting.exists():
        rows.update(probe_job_id=None, tried_at=Now())
    else:
        rows.delete()


def _looked_at_until(row: RefusedCalls) -> UUID:
    # The job that tries is not held. Behind it, a search would pass over jobs that were set free since.
    is_place = row.probe_job_id is not None and Job.objects.filter(pk=row.probe_job_id, held=True).exists()
    return row.probe_job_id if row.probe_job_id and is_place else UUID(int=0)


def _lets_go(row: RefusedCalls, pk: UUID) -> bool:
    """Let a job try, and return True; if something has come to hold it since, change nothing."""
    given = {"after": UUID(int=pk.int - 1), "most": 1, "batch": None}
    with transaction.atomic():
        RefusedCalls.objects.filter(pk=row.pk).update(probe_job_id=pk, tried_at=Now())
        [(released, _)] = run_sql("jobs", "release_held_jobs", given)
        if not released:
            transaction.set_rollback(True)
            return False
        notify(Channel.READY)
    return True
