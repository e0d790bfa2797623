from math import isfinite
from typing import Any

from django.core.exceptions import ValidationError
from django.core.management.base import BaseCommand, CommandError, CommandParser

from queueops.tenancy.issuing import create_project, faults_told, told_name


class Command(BaseCommand):
    help = "Make a project. Its producers need a key: see create_key."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("project", help="Its id, which never changes: acme, billing.eu.")
        parser.add_argument("--name", help="As people know it. Without: the id.")
        parser.add_argument("--weight", type=float, default=1.0, help="Turns relative to the other projects (1).")

    def handle(self, *args: Any, project: str, name: str | None, weight: float, **options: Any) -> None:
        if not isfinite(weight):
            raise CommandError("weight: Give a number.")
        try:
            name = project if name is None else told_name(name)
            made = create_project(project, actor="system:create_project", name=name, weight=weight)
        except ValidationError as error:
            raise CommandError(faults_told(error)) from error
        self.stdout.write(f"Made the project {made.pk}. Next: manage.py create_key {made.pk} --name NAME")
