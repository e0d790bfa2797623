from typing import Any

from django.core.exceptions import ValidationError
from django.core.management.base import BaseCommand, CommandError, CommandParser

from queueops.tenancy.issuing import create_project


class Command(BaseCommand):
    help = "Make a project. Its producers need a key: see create_key."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("project", help="Its id, which never changes: acme, billing.eu.")
        parser.add_argument("--name", help="As people know it. Without: the id.")
        parser.add_argument("--weight", type=float, default=1.0, help="Turns relative to the other projects (1).")

    def handle(self, *args: Any, project: str, name: str | None, weight: float, **options: Any) -> None:
        try:
            made = create_project(project, actor="system:create_project", name=name or project, weight=weight)
        except ValidationError as error:
            raise CommandError(" ".join(error.messages)) from error
        self.stdout.write(f"Made the project {made.pk}. Next: manage.py create_key {made.pk} --name NAME")
