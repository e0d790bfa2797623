"""The roles' permissions for accounts; docs/reference/roles.md."""

from __future__ import annotations

VIEWER = frozenset({"access.view_personaltoken", "access.add_personaltoken"})
ADMINISTRATOR = frozenset(
    {
        "auth.view_user",
        "access.invite_user",
        "access.reset_authenticator",
        "access.view_signincount",
        "access.unlock_signincount",
        "access.revoke_personaltoken",
    }
)
