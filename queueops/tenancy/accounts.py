"""
Finds out whether calls that a limit counts together belong to several accounts at the provider.

A provider's statement about a quota concerns only the account whose key the call showed. Credentials of one quota
project are one account; each credential without a quota project may be an account of its own.
"""

from __future__ import annotations

import threading
from typing import NamedTuple

from cachetools import TTLCache, cached

from queueops.core.postgres.replica import from_primary

from .models import PLATFORM, Credential, Project

ACCOUNTS_KEPT_SECONDS = 5.0  # how long a new credential or project may go unnoticed

_lock = threading.Lock()
_kept: TTLCache[object, _Known] = TTLCache(1, ACCOUNTS_KEPT_SECONDS)


class _Account(NamedTuple):
    """
    A credential's account: the `project` and `user` that the provider counts. Empty: the job's own project or user.
    Only jobs of `projects` may use the credential.
    """

    name: str
    project: str
    user: str
    projects: frozenset[str]


class _Known(NamedTuple):
    by_service: dict[str, tuple[_Account, ...]]
    are_shared: bool  # whether there are several projects


def are_several(service: str, *, project: str | None, user: str | None) -> bool:
    """
    Whether calls of several accounts may be counted together.

    If a service has no credentials, its jobs bring secrets of their own: each project counts as one account.

    Args:
        project, user: The provider's project and user whose calls are counted; None: all.
    """
    known = _read()
    accounts = known.by_service.get(service)
    if accounts is None:
        return project is None and known.are_shared
    counted = {
        one.project or ("named", one.name)
        for one in accounts
        if (project is None or project == one.project or (not one.project and project in one.projects))
        and (user is None or one.user in ("", user))
    }
    return len(counted) > 1


def forget() -> None:
    """Forget the cached accounts: the next call reads them again."""
    with _lock:
        _kept.clear()


@cached(_kept, lock=_lock)
@from_primary
def _read() -> _Known:
    found: dict[str, list[_Account]] = {}
    rows = Credential.objects.order_by("pk").prefetch_related("projects", "memberships__pool__projects")
    for row in rows:
        own = {project.pk for project in row.projects.all()}
        pooled = {project.pk for member in row.memberships.all() for project in member.pool.projects.all()}
        account = _Account(row.name, row.quota_project, row.quota_user, frozenset(own | pooled))
        found.setdefault(row.service, []).append(account)
    owners = Project.objects.exclude(pk=PLATFORM).order_by()
    return _Known({name: tuple(rows) for name, rows in found.items()}, owners[:2].count() > 1)
