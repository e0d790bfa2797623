"""The roles' permissions for accounts, and a signal that makes everybody with a role staff; docs/reference/roles.md."""

from __future__ import annotations

from typing import Any

from django.contrib.auth.models import Group, User

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


def make_staff(instance: User | Group, action: str, pk_set: set[int] | None, **told: Any) -> None:
    """
    Make everybody with a role staff: otherwise they could not sign in, and nothing would say why.

    Receives Django's `m2m_changed`, whether an account got a role or a role got accounts.
    """
    if action != "post_add":
        return
    if isinstance(instance, User):
        User.objects.filter(pk=instance.pk, is_staff=False).update(is_staff=True)
        instance.is_staff = True
    else:
        User.objects.filter(pk__in=pk_set or (), is_staff=False).update(is_staff=True)
