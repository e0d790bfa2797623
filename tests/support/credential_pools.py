"""Pools of credentials for the sandbox, each of a member's keys being an account of its own there."""

from __future__ import annotations

from collections.abc import Sequence

from queueops.tenancy.credential_pools import pools
from queueops.tenancy.models import Credential, CredentialPool, CredentialPoolMember, Project
from queueops.tenancy.secrets.credentials import seal
from tests.support.saturation import SERVICE


def secret_of(name: str) -> str:
    """The token by which the sandbox knows a member."""
    return f"project:{name}/user:robot"


def a_credential(name: str, *, service: str = SERVICE, url: str = "http://127.0.0.1:9") -> Credential:
    field = "access_token" if service == SERVICE else "api_key"
    return Credential.objects.create(
        name=name,
        service=service,
        quota_project=name,
        quota_user="robot",
        secret=seal({field: secret_of(name)}),
        base_url=url,
    )


def make_pool(
    name: str = "keys",
    members: Sequence[str] = ("key-1", "key-2", "key-3"),
    *,
    service: str = SERVICE,
    url: str = "http://127.0.0.1:9",
    project: str = "acme",
    weights: Sequence[float] = (),
) -> CredentialPool:
    """A pool that a project may use; its members' credentials are open to nobody but through it."""
    owner, _ = Project.objects.get_or_create(pk=project, defaults={"name": project})
    pool = CredentialPool.objects.create(name=name, service=service)
    pool.projects.add(owner)
    for place, member in enumerate(members):
        credential = a_credential(member, service=service, url=url)
        weight = weights[place] if weights else 1.0
        CredentialPoolMember.objects.create(pool=pool, credential=credential, weight=weight)
    pools.forget()
    return pool
