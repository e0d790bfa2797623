"""
Kinds, and payloads of a later version, that not every worker carries out: a release is being rolled out, or an app is
missing.

No attempt is spent on such jobs, and no claim walks over them again and again: a worker leaves out the kinds that it
does not know, and what no worker carries out is held until one does. `unserved.py` buries what waits too long.

Which workers these are depends on the job's pool: those that serve it, and those that serve all. So a kind is held,
left out and taken up in one pool apart from the others; where there are no pools, that is the one without a name.
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

from django.db.models import Q, Value
from django.db.models.functions import Coalesce

from jobs.handlers.registry import Handler, all_handlers, served_names
from jobs.models import Executor, Job, PauseSwitch
from jobs.services.operate import pauses
from jobs.services.operate.pools import alive
from jobs.states import WAITING, JobState
from queueops.core.clock import Now
from queueops.core.notify import Channel, notify
from queueops.core.sealing import payload_keys

from .claimed import ClaimedJob

KINDS_LOOK_SECONDS = 5.0
CHUNKS = 4  # held or put back at once; house-keeping does the rest, and claims and renewals go on
INVALID_PAYLOAD = "invalid_payload"
KEY_MISSING = "payload_key_missing"
SYSTEM = "system"

Scope = PauseSwitch.Scope
KindOfPool = tuple[str, str]  # its name, and the pool that its jobs are in; empty: in none
UNSERVED = frozenset({Scope.UNKNOWN, Scope.UNFIT, Scope.SEALED})
NOTHING: frozenset[KindOfPool] = frozenset()
JOBS_POOL = Coalesce("pool", Value(""))


@dataclass(frozen=True, slots=True)
class _Other:
    """
    Another living executor.

    Attributes:
        pool: Whose jobs it serves; empty: all.
        kinds: What it carries out, each with its payload's version.
    """

    pool: str
    kinds: Mapping[str, str]
    started_at: datetime

    def knows(self, kind: str, pool: str) -> bool:
        return kind in self.kinds and self.pool in {"", pool}


def kinds_served() -> dict[str, str]:
    """By each name that this process carries jobs out under, former ones too, the version of its payload's schema."""
    versions = {handler.kind: version_of(handler) for handler in all_handlers()}
    return {name: versions[kind] for name, kind in served_names().items()}


# How payloads are stored. Workers of the release before take none that is kept as text, and hold such jobs as they do
# those of another version; an executor whose version is the same would leave them held (docs/adr/0068).
STORED_AS = "text"


@cache
def version_of(handler: Handler) -> str:
    """A digest of its payload's schema, and of how payloads are stored."""
    try:
        text = json.dumps(handler.schema.json_schema(), sort_keys=True)
    except Exception:  # noqa: BLE001 - a type that has no JSON Schema; its versions cannot be told apart
        text = ""
    return hashlib.sha256(f"{STORED_AS} {text}".encode()).hexdigest()[:12]


class ServedKinds:
    """
    What one executor carries out, and which kinds it leaves to others. For its pump's thread.

    Args:
        pool: Whose jobs alone it claims; empty: all.

    Attributes:
        strange: What its claims leave out.
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
        """Those that it can carry out; `tend`, before the next claim, has that leave out the kinds of the others."""
        served = served_names()
        unknown = {job.id for job in chosen if job.kind not in served}
        if unknown:
            self._met |= unknown
            self._look_at = 0.0
        return [job for job in chosen if job.id not in unknown]

    def refuse(self, jobs: Collection[UUID]) -> None:
        """Note that the stored payloads of these jobs did not fit their schemas here."""
        if jobs:
            self._refused_now.update(jobs)
            self._look_at = 0.0

    @property
    def must_look(self) -> bool:
        """Whether a kind was met of which nobody knows yet whether another executor carries it out."""
        return self._look_at == 0.0

    def left_out(self) -> list[str]:
        """`strange` in the words of jobs/sql/fragments/kind_of_pool.sql."""
        return [f"{pool} {kind}" for kind, pool in self.strange]

    def tend(self) -> None:
        """
        Hold what nobody carries out, and take up what this executor does; cheap, and does nothing most of the time.

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
            for kind, pool in met - unknown:
                _withhold(kind, pool)
            # What nobody knows its switch keeps off claims; left out here too, its next job would not be noticed.
            self._unknown = unknown
            # Only to those that began later: two that gave way to each other would leave the kind to nobody.
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
    Put back the held jobs of kinds, and of versions, that an executor carries out. Not inside a transaction.

    Args:
        served: Each kind with its payload's version.
        pool: Whose jobs alone it claims: of others it takes up none, whose workers would only hold them again.
        strange: What it leaves to others.
    """
    _take_up_closed(pool)
    for switch in PauseSwitch.objects.filter(scope__in=UNSERVED - {Scope.SEALED}, key__in=list(served)):
        if switch.scope == Scope.UNKNOWN:
            if pool in {"", switch.pool} and (switch.key, switch.pool) not in strange:
                switch.delete()
                pauses.release_uncovered(chunks=CHUNKS)
            continue
        left = [of for kind, of in strange if kind == switch.key]
        untried = Job.objects.filter(misfits_of(switch.key)).exclude(
            last_error_message__startswith=refusal_of(served[switch.key])
        )
        if pool or left:
            untried = untried.alias(of=JOBS_POOL).exclude(of__in=left).filter(Q(of=pool) if pool else Q())
        ids = list(untried.values_list("pk", flat=True)[: pauses.HOLD_CHUNK])
        if ids and Job.objects.filter(misfits_of(switch.key), pk__in=ids).update(held=False, updated_at=Now()):
            notify(Channel.READY)


def _take_up_closed(pool: str) -> None:
    """Put back what waits for a payload key that this executor has."""
    for switch in PauseSwitch.objects.filter(scope=Scope.SEALED, key__in=list(payload_keys())):
        waiting = Job.objects.filter(closed_by(switch.key))
        mine = waiting.filter(pool=pool) if pool else waiting
        ids = list(mine.values_list("pk", flat=True)[: pauses.HOLD_CHUNK])
        if ids and Job.objects.filter(closed_by(switch.key), pk__in=ids).update(held=False, updated_at=Now()):
            notify(Channel.READY)
        if not waiting.exists():
            switch.delete()


def keep_closed(jobs: Sequence[ClaimedJob]) -> None:
    """Hold jobs, just given back in the caller's transaction, whose payload is encrypted with a key not set here."""
    for key in sorted({job.closed_by for job in jobs}):
        PauseSwitch.objects.get_or_create(
            scope=Scope.SEALED, key=key, defaults={"paused_by": SYSTEM, "reason": "payloads need it"}
        )
    ids = [job.id for job in jobs]
    Job.objects.filter(pk__in=ids, status=JobState.RETRIED).update(held=True, updated_at=Now())


def kept_closed(key: str) -> str:
    """The last error of a job whose payload needs a key that its worker did not have; held_otherwise.sql has it too."""
    return f"its payload is encrypted with the key {key}, which is not among QUEUEOPS_PAYLOAD_KEYS here"


def closed_by(key: str) -> Q:
    """The jobs that wait for a worker that has the payload key of this name."""
    return Q(held=True, status__in=WAITING, last_error_code=KEY_MISSING, last_error_message=kept_closed(key))


def set_aside(jobs: Sequence[ClaimedJob]) -> None:
    """Hold jobs, just given back in the caller's transaction, whose payload this process's handler does not take."""
    for kind in sorted({job.kind for job in jobs}):
        PauseSwitch.objects.get_or_create(
            scope=Scope.UNFIT, key=kind, defaults={"paused_by": SYSTEM, "reason": "its payload is of another version"}
        )
    ids = [job.id for job in jobs]
    Job.objects.filter(pk__in=ids, status=JobState.RETRIED).update(held=True, updated_at=Now())


REFUSED_BY = re.compile(r"schema \w*: ")  # as refusal_of words it


def refusal_of(version: str) -> str:
    """How the last error of a job begins whose payload this version of its schema refused; it does not try again."""
    return f"schema {version}: "


def misfits_of(kind: str) -> Q:
    """The jobs of a kind that wait for a worker that takes their payload."""
    return Q(kind=kind, held=True, status__in=WAITING, last_error_code=INVALID_PAYLOAD)


def held_as_unknown(switch: PauseSwitch) -> Q:
    """The jobs that wait because no worker that serves their pool knows their kind."""
    of_pool = Q(pool=switch.pool) if switch.pool else Q(pool="") | Q(pool=None)
    return Q(of_pool, kind=switch.key, held=True, status__in=WAITING)


def _withhold(kind: str, pool: str) -> None:
    """An executor that knows it and registers meanwhile sees the switch at its next look, as every other does."""
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
    """The other living executors; and when this one began."""
    others, began_at = [], None
    living = Executor.objects.filter(alive())
    for pk, pool, kinds, started_at in living.values_list("pk", "pool", "kinds", "started_at"):
        if pk == executor_id:
            began_at = started_at
        else:
            others.append(_Other(pool, kinds, started_at))
    return others, began_at
