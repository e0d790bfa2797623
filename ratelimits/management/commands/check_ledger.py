import sys
from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from queueops.core.errors import QueueOpsError
from queueops.tenancy.models import Project
from ratelimits.usage.ledger import Difference, check_ledger, repair_ledger


class Command(BaseCommand):
    help = "Compare used and reserved of every month with the events and reservations behind it; exit 1 if any differs."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--project", help="Only this project's months.")
        parser.add_argument("--repair", action="store_true", help="Set what differs to its sums first.")
        parser.add_argument("--reason", default="", help="Why it is repaired, for the audit trail.")

    def handle(self, *args: Any, project: str | None, repair: bool, reason: str, **options: Any) -> None:
        if project is not None and not Project.objects.filter(pk=project).exists():
            raise CommandError(f"There is no project {project!r}.")
        if repair:
            try:
                repaired = repair_ledger(project, actor="system:check_ledger", reason=reason)
            except QueueOpsError as error:
                raise CommandError(f"{error.message} Give it as --reason.") from error
            print(f"{len(repaired):,} months repaired")
        found = check_ledger(project)
        for one in found.differences:
            print(_line(one))
        print(f"{found.rows:,} months compared, {len(found.differences):,} differ")
        if found.differences:
            sys.exit(1)


def _line(one: Difference) -> str:
    return (
        f"{one.project_id} {one.user_id} {one.month}: used {one.used:,}, events {one.events:,}; "
        f"reserved {one.reserved:,}, active reservations {one.reservations:,}"
    )
