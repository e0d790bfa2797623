"""
Pool credentials that their provider refuses: whose fault a refusal is, and how the refused jobs go on.

A refused job goes on with the pool's other members, once with each. If no member is left, the job fails if the refusals
are its own fault. They are if a refused member was accepted for other calls since, or the last refusal forbids the
request (403). Otherwise the fault is not known yet, and the job waits. queueops/tenancy/credential_pools/refusals.py
says when a member is taken out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from http import HTTPStatus
from uuid import UUID

from jobs.classify import Failure
from jobs.handlers.errors import ANSWER_BLOCKED
from jobs.handlers.refusals import ACCOUNT_CLOSED
from jobs.lanes import pool_of_lane
from jobs.services.finish.encrypted_outcomes import outward
from jobs.services.finish.outcomes import Failed, GivenBack, Succeeded
from queueops.tenancy.credential_pools import pools, refusals
from queueops.tenancy.credential_pools.refusals import RefusedCall

# Codes that blame the secret, not the request made with it.
OF_SECRET = frozenset({"credential_unusable", "credential_unreadable", "api_key_invalid", "invalid_api_key"})


@dataclass(frozen=True, slots=True)
class Rerouted:
    """`waits`: by job, the seconds until it goes on without spending an attempt. `failures`: by job, why it fails."""

    waits: dict[UUID, float]
    failures: dict[UUID, Failure]

    def said_of(self, failed: Sequence[Failed]) -> Sequence[Failed]:
        """Return the outcomes; an outcome of a job that fails by its own fault gets the failure found here."""
        if not self.failures:
            return failed
        return [replace(one, failure=self.failures.get(one.job.id, one.failure)) for one in failed]


def is_refused(failure: Failure) -> bool:
    """Whether a provider, or QueueOps itself, refused the credential; some refuse a job's own content with a 403."""
    return failure.code != ANSWER_BLOCKED and (
        failure.code in ACCOUNT_CLOSED
        or failure.status in (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN)
        or failure.code in OF_SECRET
    )


def note_accepted(answered: Sequence[Succeeded | GivenBack]) -> None:
    """Count earlier refusals of the credentials of these calls as the fault of the refused jobs."""
    calls = [(one.job.credential or "", one.job.claimed_at) for one in answered if pool_of_lane(one.job.lane)]
    if calls and refusals.accepted(calls):
        pools.forget()


def note_refused(failed: Sequence[Failed]) -> Rerouted:
    """Record refused pool credentials in the caller's transaction, and decide how their jobs go on."""
    found = Rerouted({}, {})
    refused = [one for one in failed if is_refused(one.failure) and pool_of_lane(one.job.lane)]
    if not refused:
        return found
    refusals.record(
        RefusedCall(
            one.job.credential or "",
            one.job.project,
            one.job.id,
            one.job.group or one.job.id,
            outward(one.job, one.failure.code, one.failure.message),
            # A provider's statement about the account is enough for its own project, without a second call.
            refusals.CALLS_OF_EVIDENCE if one.failure.code in ACCOUNT_CLOSED else 1,
        )
        for one in refused
    )
    pools.forget()
    met = refusals.refused_by([one.job.id for one in refused])
    for one in refused:
        job, by = one.job, met.get(one.job.id, {})
        members = pools.members_of(pool_of_lane(job.lane), job.project)
        if any(member.credential not in by and not member.is_on_trial for member in members):
            found.waits[job.id] = 0.0
        elif one.failure.code not in ACCOUNT_CLOSED and (any(by.values()) or _is_about_the_request(one.failure)):
            found.failures[job.id] = _own(one.failure, by)
        else:
            found.waits[job.id] = refusals.RESTED_SECONDS
    if found.failures:
        refusals.withdraw(list(found.failures))
        pools.forget()
    return found


def _is_about_the_request(failure: Failure) -> bool:
    return failure.status == HTTPStatus.FORBIDDEN and failure.code not in OF_SECRET


def _own(failure: Failure, by: Mapping[str, bool]) -> Failure:
    since = sum(by.values())
    told = f"{failure.message} (refused with {len(by)} of its pool's credentials; {since} accepted other calls since)"
    return replace(failure, message=told, details={**failure.details, "refused_with": sorted(by)})
