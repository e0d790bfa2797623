"""
Keeps jobs from workers that lack their kind or do not take their payload's version: while a release is rolled out, or
where an app is missing.

Such jobs spend no attempt, and claims do not read them again and again. A worker leaves out the kinds that it does not
know; a kind that no worker carries out is held until a worker does. `unserved.py` buries jobs that wait too long.

The workers of a job are the workers that serve its pool, and the workers that serve all jobs. A kind is therefore held,
left out and taken up in each pool by itself. Without pools, all jobs are in the pool without a name.
"""

from __future__ import annotations

import hashlib
import json
import re
import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cache
from uuid import UUID

from django.db import transaction
from django.db.models import Q, Value
from django.db.models.functions import Coalesce

from jobs.features.pools.pools import alive
from jobs.handlers.registry import Handler, all_handlers, served_names
from jobs.models import Executor, Job, PauseSwitch
from jobs.services.finish.claimed import ClaimedJob
from jobs.services.operate import pauses
from jobs.states import WAITING, JobState
from queueops.core.clock import Now
from queueops.core.notify import Channel, notify
from queueops.core.processes.isolate_failures import one_by_one
from queueops.core.sealing import payload_keys

KINDS_LOOK_SECONDS = 5.0
CHUNKS = 4  # chunks of jobs held or put back at once; house-keeping does the rest, so that claims and renewals go on
INVALID_PAYLOAD = "invalid_payload"
KEY_MISSING = "payload_key_missing"
SYSTEM = "system"

Scope = PauseSwitch.Scope
KindOfPool = tuple[str, str]  # a kind's name, and the pool of its jobs; empty: none
UNSERVED = frozenset({Scope.UNKNOWN, Scope.UNFIT, Scope.SEALED})
NOTHING: frozenset[KindOfPool] = frozenset()
JOBS_POOL = Coalesce("pool", Value(""))


@dataclass(frozen=True, slots=True)
class _Other:
    """
    Another living executor.

    Attributes:
        pool: The pool that it serves; empty: all jobs.
        kinds: The kinds that it carries out, each with its payload's version.
    """

    pool: str
    kinds: Mapping[str, str]
    started_at: datetime

    def knows(self, kind: str, pool: str) -> bool:
        return kind in self.kinds and self.pool in {"", pool}


def kinds_served() -> dict[str, str]:
    """Return the payload schema's version of each kind that this process serves, by its name and former names."""
    versions = {handler.kind: version_of(handler) for handler in all_handlers()}
    return {name: versions[kind] for name, kind in served_names().items()}


# How payloads are stored: a part of each version (docs/adr/0068). Workers of the release before cannot take payloads
# kept as text, and hold their jobs. If our version were the same as theirs, our executors would leave these jobs held.
STORED_AS = "text"


@cache
def version_of(handler: Handler) -> str:
    """Return a digest of the handler's payload schema, and of how payloads are stored."""
    try:
        text = json.dumps(handler.schema.json_schema(), sort_keys=True)
    except Exception:  # noqa: BLE001 - a type that has no JSON Schema; its versions cannot be told apart
        text = ""
    return hashlib.sha256(f"{STORED_AS} {text}".encode()).hexdigest()[:12]


class ServedKinds:
    """
    The kinds that one executor carries out, and the kinds that it leaves to others. Used in its pump's thread.

    Args:
        pool: The one pool whose jobs it claims; empty: all jobs.

    Attributes:
        strange: The kinds that its claims leave out.
    """

    def __init__(self, executor_id: UUID, *, pool: str = "") -> None:
        self.executor_id = executor_id
        self.strange = NOTHING
        self._pool = pool
        self._served = kinds_served()
        self._met: set[UUID] = set()
        self._refused_now: set[UUID] = set()
        self._unknown: set[KindOfPool] = set()
        self._refused: set[KindOfPool] = set()
        self._look_at = 0.0

    def known_of(self, chosen: Sequence[ClaimedJob]) -> list[ClaimedJob]:
        """Return the jobs that this executor can carry out; `tend` keeps the other jobs' kinds from the next claim."""
        served = served_names()
        unknown = {job.id for job in chosen if job.kind not in served}
        if unknown:
            self._met |= unknown
            self._look_at = 0.0
        return [job for job in chosen if job.id not in unknown]

    def refuse(self, jobs: Collection[UUID]) -> None:
        """Note that the stored payloads of these jobs did not fit this process's schemas."""
        if jobs:
            self._refused_now.update(jobs)
            self._look_at = 0.0

    @property
    def must_look(self) -> bool:
        """Whether an unknown kind or a refused payload was met and `tend` has not compared the other executors yet."""
        return self._look_at == 0.0

    def left_out(self) -> list[str]:
        """`strange` as jobs/sql/fragments/kind_of_pool.sql writes it."""
        return [f"{pool} {kind}" for kind, pool in self.strange]

    def tend(self) -> None:
        """
        Hold kinds that no executor carries out, and take up held kinds of this executor; most calls do nothing.

        Not to be called inside a transaction.
        """
        now = time.monotonic()
        if now < self._look_at:
            return
        self._look_at = now + KINDS_LOOK_SECONDS
        met, refused = _kinds_of(self._met), self._refused | _kinds_of(self._refused_now)
        self._met, self._refused_now = set(), set()
        if met or refused or self._unknown:
            others, began_at = _others(self.executor_id)
            unknown = {one for one in self._unknown | met if any(other.knows(*one) for other in others)}
            one_by_one(sorted(met - unknown), lambda one: _withhold(*one), what="the unknown kind")
            # The switch of a kind that no executor knows keeps it from claims. If claims left it out as well, its next
            # job would not be noticed.
            self._unknown = unknown
            # A refused kind is left only to executors that began later: if two gave way to each other, no executor
            # would carry it out.
            self._refused = {
                (kind, pool)
                for kind, pool in refused
                if any(
                    other.knows(kind, pool)
                    and other.kinds[kind] != self._served.get(kind)
                    and (began_at is None or other.started_at > began_at)
                    for other in others
                )
            }
            self.strange = frozenset(self._unknown | self._refused)
        take_up(self._served, pool=self._pool, strange=self.strange)


def take_up(served: Mapping[str, str], *, pool: str = "", strange: Collection[KindOfPool] = NOTHING) -> None:
    """
    Put back the held jobs of kinds and versions that an executor carries out. Not inside a transaction.

    Args:
        served: Each kind with its payload's version.
        pool: The one pool whose jobs it claims. Jobs of other pools stay held: their workers would hold them again.
        strange: The kinds that it leaves to others.
    """
    held_for = PauseSwitch.objects.order_by("pk")
    closed = held_for.filter(scope=Scope.SEALED, key__in=list(payload_keys()))
    one_by_one(closed, lambda switch: _take_up_closed(switch, pool), what="the payload key")
    unserved = held_for.filter(scope__in=UNSERVED - {Scope.SEALED}, key__in=list(served))

    def take(switch: PauseSwitch) -> None:
        if switch.scope == Scope.UNFIT:
            _take_up_unfit(switch, served[switch.key], pool, strange)
        elif pool in {"", switch.pool} and (switch.key, switch.pool) not in strange:
            switch.delete()
            pauses.release_uncovered(chunks=CHUNKS)

    one_by_one(unserved, take, what="the unserved kind")


@transaction.atomic
def _take_up_unfit(switch: PauseSwitch, version: str, pool: str, strange: Collection[KindOfPool]) -> None:
    """Put back jobs whose payload another version refused."""
    left = [of for kind, of in strange if kind == switch.key]
    untried = Job.objects.filter(misfits_of(switch.key)).exclude(last_error_message__startswith=refusal_of(version))
    if pool or left:
        untried = untried.alias(of=JOBS_POOL).exclude(of__in=left).filter(Q(of=pool) if pool else Q())
    ids = list(untried.values_list("pk", flat=True)[: pauses.HOLD_CHUNK])
    if ids and Job.objects.filter(misfits_of(switch.key), pk__in=ids).update(held=False, updated_at=Now()):
        notify(Channel.READY)


@transaction.atomic
def _take_up_closed(switch: PauseSwitch, pool: str) -> None:
    """Put back jobs that wait for a payload key that this executor has."""
    waiting = Job.objects.filter(closed_by(switch.key))
    mine = waiting.filter(pool=pool) if pool else waiting
    ids = list(mine.values_list("pk", flat=True)[: pauses.HOLD_CHUNK])
    if ids and Job.objects.filter(closed_by(switch.key), pk__in=ids).update(held=False, updated_at=Now()):
        notify(Channel.READY)
    if not waiting.exists():
        switch.delete()


def keep_closed(jobs: Sequence[ClaimedJob]) -> None:
    """Hold jobs, just given back in the caller's transaction, whose payload is encrypted with a key not set here."""
    _hold(jobs, Scope.SEALED, {job.closed_by for job in jobs}, reason="payloads need it")


def kept_closed(key: str) -> str:
    """The last error of a job whose worker lacked the key of its payload; held_otherwise.sql has the same text."""
    return f"its payload is encrypted with the key {key}, which is not among QUEUEOPS_PAYLOAD_KEYS here"


def closed_by(key: str) -> Q:
    """The jobs that wait for a worker that has the payload key of this name."""
    return Q(held=True, status__in=WAITING, last_error_code=KEY_MISSING, last_error_message=kept_closed(key))


def set_aside(jobs: Sequence[ClaimedJob]) -> None:
    """Hold jobs, just given back in the caller's transaction, whose payload this process's handler does not take."""
    _hold(jobs, Scope.UNFIT, {job.kind for job in jobs}, reason="its payload is of another version")


def _hold(jobs: Sequence[ClaimedJob], scope: PauseSwitch.Scope, keys: Collection[str], *, reason: str) -> None:
    if not jobs:
        return
    for key in sorted(keys):
        PauseSwitch.objects.get_or_create(scope=scope, key=key, defaults={"paused_by": SYSTEM, "reason": reason})
    ids = [job.id for job in jobs]
    Job.objects.filter(pk__in=ids, status=JobState.RETRIED).update(held=True, updated_at=Now())


REFUSED_BY = re.compile(r"schema \w*: ")  # as refusal_of writes it


def refusal_of(version: str) -> str:
    """The beginning of a job's last error by which this schema version knows that it has refused the payload."""
    return f"schema {version}: "


def misfits_of(kind: str) -> Q:
    """The jobs of a kind that wait for a worker that takes their payload."""
    return Q(kind=kind, held=True, status__in=WAITING, last_error_code=INVALID_PAYLOAD)


def held_as_unknown(switch: PauseSwitch) -> Q:
    """The jobs that wait because no worker that serves their pool knows their kind."""
    of_pool = Q(pool=switch.pool) if switch.pool else Q(pool="") | Q(pool=None)
    return Q(of_pool, kind=switch.key, held=True, status__in=WAITING)


def _withhold(kind: str, pool: str) -> None:
    """Hold a kind; an executor that knows it and registers meanwhile sees the switch at its next look."""
    switch, _ = PauseSwitch.objects.get_or_create(
        scope=Scope.UNKNOWN,
        key=kind,
        pool=pool,
        defaults={"paused_by": SYSTEM, "reason": "no worker knows it"},
    )
    pauses.hold(switch, chunks=CHUNKS)


def _kinds_of(jobs: Iterable[UUID]) -> set[KindOfPool]:
    wanted = list(jobs)
    if not wanted:
        return set()
    return set(Job.objects.filter(pk__in=wanted).annotate(of=JOBS_POOL).values_list("kind", "of"))


def _others(executor_id: UUID) -> tuple[list[_Other], datetime | None]:
    """Return the other living executors, and when this one began."""
    others, began_at = [], None
    living = Executor.objects.filter(alive())
    for pk, pool, kinds, started_at in living.values_list("pk", "pool", "kinds", "started_at"):
        if pk == executor_id:
            began_at = started_at
        else:
            others.append(_Other(pool, kinds, started_at))
    return others, began_at
