"""The generated page of roles."""

from __future__ import annotations

from collections.abc import Mapping

from django.apps import apps

from queueops.core.generated_docs import generated_page, table
from queueops.site.roles import ADMINISTRATOR, ROLES

_HEAD = """\
# Roles

After this page you can look up which role may do what.

Written by `manage.py write_docs` from each app's `roles.py`. The roles are groups, made by `migrate` when they
are missing and yours to change afterwards: a later version adds to an existing group only permissions that are new in
that version.
Give one to a colleague with *Invite* under *Users*; whoever has a role is staff, and signs in. A superuser may do
everything.

Every action of the admin names one permission. Whoever lacks it does not see the action, and is refused when they call
its address.
"""

_TAIL = """
Accounts and roles themselves, and the schedules and tasks of the house-keeping, are for superusers, unless you grant
Django's own permissions on users and groups. Each change of an account or a role is in the audit trail, with what it
may do before and after.
"""

MAY: Mapping[str, str] = {
    "jobs.cancel_job": "cancel jobs, one, many, all that match, or a whole batch",
    "jobs.reschedule_job": "run waiting jobs now or later, take running ones back",
    "jobs.reprioritise_job": "change the priority of waiting jobs and batches",
    "jobs.pause_work": "pause and resume everything, a project, a service, a kind or a batch",
    "jobs.requeue_deadletter": "requeue dead letters, edited or not, one, many or all that match",
    "jobs.run_again": "do the work of an ended job once more, with another payload",
    "jobs.discard_deadletter": "discard dead letters",
    "jobs.export_deadletter": "export dead letters with their payloads unmasked",
    "jobs.change_bulkoperation": "stop bulk operations",
    "jobs.add_upload": "submit jobs: one from a form, or a file of them",
    "jobs.share_savedfilter": "share saved filters with everybody who sees the list",
    "ratelimits.acknowledge_alert": "acknowledge alerts",
    "ratelimits.steer_counter": "clear counters and cool them down",
    "ratelimits.add_charge": "ask the limiter, which spends quota",
    "ratelimits.cancel_reservation": "cancel reservations of users",
    "ratelimits.export_usage": "export the usage of users",
    "ratelimits.correct_usage": "correct usage, check the ledger and repair it",
    "ratelimits.price_spend": "price spend that had no price",
    "ratelimits.export_spend": "export what was spent",
    "access.invite_user": "invite people, with a role that holds no more than their own",
    "ratelimits.add_usageevent": "reserve and report usage over the API with a session",
}


@generated_page("reference/roles.md")
def roles_page() -> str:
    named = list(ROLES)
    rows = [[MAY[name], f"`{name}`", *_ticks(name)] for name in MAY]
    rows += [[_words(name), f"`{name}`", *_ticks(name)] for name in sorted(ADMINISTRATOR - set(MAY))]
    return "\n".join([_HEAD, *table(["may", "permission", *named], rows), _TAIL])


def _ticks(permission: str) -> list[str]:
    return ["yes" if permission in wanted else "" for wanted in ROLES.values()]


def _words(permission: str) -> str:
    """Return `see limits` for `ratelimits.view_limit`."""
    app, _, codename = permission.partition(".")
    verb, _, model = codename.partition("_")
    plural = apps.get_model(app, model)._meta.verbose_name_plural  # noqa: SLF001 - Django's name for it
    return f"{'see' if verb == 'view' else verb} {plural}"
