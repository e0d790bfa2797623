"""A running installation with routes to the sandbox, and official clients of it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from openai import OpenAI

from jobs.door.routes import save_route
from queueops.tenancy.models import Credential, ProducerKey, Project
from queueops.tenancy.secrets.credentials import seal
from tests.api.conftest import ALL_SCOPES
from tests.dashboards.live.conftest import web_process
from tests.factories import make_project
from tests.support.processes import RunningProcess, manage
from tests.support.sandbox import Sandbox

SERVICE = "openai"
MODEL = "small-1"


@pytest.fixture(scope="package")
def address(django_db_setup: None, django_db_blocker: Any) -> Iterator[str]:
    with django_db_blocker.unblock(), web_process() as (address, _):
        yield address


@pytest.fixture
def project(transactional_db: None, sandbox: Sandbox) -> Project:
    """acme, with a key of the sandbox's and a route to it."""
    made = make_project("acme")
    route_to(sandbox, made)
    return made


def route_to(sandbox: Sandbox, project: Project, *, provider: str = "openai", pattern: str = "small-*") -> None:
    secret = seal({"api_key": f"project:{project.pk}/user:robot"})
    credential, _ = Credential.objects.get_or_create(
        name=f"{provider}-key", defaults={"service": provider, "secret": secret, "base_url": sandbox.url}
    )
    credential.projects.add(project)
    figures = {"pattern": pattern, "provider": provider, "credential": credential.name}
    save_route(None, figures, project_id=project.pk, actor="user:1")


@pytest.fixture
def key(project: Project) -> str:
    return ProducerKey.issue(project, name="producer", scopes=ALL_SCOPES)[1]


@pytest.fixture
def client(address: str, key: str) -> Iterator[OpenAI]:
    with OpenAI(base_url=f"{address}/openai/v1", api_key=key, max_retries=0, timeout=60) as client:
        yield client


@pytest.fixture
def workers(project: Project) -> Iterator[RunningProcess]:
    """A real cluster: it carries out jobs and keeps house."""
    with manage("qcluster", environ={"QUEUEOPS_WORKERS": "1", "QUEUEOPS_BATCH_COLLECT_SECONDS": "1"}) as process:
        yield process
        assert process.runs, process.output
