"""The demo's language model, the sandbox's OpenAI-compatible server: a credential that examples/ use, and a route."""

from __future__ import annotations

from jobs.door.models import REST
from jobs.door.routes import routes_of, save_route
from queueops.tenancy.models import Credential, Project

from .credentials import point_at

SERVICE = "openai"
CREDENTIAL = "demo-openai"


def ensure_credential(project: Project, base: str) -> Credential:
    """Give the project a credential for the sandbox's language model; see `point_at`."""
    secret = {"api_key": "project:demo/user:robot"}
    credential = point_at(base, project, name=CREDENTIAL, secret=secret, service=SERVICE)
    if not routes_of(project.pk):  # so that a client of OpenAI needs the address and the key alone
        figures = {"pattern": REST, "provider": SERVICE, "credential": CREDENTIAL}
        save_route(None, figures, project_id=project.pk, actor="system:demo")
    return credential
