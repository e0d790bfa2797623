"""Clusters may be set aside for a pool of jobs. The pools' rules are rows, so that all processes use the same rules."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from django.conf import settings
from django.core.exceptions import ValidationError
from django.db import connection, transaction
from django.db.models import Q

from jobs.features.pools.errors import BadPool, PoolInUse
from jobs.handlers.registry import all_handlers
from jobs.models import SINCE_EVER, Executor, FlowSample, Pool, PoolSweep
from queueops.audit import trail
from queueops.core.clock import Now
from queueops.core.database import UnsuitableDatabase
from queueops.core.values.numbers import numbered
from queueops.tenancy.models import Project
from ratelimits.limits.catalogue import limited_services

LISTS = ("services", "kinds", "projects")


@transaction.atomic
def save_pool(
    name: str,
    *,
    services: Sequence[str] = (),
    kinds: Sequence[str] = (),
    projects: Sequence[str] = (),
    place: int = 100,
    actor: str,
) -> Pool:
    """
    Add a pool, or change what it serves. Unfinished jobs follow within seconds, a million of them within minutes.

    Raises:
        BadPool: A name or list is not valid. Nothing was changed.
    """
    before = Pool.objects.filter(pk=name).first()
    pool = Pool(name=name, services=[*services], kinds=[*kinds], projects=[*projects], place=place)
    pool.served_at = before.served_at if before else None
    try:
        pool.full_clean(validate_unique=False)
        check_lists(pool)
    except ValidationError as error:
        raise BadPool("; ".join(f"{field}: {' '.join(said)}" for field, said in error.message_dict.items())) from None
    pool.save()
    trail.record(
        actor=actor,
        action=f"{'change' if before else 'add'}_pool",
        target=f"pool {name}",
        before=rules_of(before) if before else None,
        after=rules_of(pool),
    )
    _begin_sweep()
    return pool


def check_lists(pool: Pool) -> None:
    """
    Check a pool's lists together, and their projects: a single form field can check neither.

    Raises:
        ValidationError: All lists are empty, or a project does not exist.
    """
    if not any(getattr(pool, words) for words in LISTS):
        raise ValidationError({"services": "Name a service, a kind or a project; * stands for all."})
    exact = {word for word in pool.projects if not word.endswith("*")}
    missing = sorted(exact - set(Project.objects.filter(pk__in=exact).values_list("pk", flat=True)))
    if missing:
        raise ValidationError({"projects": f"There is no project {', '.join(missing)}."})


def unheard_of(services: Sequence[str]) -> list[str]:
    """
    Return the pool's services that nothing here uses: no handler, no enabled limit, and no job so far.

    That is normal before the first job. Otherwise the name is misspelt, and the pool stays empty.

    Args:
        services: Names that stand for many (`http*`) are not looked at.
    """
    known = {one.service for one in all_handlers() if isinstance(one.service, str)} | limited_services()
    known |= set(FlowSample.objects.filter(span_seconds=SINCE_EVER).values_list("service", flat=True))
    return [word for word in services if word not in known and not word.endswith("*")]


@transaction.atomic
def delete_pool(name: str, *, actor: str) -> None:
    """
    Delete a pool; its jobs go to the next pool that names them, or to none.

    Raises:
        PoolInUse: Live clusters serve it, and would have nothing to do.
        BadPool: There is no pool of this name.
    """
    pool = Pool.objects.filter(pk=name).first()
    if pool is None:
        raise BadPool(f"There is no pool {name!r}.")
    serving = Executor.objects.filter(alive(), pool=name).count()
    if serving:
        who = numbered(serving, "live executor serves", "live executors serve")
        raise PoolInUse(f"{who} pool {name}: stop its clusters first.", executors=serving)
    pool.delete()
    trail.record(actor=actor, action="delete_pool", target=f"pool {name}", before=rules_of(pool), after=None)
    _begin_sweep()


def ensure_pool(name: str) -> None:
    """
    Check the name of the pool that a cluster is to serve. An empty name stands for all jobs.

    Raises:
        UnsuitableDatabase: There is no such pool.
    """
    if not name or Pool.objects.filter(pk=name).exists():
        return
    there = ", ".join(Pool.objects.values_list("name", flat=True)) or "none yet"
    raise UnsuitableDatabase(
        f"QUEUEOPS_POOL (or --pool) must be the name of a pool; {name!r} is none. There are: {there}. "
        "Add it in the admin, or with manage.py set_pool."
    )


def pools_served() -> frozenset[str] | None:
    """The pools that live executors serve; None: one of them serves all jobs, or no executor is live."""
    served = frozenset(Executor.objects.filter(alive()).values_list("pool", flat=True).distinct())
    return None if "" in served or not served else served


def alive() -> Q:
    """Executors that do not drain, and whose last heartbeat is not older than a lease."""
    return Q(draining=False, heartbeat_at__gt=Now() - timedelta(seconds=settings.QUEUEOPS.lease_seconds))


def rules_of(pool: Pool) -> dict[str, Any]:
    """The fields of a pool that the audit trail keeps."""
    return {"name": pool.name, "place": pool.place, **{words: list(getattr(pool, words)) for words in LISTS}}


def _begin_sweep() -> None:
    """Begin the passes over all jobs anew, in the transaction that changed the rules; see assign.py."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_current_xact_id()::text::bigint")
        [xid] = cursor.fetchone() or [0]
    anew = {"changed_at": Now(), "xid": xid, "after": uuid.UUID(int=0), "passes": 0}
    PoolSweep.objects.update_or_create(defaults=anew, id=1)
