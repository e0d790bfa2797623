"""The demo's credentials for the sandbox."""

from __future__ import annotations

from typing import Any

from queueops.tenancy.models import Credential, Project
from queueops.tenancy.secrets.credentials import seal


def point_at(base: str, project: Project, *, name: str, secret: dict[str, Any], **fields: str) -> Credential:
    """
    Give a project the credential of this name, with the address `base`; a missing credential is made.

    Args:
        fields: `service`, `quota_project` and `quota_user` of a credential that is made.

    Raises:
        CredentialKeysMissing
    """
    made = {**fields, "secret": seal(secret), "base_url": base}
    credential, _ = Credential.objects.get_or_create(name=name, defaults=made)
    if credential.base_url != base:
        credential.base_url = base
        credential.save(update_fields=["base_url"])
    credential.projects.add(project)
    return credential
