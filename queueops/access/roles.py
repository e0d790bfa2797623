"""What the roles may do with accounts; docs/reference/roles.md."""

from __future__ import annotations

ADMINISTRATOR = frozenset(
    {"auth.view_user", "access.reset_authenticator", "access.view_signincount", "access.unlock_signincount"}
)
