"""The demo's language model: a credential for the sandbox's OpenAI-compatible server, which examples/ asks."""

from __future__ import annotations

from queueops.tenancy.models import Credential, Project

from .credentials import point_at

SERVICE = "openai"
CREDENTIAL = "demo-openai"


def ensure_credential(project: Project, base: str) -> Credential:
    """Give the project a credential for the sandbox's language model; see `point_at`."""
    secret = {"api_key": "project:demo/user:robot"}
    return point_at(base, project, name=CREDENTIAL, secret=secret, service=SERVICE)
