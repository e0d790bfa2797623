"""
Providers' refusals of credentials in pools, and the credentials that these take out.

A refusal is evidence against its credential until a call that began after it is accepted: then it was the job's own.
Evidence is read, never summed up in a row: processes that add to it at once lose none of it. docs/adr/0051 says why
these rules.
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

CALLS_OF_EVIDENCE = 3  # calls of one project, none accepted since: it is out for that project
PROJECTS_OF_EVIDENCE = 3  # projects of which a call each was refused, none accepted since: it is out for all
RESTED_SECONDS = 60.0  # between calls that try a credential, where a project has no other

REST = timedelta(seconds=RESTED_SECONDS)


class RefusedCall(NamedTuple):
    """
    A call that showed a credential and was refused. `call`: the job with which it left. `counts`: how many it counts
    as.
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
        project: For whose jobs; empty: for all.
        calls, projects: The evidence: refused calls, and of how many projects, since it was accepted last.
        rested: Its last refusal is RESTED_SECONDS ago.
        jobs: The last jobs that were refused.
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
        """In words: `3 calls of acme`, `4 calls of 3 projects`."""
        return f"{self.calls} calls of {self.project or f'{self.projects} projects'}"


def record(refusals: Iterable[RefusedCall]) -> None:
    """Keep refusals, in the caller's transaction. Locks their rows."""
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
    Take earlier refusals of these credentials as their jobs' own, in the caller's transaction; waits for no lock.

    Returns:
        Whether there were any.

    Args:
        calls: Credentials, and when a call that showed it began, seconds since 1970 by the database's clock.
    """
    columns = {"names": [name for name, _ in calls], "begun": [begun for _, begun in calls]}
    return bool(run_sql("queueops.tenancy", "disprove_refusals", columns))


def refused_by(jobs: Collection[UUID]) -> Mapping[UUID, Mapping[str, bool]]:
    """Return by job the credentials that its provider refused, and whether each was accepted since."""
    found: dict[UUID, dict[str, bool]] = {}
    rows = CredentialRefusal.objects.filter(job__in=jobs)
    for job, name, disproved in rows.values_list("job", "credential__name", "disproved"):
        found.setdefault(job, {})[name] = disproved
    return found


def withdraw(jobs: Collection[UUID]) -> None:
    """Take all refusals of these jobs as their own."""
    CredentialRefusal.objects.filter(job__in=jobs, disproved=False).update(disproved=True)


def forgive(credentials: Collection[str]) -> None:
    """Take all refusals of these credentials as their jobs' own."""
    CredentialRefusal.objects.filter(credential__name__in=credentials, disproved=False).update(disproved=True)


def absences() -> list[Absence]:
    """Return which credentials are out, and for whom."""
    given = {"calls": CALLS_OF_EVIDENCE, "projects": PROJECTS_OF_EVIDENCE, "rest_seconds": RESTED_SECONDS}
    return run_sql_as(Absence, "queueops.tenancy", "list_absences", given)


def begin_trial(credential: str) -> bool:
    """Whether one call may show a rested credential now: true once in RESTED_SECONDS. Locks its last refusal."""
    against = CredentialRefusal.objects.filter(credential__name=credential, disproved=False)
    last = against.order_by("-refused_at", "-pk").values("pk")[:1]
    rested = Q(tried_at=None) | Q(tried_at__lt=Now() - REST)
    return bool(
        CredentialRefusal.objects.filter(rested, pk__in=last, refused_at__lt=Now() - REST).update(tried_at=Now())
    )
