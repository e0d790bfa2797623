"""
Credentials of pools that their provider refuses: taken out, while the jobs that met it go on with others.

A job is not to empty a pool by being refused itself, as for a document that no credential may read. An answer that
speaks of the credential alone (401, or a secret that cannot be used) always takes it out; a 403 does once a job:
the second credential that the same job is refused with stays, the first comes back, and the job fails.
"""

from __future__ import annotations

from collections.abc import Sequence
from http import HTTPStatus
from typing import TYPE_CHECKING
from uuid import UUID

from jobs.classify import Failure
from jobs.lanes import pool_of_lane
from queueops.tenancy import pools
from queueops.tenancy.models import CredentialPoolMember

if TYPE_CHECKING:
    from .finish import Failed

# Of the secret, not of what was asked for with it.
OF_SECRET = frozenset({"credential_unusable", "credential_unreadable", "api_key_invalid", "invalid_api_key"})


def is_refused(failure: Failure) -> bool:
    """Whether a provider, or we ourselves, would not have the credential."""
    return failure.status in (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN) or failure.code in OF_SECRET


def take_out_refused(failed: Sequence[Failed]) -> set[UUID]:
    """
    Take the refused credentials of pools' jobs out of their pools, in the caller's transaction.

    Locks the members, in the order of their keys.

    Returns:
        The jobs that go on with another credential, which spends no attempt.
    """
    refused = [one for one in failed if is_refused(one.failure) and pool_of_lane(one.job.lane)]
    if not refused:
        return set()
    at_fault = _at_fault([one for one in refused if one.failure.code not in OF_SECRET])
    why = {one.job.credential or "": (one.failure.message, one.job.id) for one in refused if one.job.id not in at_fault}
    pools.take_out(why)
    return {one.job.id for one in refused} - at_fault


def _at_fault(forbidden: Sequence[Failed]) -> set[UUID]:
    """The jobs that a second credential is refused with; what the first was blamed for is taken back."""
    jobs = {one.job.id: one.job.credential for one in forbidden if one.failure.status == HTTPStatus.FORBIDDEN}
    if not jobs:
        return set()
    out = CredentialPoolMember.objects.standing_out().filter(refused_job__in=jobs)
    blamed = [
        (pk, job)
        for pk, job, name in out.values_list("pk", "refused_job", "credential__name")
        if job is not None and name != jobs[job]
    ]
    pools.put_back([pk for pk, _ in blamed])
    return {job for _, job in blamed}
