"""
Kinds, and payloads of a later version, that not every worker carries out: a release is being rolled out, or an app is
missing.

No attempt is spent on such jobs, and no claim walks over them again and again: a worker leaves out the kinds that it
does not know, and what no worker carries out is held until one does. `unserved.py` buries what waits too long.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from functools import cache
from uuid import UUID

from django.db.models import Q
from django.db.models.functions import Now

from jobs.handlers.registry import Handler, all_handlers, served_names
from jobs.models import Executor, Job, PauseSwitch
from jobs.services.operate import pauses
from jobs.services.operate.pools import alive
from jobs.states import WAITING, JobState
from queueops.core.notify import Channel, notify

from .claimed import ClaimedJob

KINDS_LOOK_SECONDS = 5.0
CHUNKS = 4  # held or put back at once; house-keeping does the rest, and claims and renewals go on
INVALID_PAYLOAD = "invalid_payload"
SYSTEM = "system"

Scope = PauseSwitch.Scope
UNSERVED = frozenset({Scope.UNKNOWN, Scope.UNFIT})


def kinds_served() -> dict[str, str]:
    """By each name that this process carries jobs out under, former ones too, the version of its payload's schema."""
    versions = {handler.kind: version_of(handler) for handler in all_handlers()}
    return {name: versions[kind] for name, kind in served_names().items()}


@cache
def version_of(handler: Handler) -> str:
    """A digest of its payload's schema; empty where that has none."""
    try:
        text = json.dumps(handler.schema.json_schema(), sort_keys=True)
    except Exception:  # noqa: BLE001 - a type that has no JSON Schema; its versions cannot be told apart
        return ""
    return hashlib.sha256(text.encode()).hexdigest()[:12]


class ServedKinds:
    """
    What one executor carries out, and which kinds it leaves to others. For its pump's thread.

    Attributes:
        strange: Kinds that its claims leave out.
    """

    def __init__(self, executor_id: UUID, *, pool: str = "") -> None:
        self.executor_id = executor_id
        self._pool = pool
        self.strange: frozenset[str] = frozenset()
        self._served = kinds_served()
        self._met: set[str] = set()
        self._unknown: set[str] = set()
        self._refused: set[str] = set()
        self._look_at = 0.0

    def known_of(self, chosen: Sequence[ClaimedJob]) -> list[ClaimedJob]:
        """Those that it can carry out; the kinds of the others are left out from now on."""
        served = served_names()
        unknown = {job.kind for job in chosen if job.kind not in served}
        if unknown:
            self._met |= unknown
            self.strange |= unknown
            self._look_at = 0.0
        return [job for job in chosen if job.kind not in unknown]

    def refuse(self, kinds: Collection[str]) -> None:
        """Note that stored payloads of these kinds did not fit their schemas here."""
        if kinds:
            self._refused.update(kinds)
            self._look_at = 0.0

    @property
    def must_look(self) -> bool:
        """Whether a kind was met of which nobody knows yet whether another executor carries it out."""
        return self._look_at == 0.0

    def tend(self) -> None:
        """
        Hold what nobody carries out, and take up what this executor does; cheap, and does nothing most of the time.

        Not to be called inside a transaction.
        """
        now = time.monotonic()
        if now < self._look_at:
            return
        self._look_at = now + KINDS_LOOK_SECONDS
        met, self._met = self._met, set()
        if met or self._unknown or self._refused:
            others, began_at = _others(self.executor_id, self._pool)
            for kind in met - others.keys():
                _withhold(kind)
            # What nobody knows its switch keeps off claims; left out here too, its next job would not be noticed.
            self._unknown = (self._unknown | met) & others.keys()
            # Only to those that began later: two that gave way to each other would leave the kind to nobody.
            self._refused = {
                kind
                for kind in self._refused
                if any(
                    version != self._served.get(kind) and (began_at is None or began > began_at)
                    for version, began in others.get(kind, ())
                )
            }
            self.strange = frozenset(self._unknown | self._refused)
        take_up({kind: version for kind, version in self._served.items() if kind not in self.strange}, pool=self._pool)


def take_up(served: Mapping[str, str], *, pool: str = "") -> None:
    """
    Put back the held jobs of kinds, and of versions, that an executor carries out. Not inside a transaction.

    Args:
        pool: Whose jobs alone it claims: where none of them is held, the others would only be held again.
    """
    for switch in PauseSwitch.objects.filter(scope__in=UNSERVED, key__in=list(served)):
        if pool and not Job.objects.filter(kind=switch.key, held=True, status__in=WAITING, pool=pool).exists():
            continue
        if switch.scope == Scope.UNKNOWN:
            switch.delete()
            pauses.release_uncovered(chunks=CHUNKS)
            continue
        untried = Job.objects.filter(misfits_of(switch.key)).exclude(
            last_error_message__startswith=refusal_of(served[switch.key])
        )
        ids = list(untried.values_list("pk", flat=True)[: pauses.HOLD_CHUNK])
        if ids and Job.objects.filter(misfits_of(switch.key), pk__in=ids).update(held=False, updated_at=Now()):
            notify(Channel.READY)


def set_aside(jobs: Sequence[ClaimedJob]) -> None:
    """Hold jobs, just given back in the caller's transaction, whose payload this process's handler does not take."""
    for kind in sorted({job.kind for job in jobs}):
        PauseSwitch.objects.get_or_create(
            scope=Scope.UNFIT, key=kind, defaults={"paused_by": SYSTEM, "reason": "its payload is of another version"}
        )
    ids = [job.id for job in jobs]
    Job.objects.filter(pk__in=ids, status=JobState.RETRIED).update(held=True, updated_at=Now())


def refusal_of(version: str) -> str:
    """How the last error of a job begins whose payload this version of its schema refused; it does not try again."""
    return f"schema {version}: "


def misfits_of(kind: str) -> Q:
    """The jobs of a kind that wait for a worker that takes their payload."""
    return Q(kind=kind, held=True, status__in=WAITING, last_error_code=INVALID_PAYLOAD)


def _withhold(kind: str) -> None:
    """An executor that knows it and registers meanwhile sees the switch at its next look, as every other does."""
    switch, _ = PauseSwitch.objects.get_or_create(
        scope=Scope.UNKNOWN, key=kind, defaults={"paused_by": SYSTEM, "reason": "no worker knows it"}
    )
    pauses.hold(switch, chunks=CHUNKS)


def _others(executor_id: UUID, pool: str) -> tuple[dict[str, list[tuple[str, datetime]]], datetime | None]:
    """
    By kind, the versions that other living executors carry out and when each began; and when this one did.

    Args:
        pool: Of this one. Executors of other pools do not claim the same jobs.
    """
    found: dict[str, list[tuple[str, datetime]]] = {}
    began_at = None
    living = Executor.objects.filter(alive(), Q(pool__in=["", pool]) if pool else Q())
    for pk, served, started_at in living.values_list("pk", "kinds", "started_at"):
        if pk == executor_id:
            began_at = started_at
            continue
        for kind, version in served.items():
            found.setdefault(kind, []).append((version, started_at))
    return found, began_at
