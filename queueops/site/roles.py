"""The shipped roles: groups created once, which administrators may change afterwards; docs/reference/roles.md."""

from __future__ import annotations

from collections.abc import Iterator

from django.contrib.auth.models import Group, Permission
from django.db import DatabaseError, transaction
from django.db.models import QuerySet

from jobs import roles as jobs
from queueops.access import roles as access
from queueops.audit import roles as audit
from queueops.tenancy import roles as tenancy
from ratelimits import roles as ratelimits

VIEWER = jobs.VIEWER | ratelimits.VIEWER | tenancy.VIEWER | audit.VIEWER | access.VIEWER
OPERATOR = VIEWER | jobs.OPERATOR | ratelimits.OPERATOR | tenancy.OPERATOR
LIMITS_MANAGER = VIEWER | ratelimits.LIMITS_MANAGER
ADMINISTRATOR = (
    OPERATOR
    | LIMITS_MANAGER
    | jobs.ADMINISTRATOR
    | ratelimits.ADMINISTRATOR
    | tenancy.ADMINISTRATOR
    | access.ADMINISTRATOR
)
ROLES = {
    "viewer": VIEWER,
    "operator": OPERATOR,
    "limits manager": LIMITS_MANAGER,
    "administrator": ADMINISTRATOR,
}


_before: frozenset[str] | None = None


def remember_permissions() -> None:
    """Remember, before a migration, the permissions that exist: `make_groups` then knows what the migration adds."""
    global _before  # noqa: PLW0603 - a process runs one migration
    try:
        with transaction.atomic():
            _before = frozenset(_names(Permission.objects.all()))
    except DatabaseError:  # no tables yet: `make_groups` creates all groups
        _before = None


@transaction.atomic
def make_groups() -> list[str]:
    """
    Create the groups that are missing. An existing group may have been changed by administrators. It only gets
    the permissions of its role that the migration has just added: otherwise nobody could use the new features.

    Returns:
        The names of the groups created.
    """
    made = []
    for name, wanted in ROLES.items():
        group, created = Group.objects.get_or_create(name=name)
        if created:
            group.permissions.set(_permissions(wanted))
            made.append(name)
        elif _before is not None and (new := wanted - _before):
            group.permissions.add(*_permissions(new))
    return made


def _names(permissions: QuerySet[Permission]) -> Iterator[str]:
    for app, codename in permissions.values_list("content_type__app_label", "codename"):
        yield f"{app}.{codename}"


def _permissions(wanted: frozenset[str]) -> list[Permission]:
    codenames = {codename for _, codename in (one.split(".") for one in wanted)}
    found = Permission.objects.filter(codename__in=codenames).select_related("content_type")
    return [one for one in found if f"{one.content_type.app_label}.{one.codename}" in wanted]
