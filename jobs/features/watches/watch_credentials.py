"""Watches credentials that their providers refuse, and calls that have stopped because of that."""

from __future__ import annotations

from collections import defaultdict
from datetime import timedelta

from jobs.models import RefusedCalls
from queueops.core.clock import Now
from queueops.tenancy.credential_pools.refusals import Absence, absences
from queueops.tenancy.models import CredentialPool, CredentialPoolMember
from ratelimits.alerts.alerts import Opening, reconcile
from ratelimits.models import QuotaAlert

MAX_CREDENTIALS_WATCHED = 200  # credentials that are out of pools, and as many stops of calls
COUNTED_FOR = timedelta(days=1)  # after the last refusal; then counts of calls that have not stopped are dropped

Kind, Severity = QuotaAlert.Kind, QuotaAlert.Severity


def watch_credentials() -> None:
    """
    Alert about credentials that are out of pools, and calls that have stopped because their provider refuses them all.

    The alert about a credential ends when it is accepted, renewed, put back or removed. The alert about calls ends when
    one of these calls is accepted.

    The alert about a credential is critical while a project has no other credential that works; otherwise it is a
    warning.
    """
    found: dict[str, list[Absence]] = defaultdict(list)
    for absence in absences():
        found[absence.credential].append(absence)
    openings = [
        opening for name in list(found)[:MAX_CREDENTIALS_WATCHED] if (opening := _opening(name, found[name], found))
    ]
    RefusedCalls.objects.filter(stopped_at=None, updated_at__lt=Now() - COUNTED_FOR).delete()
    stopped = RefusedCalls.objects.filter(stopped_at__isnull=False).order_by("pk")[:MAX_CREDENTIALS_WATCHED]
    openings += [_of_stopped(row) for row in stopped]
    reconcile(Kind.CREDENTIAL_REFUSED, openings)
    warned = [opening.subject for opening in openings if opening.severity == Severity.WARNING]
    still_open = QuotaAlert.objects.filter(kind=Kind.CREDENTIAL_REFUSED, resolved_at=None, subject__in=warned)
    still_open.filter(severity=Severity.CRITICAL).update(severity=Severity.WARNING)


def _of_stopped(row: RefusedCalls) -> Opening:
    return Opening(
        Kind.CREDENTIAL_REFUSED,
        f"stopped: {row.name}",
        Severity.CRITICAL,
        f"The provider refuses all calls of {row.name} ({row.code}): they have stopped, their jobs wait, and one a "
        f"minute tries. {row.last_error}",
        {"projects": [row.project_id], "credential": row.credential, "model": row.model, "jobs": []},
    )


def _opening(name: str, absent: list[Absence], out: dict[str, list[Absence]]) -> Opening | None:
    pools = list(CredentialPool.objects.filter(members__credential__name=name).order_by("name"))
    if not pools:
        return None
    users = CredentialPool.projects.through.objects.filter(credentialpool__in=pools)
    using = list(users.values_list("credentialpool__name", "project_id"))
    concerned = sorted({project for _, project in using if any(one.concerns(project) for one in absent)})
    members: dict[str, list[str]] = defaultdict(list)
    for pool, member in CredentialPoolMember.objects.filter(pool__in=pools).values_list(
        "pool__name", "credential__name"
    ):
        members[pool].append(member)
    without = sorted(
        {
            f"{project} in {pool}"
            for pool, project in using
            if project in concerned
            and all(any(one.concerns(project) for one in out.get(member, ())) for member in members[pool])
        }
    )
    rest = (
        f"no credential is left for {', '.join(without)}: a job a minute tries, the others wait"
        if without
        else "their jobs go on with the others"
    )
    told = "; ".join(f"{one.evidence} were refused" for one in absent)
    return Opening(
        Kind.CREDENTIAL_REFUSED,
        name,
        Severity.CRITICAL if without else Severity.WARNING,
        f"The provider refuses {name} of pool {', '.join(pool.name for pool in pools)}: {told}, and none was accepted "
        f"since. It is out for {', '.join(concerned) or 'all'}; {rest}. {absent[0].reason}",
        {
            "pools": [pool.name for pool in pools],
            "projects": concerned,
            "since": min(one.since for one in absent).isoformat(),
            "calls": sum(one.calls for one in absent),
            "jobs": [job for one in absent for job in one.jobs],
        },
    )
