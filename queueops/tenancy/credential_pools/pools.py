"""
Credential pools: which credentials a call may show.

A lane's name has `pool:<name>` in place of a credential's quota project. The lane's subject adds the jobs' project,
`pool:<name>/<project>`, because a member may be taken out for one project alone. Members are cached for half a second:
after that every process uses the current ones.
"""

from __future__ import annotations

import threading
from collections.abc import Collection
from typing import NamedTuple

from cachetools import TTLCache, cached

from queueops.core.postgres.replica import from_primary
from queueops.tenancy.models import CredentialPool, CredentialPoolMember

from .refusals import Absence, absences

MARK = "pool:"  # the quota project of a pool's lanes begins with it; no provider's project does
MEMBERS_KEPT_SECONDS = 0.5

_lock = threading.Lock()
_kept: TTLCache[object, dict[str, list[tuple[PoolMember, list[Absence]]]]] = TTLCache(1, MEMBERS_KEPT_SECONDS)


class PoolMember(NamedTuple):
    """
    A credential that calls may show.

    Attributes:
        quota_project, quota_user: Whom the provider counts the calls for; an empty user: the job's own.
        is_on_trial: All members of the pool are taken out, and one call may try this member.
    """

    credential: str
    weight: float
    quota_project: str
    quota_user: str
    is_on_trial: bool = False


def principals_of(pool: str) -> tuple[str, str]:
    """
    Return the quota project and user of a pool in lanes' names. The user is empty: each user has a lane of their own.
    """
    return MARK + pool, ""


def asked_by(quota_project: str, project: str) -> str:
    """Return a quota project; if it is a pool's, add the project of the jobs."""
    return f"{quota_project}/{project}" if quota_project.startswith(MARK) else quota_project


def pool_of(quota_project: str) -> str:
    """Return the pool that a quota project stands for; empty: it is a provider's project."""
    return quota_project.removeprefix(MARK).partition("/")[0] if quota_project.startswith(MARK) else ""


def members_of(pool: str, project: str = "") -> tuple[PoolMember, ...]:
    """
    Return the members that calls may show, as read at most MEMBERS_KEPT_SECONDS ago.

    If no member is left, the members that have rested are on trial.

    Args:
        project: The project that makes the calls. Empty: members that are taken out only for some project are returned,
            too.
    """
    found = [(member, [one for one in out if one.concerns(project)]) for member, out in _read().get(pool, ())]
    if remain := tuple(member for member, out in found if not out):
        return remain
    return tuple(member._replace(is_on_trial=True) for member, out in found if all(one.rested for one in out))


def absences_of(credential: str) -> list[Absence]:
    """Return for which projects a pool's credential is taken out, as read at most MEMBERS_KEPT_SECONDS ago."""
    members = (one for found in _read().values() for one in found)
    return next((out for member, out in members if member.credential == credential), [])


def forget() -> None:
    """Forget the cached members: the next call reads them again. Call it after changing a pool."""
    with _lock:
        _kept.clear()


def pools_among(names: Collection[str]) -> frozenset[str]:
    """Return the names that are pools' names."""
    return frozenset(CredentialPool.objects.filter(name__in=set(names)).values_list("name", flat=True))


@cached(_kept, lock=_lock)
@from_primary
def _read() -> dict[str, list[tuple[PoolMember, list[Absence]]]]:
    out: dict[str, list[Absence]] = {}
    for absence in absences():
        out.setdefault(absence.credential, []).append(absence)
    found: dict[str, list[tuple[PoolMember, list[Absence]]]] = {}
    rows = CredentialPoolMember.objects.order_by("pk")
    columns = ("pool__name", "credential__name", "weight", "credential__quota_project", "credential__quota_user")
    for pool, *member in rows.values_list(*columns):
        found.setdefault(pool, []).append((PoolMember(*member), out.get(member[0], [])))
    return found
