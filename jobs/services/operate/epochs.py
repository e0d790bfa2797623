"""
A database that was put back to an earlier moment begins a new epoch, and is paused.

A person, `manage.py restore`, or a process that remembers rows that the database lacks begins the epoch. Executors
remember their claims, and the relay of a web process remembers its events.
"""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from django.conf import settings
from django.db import transaction
from django.db.models import Count
from django.utils import timezone

from jobs.handlers.registry import UnknownKind, find_handler
from jobs.models import SEARCHED_BACK, BatchSearch, Epoch, Job, PauseSwitch, ProviderBatch
from jobs.states import RUNNING, TERMINAL
from queueops.audit import trail
from queueops.core.clock import Now
from queueops.core.sql import run_sql
from queueops.core.values.reasons import clean_reason
from queueops.tenancy.scope import for_everyone
from ratelimits.limits.ramps import drop_ramp

PUT_BACK_REASON = (
    "The database was put back to an earlier moment: jobs wait in it that have run. See docs/how-to/back-up.md."
)
RESTORED_REASON = "Restored from a backup: look at what may have run since it was taken, then resume."
EVER: Literal["infinity"] = "infinity"
AGED_SECONDS = 86_400


@dataclass(frozen=True, slots=True)
class UnderWay:
    """Running calls of a kind; `idempotent`: None where each payload decides, or no handler is known here."""

    kind: str
    idempotent: bool | None
    count: int


@dataclass(frozen=True, slots=True)
class Restored:
    """
    Attributes:
        epoch: The new epoch; the present one in a dry run.
        executors, leases: How many executors were marked as dead, and how many leases were ended.
        alive: Executors whose heartbeat is recent and later than the server's start, so that they must be alive.
        under_way: Calls whose outcome the database cannot know.
    """

    epoch: str
    executors: int
    leases: int
    alive: int
    under_way: tuple[UnderWay, ...]


def ensure_epoch() -> None:
    """Give a new database its first epoch."""
    Epoch.objects.get_or_create(pk=1, defaults={"value": secrets.token_hex(8), "began_at": timezone.now()})


@for_everyone()
def current_epoch() -> str:
    """The epoch of this database's cursors."""
    return Epoch.objects.get().value


@transaction.atomic()
def declare_put_back(*, since: datetime, actor: str) -> bool:
    """
    Begin a new epoch and pause everything, because the database lacks committed rows.

    Args:
        since: When the epoch of the missing rows began.

    Returns:
        Whether this call began the epoch; False: somebody has already begun a later epoch.
    """
    epoch = _begin(since=since, actor=actor, reason=PUT_BACK_REASON)
    return epoch is not None


@transaction.atomic()
def declare_restored(
    *, actor: str, reason: str = RESTORED_REASON, every: bool = False, keeps: bool = False
) -> Restored:
    """
    Begin a new epoch, pause everything, and mark the executors of the dead installation as dead.

    Their leases end now, so that house-keeping takes their jobs back. Jobs that may be repeated wait under the pause;
    the others become dead letters, `outcome_unknown`. Executors that live keep their jobs.

    Args:
        every: Treat all executors as dead, whatever their rows say, because the database is new.
        keeps: A dry run: keep the database as it is.
    """
    under_way = tuple(
        UnderWay(kind, _is_idempotent(kind), count)
        for kind, count in Job.objects.filter(status__in=RUNNING)
        .order_by("kind")
        .values_list("kind")
        .annotate(count=Count("pk"))
    )
    before = Epoch.objects.get().value
    silent = 10 * settings.QUEUEOPS.lease_seconds
    parameters = {"every": every, "silent": silent, "aged": AGED_SECONDS}
    [(executors, leases, alive)] = run_sql("jobs", "forget_executors", parameters)
    if keeps:
        transaction.set_rollback(True)
        return Restored(before, executors, leases, alive, under_way)
    reason = clean_reason(reason) or RESTORED_REASON
    after = {"under_way": sum(one.count for one in under_way), "executors": executors, "leases": leases}
    epoch = _begin(since=EVER, actor=actor, reason=reason, after=after)
    return Restored(epoch or "", executors, leases, alive, under_way)


def _begin(
    *, since: datetime | Literal["infinity"], actor: str, reason: str, after: dict[str, int] | None = None
) -> str | None:
    ensure_epoch()  # in case somebody deleted the row, without which relays see no events
    before = Epoch.objects.get().value
    rows = run_sql("jobs", "begin_epoch", {"since": since, "actor": actor, "reason": reason})
    if not rows:
        return None
    # Count one creation: the provider may have got the batch in the lost time. A batch with a creation is searched for
    # before it is made again.
    ProviderBatch.objects.filter(state=ProviderBatch.State.CREATING, creations=0).update(creations=1)
    _search_providers()
    drop_ramp()  # a ramp that waits to begin would end this pause instead of its own
    epoch: str = rows[0][0]
    trail.record(
        actor=actor,
        action="begin_epoch",
        target=str(PauseSwitch.Scope.GLOBAL),
        before={"epoch": before},
        after={"epoch": epoch, "paused": True, **(after or {})},
        reason=reason,
    )
    return epoch


def _search_providers() -> None:
    """
    Request a search of the lists of all providers that may have batches of the lost time.

    Reads all jobs once: jobs that may have been sent after the restored moment must not be sent a second time.
    """
    waiting = Job.objects.filter(via__isnull=False, credential__isnull=False).exclude(status__in=TERMINAL)
    batches = ProviderBatch.objects.filter(created_at__gt=Now() - SEARCHED_BACK)
    names = ("kind", "service", "credential")
    found = {*waiting.order_by().values_list(*names).distinct(), *batches.order_by().values_list(*names).distinct()}
    began = Epoch.objects.get().began_at
    BatchSearch.objects.all().delete()
    BatchSearch.objects.bulk_create(
        BatchSearch(kind=kind, service=service, credential=credential, made_before=began)
        for kind, service, credential in sorted(found)
        if credential
    )


def _is_idempotent(kind: str) -> bool | None:
    try:
        idempotent = find_handler(kind).idempotent
    except UnknownKind:
        return None
    return None if callable(idempotent) else idempotent
