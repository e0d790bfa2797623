"""Finds the row of the caller's project that an argument names: by a full id, its end as lists show it, or a name."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from dashboards.services.find import Found, find
from jobs.models import DeadLetter
from queueops.tenancy.callers.authentication import Caller
from queueops.tenancy.scope import reading_for
from ratelimits.models import Limit

from .errors import Ambiguous, nothing_found

# A project's key may find jobs, batches and limits; people, keys and credentials are for operators.
_OF_A_PROJECT = frozenset({"jobs.view_job", "jobs.view_batch", "ratelimits.view_limit"})


class _SeesProject:
    def has_perm(self, perm: str, /) -> bool:
        return perm in _OF_A_PROJECT


def search(caller: Caller, term: str) -> Found:
    """Search everything within the caller's project: the database returns no row of another project."""
    with reading_for(caller.project_id, caller.user_id):
        return find(term, _SeesProject())


def job_id(caller: Caller, given: str) -> UUID:
    """
    Raises:
        ApiRefused, Ambiguous
    """
    return UUID(_only(caller, "Jobs", "job", given))


def batch_id(caller: Caller, given: str) -> UUID:
    """
    Raises:
        ApiRefused, Ambiguous
    """
    return UUID(_only(caller, "Batches", "batch", given))


def limit_of(given: str) -> Limit:
    """
    Find a limit by name or id, whatever project asks: limits belong to the installation.

    Raises:
        ApiRefused
    """
    wanted: dict[str, Any] = {"pk": given} if given.isdecimal() and len(given) < 10 else {"name": given}  # noqa: PLR2004
    limit = Limit.objects.filter(**wanted).first()
    if limit is None:
        raise nothing_found(f"There is no limit {given[:100]!r}.")
    return limit


def letters_of(caller: Caller, fingerprint: str) -> Any:
    return DeadLetter.objects.of_project(caller.project_id).open().filter(fingerprint=fingerprint)


def _only(caller: Caller, sort: str, what: str, given: str) -> str:
    keys = [hit.key for hit in search(caller, given).hits.get(sort, [])]
    if not keys:
        raise nothing_found(f"The project has no {what} {given[:100]!r}.")
    if len(keys) > 1:
        raise Ambiguous(f"Several of the project's {sort.lower()} fit {given[:100]!r}.", found=keys)
    return keys[0]
