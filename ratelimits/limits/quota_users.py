"""Warnings about users whom limits count separately, but whom the provider counts as one account."""

from __future__ import annotations

from queueops.tenancy.models import Credential
from ratelimits.models import Limit


def warn_of_users_apart(credential: Credential) -> str | None:
    """Return a warning if limits count the credential's users separately but its provider counts one; else None."""
    of_users = Limit.objects.filter(enabled=True, scope__in=[Limit.Scope.USER, Limit.Scope.PROJECT_USER])
    if credential.quota_user or not of_users.filter(service=credential.service).exists():
        return None
    return (
        f"{credential.name} has no quota user: limits count each user of its jobs apart, and {credential.service}"
        " counts them as one. Name the account that the secret belongs to."
    )
