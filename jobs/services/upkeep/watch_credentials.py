"""Credentials that their providers refuse: who looks for them, and who is told."""

from __future__ import annotations

from collections import defaultdict

from queueops.tenancy.models import CredentialPool, CredentialPoolMember
from ratelimits.models import QuotaAlert
from ratelimits.services.alerts.alerts import Opening, reconcile

MOST_CREDENTIALS_WATCHED = 200  # credentials that are out

Kind, Severity = QuotaAlert.Kind, QuotaAlert.Severity


def watch_credentials() -> None:
    """Tell of credentials that were taken out of pools; over when they are put back, or leave the pool."""
    out = CredentialPoolMember.objects.standing_out().select_related("pool", "credential").order_by("-taken_out_at")
    found: dict[str, list[CredentialPoolMember]] = defaultdict(list)
    for member in out[:MOST_CREDENTIALS_WATCHED]:
        found[member.credential.name].append(member)
    reconcile(Kind.CREDENTIAL_REFUSED, [_opening(name, members) for name, members in found.items()])


def _opening(name: str, members: list[CredentialPoolMember]) -> Opening:
    pools = [member.pool for member in members]
    empty = [pool.name for pool in pools if not pool.members.filter(taken_out_at=None).exists()]
    of = "pool " + ", ".join(pool.name for pool in pools)
    rest = f"no credential is left in {', '.join(empty)}: its jobs wait" if empty else "its jobs go on with the others"
    projects = CredentialPool.projects.through.objects.filter(credentialpool__in=pools)
    return Opening(
        Kind.CREDENTIAL_REFUSED,
        name,
        Severity.CRITICAL if empty else Severity.WARNING,
        f"The provider refuses {name} of {of}; {rest}. {members[0].reason}",
        {
            "pools": [pool.name for pool in pools],
            "projects": sorted(set(projects.values_list("project_id", flat=True))),
            "since": min(member.taken_out_at.isoformat() for member in members if member.taken_out_at),
        },
    )
