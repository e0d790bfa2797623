from datetime import timedelta
from typing import Any

from django.core.exceptions import ValidationError
from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.utils import timezone

from queueops.tenancy.issuing import faults_told, issue_key, told_name
from queueops.tenancy.models import ProducerKey, Project, Scope, default_scopes
from queueops.tenancy.moves import ProjectMoved, refuse_moved

MAX_KEY_DAYS = 3650


class Command(BaseCommand):
    help = (
        "Issue a producer's key and print it on standard output, alone: it cannot be seen again."
        " What else there is to say goes to standard error."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("project", help="The project whose key it is.")
        parser.add_argument("--name", required=True, help="Who or what uses it.")
        parser.add_argument(
            "--scope",
            action="append",
            choices=Scope.values,
            dest="scopes",
            help="What requests with it may do; once for each. Without: read and submit.",
        )
        parser.add_argument("--requests-per-minute", type=int, help="To one web process. Without: as set for all keys.")
        parser.add_argument("--days", type=int, help=f"After which it expires, 1 to {MAX_KEY_DAYS:,}. Without: never.")

    def handle(self, *args: Any, **options: Any) -> None:
        project = Project.objects.filter(pk=options["project"]).first()
        if project is None:
            raise CommandError(f"There is no project {options['project']!r}; manage.py create_project makes one.")
        try:
            refuse_moved(project.pk, project.move, project.moved_to, reads=True)
        except ProjectMoved as error:
            raise CommandError(f"{error.message} Issue it there.") from error
        days = options["days"]
        if days is not None and not 1 <= days <= MAX_KEY_DAYS:
            raise CommandError(f"--days {days}: give 1 to {MAX_KEY_DAYS:,}.")
        given = {
            "scopes": sorted(set(options["scopes"] or default_scopes())),
            "requests_per_minute": options["requests_per_minute"],
            "expires_at": timezone.now() + timedelta(days=days) if days else None,
        }
        try:
            given["name"] = told_name(options["name"])
            ProducerKey(project=project, **given).full_clean(exclude=["prefix", "digest"])
        except ValidationError as error:
            raise CommandError(faults_told(error)) from error
        key, secret = issue_key(project, actor="system:create_key", **given)
        expires = f", until {key.expires_at:%Y-%m-%d %H:%M} UTC" if key.expires_at else ""
        self.stderr.write(f"Issued {key.prefix}… of {project.pk}: {', '.join(key.scopes)}{expires}. Keep it safe:")
        self.stdout.write(secret)
