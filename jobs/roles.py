"""The roles shipped: groups made once, which administrators may change afterwards; docs/reference/roles.md."""

from __future__ import annotations

from collections.abc import Iterator

from django.contrib.auth.models import Group, Permission
from django.db import DatabaseError, transaction
from django.db.models import QuerySet

SEEN = (
    "job",
    "batch",
    "deadletter",
    "bulkoperation",
    "retrypolicy",
    "agingrule",
    "executor",
    "servicebreaker",
    "pauseswitch",
    "webhook",
    "webhookdelivery",
    "auditentry",
    "upload",
)

LIMITS_SEEN = (
    "limit",
    "limitoverride",
    "counter",
    "quotaalert",
    "allowance",
    "allowanceoverride",
    "usagetracking",
    "usagereservation",
    "usageevent",
)

VIEWER = frozenset(
    {
        *(f"jobs.view_{model}" for model in SEEN),
        *(f"ratelimits.view_{model}" for model in LIMITS_SEEN),
        "tenancy.view_project",
    }
)
OPERATOR = VIEWER | {
    "jobs.cancel_job",
    "jobs.reschedule_job",
    "jobs.reprioritise_job",
    "jobs.pause_work",
    "jobs.steer_servicebreaker",
    "jobs.requeue_deadletter",
    "jobs.discard_deadletter",
    "jobs.export_deadletter",
    "jobs.add_upload",
    "jobs.share_savedfilter",
    "jobs.change_bulkoperation",
    "ratelimits.acknowledge_alert",
    "ratelimits.cancel_reservation",
}
LIMITS_MANAGER = VIEWER | {
    "ratelimits.acknowledge_alert",
    "ratelimits.steer_counter",
    "ratelimits.add_charge",  # asking the limiter spends quota
    *(f"ratelimits.{verb}_{model}" for verb in ("add", "change", "delete") for model in ("limit", "limitoverride")),
    "ratelimits.add_allowance",
    "ratelimits.change_allowance",
    *(f"ratelimits.{verb}_allowanceoverride" for verb in ("add", "change", "delete")),
    "ratelimits.cancel_reservation",
    "ratelimits.export_usage",
}
ADMINISTRATOR = (
    OPERATOR
    | LIMITS_MANAGER
    | {
        "jobs.add_retrypolicy",
        "jobs.change_retrypolicy",
        "jobs.change_agingrule",
        "jobs.add_webhook",
        "jobs.change_webhook",
        "ratelimits.correct_usage",
        "ratelimits.add_usageevent",  # reporting over the API with a session
        "ratelimits.view_alertroute",
        "ratelimits.add_alertroute",
        "ratelimits.change_alertroute",
        "auth.view_user",
        "access.reset_authenticator",
        "access.view_signincount",
        "access.unlock_signincount",
        "tenancy.add_project",
        "tenancy.change_project",
        "tenancy.view_producerkey",
        "tenancy.add_producerkey",
        "tenancy.change_producerkey",
        "tenancy.view_credential",
        "tenancy.add_credential",
        "tenancy.change_credential",
        "tenancy.delete_credential",
        "tenancy.view_issuer",
        "tenancy.add_issuer",
        "tenancy.change_issuer",
        "tenancy.delete_issuer",
        "tenancy.try_issuer",
    }
)
ROLES = {
    "viewer": VIEWER,
    "operator": OPERATOR,
    "limits manager": LIMITS_MANAGER,
    "administrator": ADMINISTRATOR,
}


_before: frozenset[str] | None = None


def remember_permissions() -> None:
    """Before a migration: what there is already, so that `make_groups` knows what the migration adds."""
    global _before  # noqa: PLW0603 - one migration a process
    try:
        with transaction.atomic():
            _before = frozenset(_names(Permission.objects.all()))
    except DatabaseError:  # no tables yet: the groups are made whole
        _before = None


@transaction.atomic
def make_groups() -> list[str]:
    """
    Create the groups that are missing. One that exists stays as its installation has made it, but gets of its role
    what the migration that has just run added: else nobody could use what is new.

    Returns:
        The names of those created.
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
