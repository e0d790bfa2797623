"""The demo's language model: a credential for the sandbox's OpenAI-compatible server, which examples/ asks."""

from __future__ import annotations

from queueops.tenancy.credentials import seal
from queueops.tenancy.models import Credential, Project

SERVICE = "openai"
CREDENTIAL = "demo-openai"


def ensure_credential(project: Project, base: str) -> Credential:
    """
    Give the project a credential for the sandbox's language model; one that exists is pointed at its address.

    Raises:
        CredentialKeysMissing
    """
    credential, _ = Credential.objects.get_or_create(
        name=CREDENTIAL,
        defaults={
            "service": SERVICE,
            "secret": seal({"api_key": "project:demo/user:robot"}),
            "base_url": base,
        },
    )
    if credential.base_url != base:
        credential.base_url = base
        credential.save(update_fields=["base_url"])
    credential.projects.add(project)
    return credential
