"""The demo's language models, which the sandbox serves: credentials for examples/, and routes for official clients."""

from __future__ import annotations

from jobs.door.models import REST
from jobs.door.routes import routes_of, save_route
from queueops.tenancy.models import Project

from .credentials import point_at

# The requests are those of OpenAI's entry tier, as in the shipped limits. With so many tokens 200 rows take seconds.
KNOBS = {"openai": {"requests_per_minute": 500, "tokens_per_minute": 200_000}}
SERVICES = {"openai": REST, "anthropic": f"claude-{REST}"}  # each with the pattern of the models that are routed to it


def ensure_credentials(project: Project, base: str) -> None:
    """Give the project credentials for the sandbox's language models; see `point_at`."""
    secret = {"api_key": "project:demo/user:robot"}
    routed = {route.provider for route in routes_of(project.pk)}
    for service, pattern in SERVICES.items():
        name = f"demo-{service}"
        point_at(base, project, name=name, secret=secret, service=service)
        if service not in routed:  # with a route, a provider's client needs only the address and the key
            figures = {"pattern": pattern, "provider": service, "credential": name}
            save_route(None, figures, project_id=project.pk, actor="system:demo")
