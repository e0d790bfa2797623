from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand, CommandError
from django.db import transaction

from queueops.core.errors import QueueOpsError
from ratelimits.models import Allowance
from ratelimits.usage.allowances import FIGURES, change_allowance, create_allowance, delete_allowance

ACTOR = "command:set_allowance"


class Command(BaseCommand):
    help = (
        "Give the users of a project a monthly allowance, change it, or take it away. What is left out stays as it is;"
        " without any figure the allowance is shown."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("project", help="Whose users.")
        parser.add_argument("--quota", type=int, help="In the unit, for each user and month. A new one needs it.")
        parser.add_argument("--unit", choices=Allowance.Unit.values, help="What is counted. A new one: requests.")
        parser.add_argument("--policy", choices=Allowance.Policy.values, help="At the quota. A new one: strict.")
        parser.add_argument("--time-zone", help="Where the month begins at midnight: Europe/Vienna. A new one: UTC.")
        parser.add_argument("--reservation-seconds", type=int, help="Until it is given back. A new one: 300.")
        parser.add_argument("--delete", action="store_true", help="Take it away; not while it is in use this month.")
        parser.add_argument("--yes", action="store_true", help="Also where the change may surprise.")
        parser.add_argument("--reason", default="", help="Kept in the audit trail.")

    def handle(self, *args: Any, project: str, **options: Any) -> None:
        by = {"actor": ACTOR, "reason": options["reason"]}
        given = {name: options[name] for name in FIGURES if options[name] is not None}
        if options["delete"] and given:
            raise CommandError("Say figures or --delete, not both.")
        found = Allowance.objects.filter(pk=project).first()
        if given and found is None and "quota" not in given:
            raise CommandError(f"{project!r} has no allowance; --quota gives it one.")
        try:
            if options["delete"]:
                delete_allowance(project, **by)
                self.stdout.write(f"{project} has no allowance any more.")
                return
            if given and found is None:
                create_allowance(project, given, **by)
            elif given:
                self._change(project, given, by, sure=options["yes"])
        except QueueOpsError as error:
            faults = [f"{name}: {fault}" for name, faults in error.fields.items() for fault in faults]
            raise CommandError(" ".join([error.message, *faults])) from error
        self._show(project)

    @transaction.atomic
    def _change(self, project: str, given: dict[str, Any], by: dict[str, Any], *, sure: bool) -> None:
        warnings = change_allowance(project, given, **by).warnings
        if warnings and not sure:
            told = "\n".join(f"Mind: {warning}" for warning in warnings)
            raise CommandError(f"{told}\nNothing was changed. Say --yes to change it all the same.")

    def _show(self, project: str) -> None:
        found = Allowance.objects.filter(pk=project).first()
        if found is None:
            raise CommandError(f"{project!r} has no allowance; --quota gives it one.")
        self.stdout.write(
            f"{project}: {found.quota:,} {found.unit} for each user and month of {found.time_zone}, {found.policy},"
            f" reservations of {found.reservation_seconds} s."
        )
