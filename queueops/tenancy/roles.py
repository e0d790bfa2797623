"""The roles' permissions for projects, keys, credentials and issuers; docs/reference/roles.md."""

from __future__ import annotations

VIEWER = frozenset({"tenancy.view_project", "tenancy.view_credentialpool"})
OPERATOR = frozenset({"tenancy.reinstate_credentialpool", "tenancy.decrypt_project"})
ADMINISTRATOR = frozenset(
    {
        "tenancy.add_project",
        "tenancy.change_project",
        "tenancy.view_producerkey",
        "tenancy.add_producerkey",
        "tenancy.change_producerkey",
        *(
            f"tenancy.{verb}_{model}"
            for verb in ("view", "add", "change", "delete")
            for model in ("credential", "credentialpool", "credentialpoolmember", "credentialsetting", "issuer")
        ),
        "tenancy.try_issuer",
    }
)
