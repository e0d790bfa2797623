"""
Providers' refusals of credentials in pools, and the credentials that are taken out because of them.

A refusal is evidence against its credential until the provider accepts a call that shows it and began later. The
refusal then counts as the job's own fault. A credential's refusals are added up whenever they are read: processes that
record some at the same time lose none.
docs/adr/0051 gives the reasons for these rules.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import NamedTuple
from uuid import UUID

from django.db.models import Q

from queueops.core.clock import Now
from queueops.core.sql import run_sql, run_sql_as
from queueops.tenancy.models import CredentialRefusal

CALLS_OF_EVIDENCE = 3  # refused calls of one project, with none accepted since, take a credential out for the project
PROJECTS_OF_EVIDENCE = 3  # projects, each with a refused call and none accepted since, take it out for all
RESTED_SECONDS = 60.0  # between calls that try a credential, if its pool has no other for the project

REST = timedelta(seconds=RESTED_SECONDS)


class RefusedCall(NamedTuple):
    """
    A job's call that showed a credential and was refused.

    Attributes:
        call: The claimed job, if this job left with it in one call; otherwise this job itself.
        counts: The number of refusals that this call counts as.
    """

    credential: str
    project: str
    job: UUID
    call: UUID
    reason: str
    counts: int = 1


class Absence(NamedTuple):
    """
    A credential that is taken out.

    Attributes:
        project: The project for whose jobs it is out; empty: for all.
        calls, projects: How many calls were refused since the credential was last accepted, and of how many projects.
        rested: Whether its last refusal and its last trial are more than RESTED_SECONDS ago.
        jobs: The last five jobs that were refused.
    """

    credential_id: int
    credential: str
    project: str
    calls: int
    projects: int
    since: datetime
    rested: bool
    reason: str
    jobs: Sequence[str]

    def concerns(self, project: str) -> bool:
        return self.project in ("", project)

    @property
    def evidence(self) -> str:
        """The evidence in words: `3 calls of acme`, `4 calls of 3 projects`."""
        return f"{self.calls} calls of {self.project or f'{self.projects} projects'}"


def record(refusals: Iterable[RefusedCall]) -> None:
    """Store refusals, in the caller's transaction. Locks their rows."""
    given = list(refusals)
    columns = {
        "names": [one.credential for one in given],
        "projects": [one.project for one in given],
        "jobs": [one.job for one in given],
        "calls": [one.call for one in given],
        "reasons": [one.reason[:500] for one in given],
        "counts": [one.counts for one in given],
    }
    run_sql("queueops.tenancy", "record_refusals", columns)


def accepted(calls: Collection[tuple[str, float]]) -> bool:
    """
    Mark earlier refusals of these credentials as their jobs' fault, in the caller's transaction. Waits for no lock.

    Returns:
        Whether there were such refusals.

    Args:
        calls: Each accepted call's credential, and when it began: seconds since 1970 by the database's clock.
    """
    columns = {"names": [name for name, _ in calls], "begun": [begun for _, begun in calls]}
    return bool(run_sql("queueops.tenancy", "disprove_refusals", columns))


def refused_by(jobs: Collection[UUID]) -> Mapping[UUID, Mapping[str, bool]]:
    """Return for each job the credentials that its provider refused, and whether each refusal was disproved since."""
    found: dict[UUID, dict[str, bool]] = {}
    rows = CredentialRefusal.objects.filter(job__in=jobs)
    for job, name, disproved in rows.values_list("job", "credential__name", "disproved"):
        found.setdefault(job, {})[name] = disproved
    return found


def withdraw(jobs: Collection[UUID]) -> None:
    """Mark all refusals of these jobs as the jobs' own fault."""
    CredentialRefusal.objects.filter(job__in=jobs, disproved=False).update(disproved=True)


def forgive(credentials: Collection[str]) -> None:
    """Mark all refusals of these credentials as their jobs' fault."""
    CredentialRefusal.objects.filter(credential__name__in=credentials, disproved=False).update(disproved=True)


def absences() -> list[Absence]:
    """Return which credentials are taken out, and for which project."""
    given = {"calls": CALLS_OF_EVIDENCE, "projects": PROJECTS_OF_EVIDENCE, "rest_seconds": RESTED_SECONDS}
    return run_sql_as(Absence, "queueops.tenancy", "list_absences", given)


def begin_trial(credential: str) -> bool:
    """
    Let one call try a rested credential; True at most once in RESTED_SECONDS. Locks the credential's last refusal.
    """
    against = CredentialRefusal.objects.filter(credential__name=credential, disproved=False)
    last = against.order_by("-refused_at", "-pk").values("pk")[:1]
    rested = Q(tried_at=None) | Q(tried_at__lt=Now() - REST)
    return bool(
        CredentialRefusal.objects.filter(rested, pk__in=last, refused_at__lt=Now() - REST).update(tried_at=Now())
    )
