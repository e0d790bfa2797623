"""
Credential pools: which credentials a call may show.

A pool stands in a lane's name where a credential's project would, as `pool:<name>`. Its members are kept for half a
second, so that one which is taken out or put back is known to every process within it.
"""

from __future__ import annotations

import threading
from collections.abc import Collection, Mapping
from typing import NamedTuple
from uuid import UUID

from cachetools import TTLCache, cached
from django.db.models.functions import Now

from queueops.core.postgres.replica import from_primary

from .models import CredentialPool, CredentialPoolMember

MARK = "pool:"  # begins the quota project of a pool's lanes; no provider's project begins so
MEMBERS_KEPT_SECONDS = 0.5

_lock = threading.Lock()
_kept: TTLCache[object, dict[str, tuple[PoolMember, ...]]] = TTLCache(1, MEMBERS_KEPT_SECONDS)


class PoolMember(NamedTuple):
    """
    A credential that calls may show.

    Attributes:
        quota_project, quota_user: Whom the provider counts; an empty user: the job's own.
    """

    credential: str
    weight: float
    quota_project: str
    quota_user: str


def principals_of(pool: str) -> tuple[str, str]:
    """Project and user that stand for a pool in the names of lanes: its users wait in lanes of their own."""
    return MARK + pool, ""


def pool_of(quota_project: str) -> str:
    """The pool that a quota project stands for; empty: it is a provider's project."""
    return quota_project.removeprefix(MARK) if quota_project.startswith(MARK) else ""


def members_of(pool: str) -> tuple[PoolMember, ...]:
    """Return the members that calls may show, as read at most MEMBERS_KEPT_SECONDS ago."""
    return _read().get(pool, ())


def forget() -> None:
    """Read again at the next call; call it after changing a pool."""
    with _lock:
        _kept.clear()


def pools_among(names: Collection[str]) -> frozenset[str]:
    """Return which of these names are pools'."""
    return frozenset(CredentialPool.objects.filter(name__in=set(names)).values_list("name", flat=True))


def take_out(credentials: Mapping[str, tuple[str, UUID]]) -> set[str]:
    """
    Take credentials out of every pool, in the caller's transaction.

    Args:
        credentials: By name: why, and the job that its provider refused.

    Returns:
        Those that were in one until now.
    """
    members = CredentialPoolMember.objects.filter(credential__name__in=credentials, taken_out_at=None)
    rows = list(members.order_by("pk").select_for_update(of=("self",)).values_list("pk", "credential__name"))
    for pk, name in rows:
        reason, job = credentials[name]
        CredentialPoolMember.objects.filter(pk=pk).update(taken_out_at=Now(), reason=reason[:500], refused_job=job)
    forget()
    return {name for _, name in rows}


def put_back(members: Collection[int]) -> set[int]:
    """Put members back into their pools, in the caller's transaction; return those that were out."""
    out = CredentialPoolMember.objects.standing_out().filter(pk__in=members)
    found = set(out.order_by("pk").select_for_update(of=("self",)).values_list("pk", flat=True))
    CredentialPoolMember.objects.filter(pk__in=found).update(taken_out_at=None, reason="", refused_job=None)
    forget()
    return found


@cached(_kept, lock=_lock)
@from_primary
def _read() -> dict[str, tuple[PoolMember, ...]]:
    found: dict[str, list[PoolMember]] = {}
    rows = CredentialPoolMember.objects.filter(taken_out_at=None).order_by("pk")
    columns = ("pool__name", "credential__name", "weight", "credential__quota_project", "credential__quota_user")
    for pool, *member in rows.values_list(*columns):
        found.setdefault(pool, []).append(PoolMember(*member))
    return {pool: tuple(members) for pool, members in found.items()}
