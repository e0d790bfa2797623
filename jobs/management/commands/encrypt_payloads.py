from typing import Any

from django.core.management.base import CommandError, CommandParser

from jobs.features.encryption.encrypt_payloads import Resealed, encrypt_project
from queueops.core.processes.operator_command import OperatorCommand
from queueops.tenancy.models import Project

ACTOR = "system:encrypt_payloads"


class Command(OperatorCommand):
    help = (
        "Encrypt what is stored of projects that are set to be encrypted, with the newest of QUEUEOPS_PAYLOAD_KEYS; of"
        " a project that is not, decrypt what was. Safe to repeat and to interrupt while everything runs. Ends with 1"
        " if something needs a key that is not set."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--project", help="Only this one. Needed to decrypt.")
        parser.add_argument("--dry-run", action="store_true", help="Only count what would be changed.")

    def handle(self, *args: Any, project: str | None, dry_run: bool, **options: Any) -> None:
        chosen = Project.objects.filter(encrypted=True) if project is None else Project.objects.filter(pk=project)
        if project is not None and not chosen:
            raise CommandError(f"There is no project {project!r}.")
        if not chosen:
            self.stdout.write("No project is set to be encrypted.")
        missing: set[str] = set()
        for one in chosen:
            done = encrypt_project(one, actor=ACTOR, keeps=dry_run, tell=self._tell)
            word = "encrypted" if one.encrypted else "decrypted"
            verb = f"would be {word}" if dry_run else f"{word}"
            rows = ", ".join(f"{count:,} of {table}" for table, count in done.rows.items() if count)
            self.stdout.write(f"{one.pk}: {verb}: {rows or 'nothing'}.")
            missing |= done.missing.keys()
            for key, count in done.missing.items():
                self.stdout.write(f"{one.pk}: {count:,} rows need the key {key}, which is not set; they stay.")
        if missing:
            raise CommandError(f"Put back into QUEUEOPS_PAYLOAD_KEYS: {', '.join(sorted(missing))}.")

    def _tell(self, table: str, done: Resealed) -> None:
        waits = f"; {len(done.running):,} jobs that began before are waited for" if done.running else ""
        self.stderr.write(f"{table}: {done.read[table]:,} looked at, {done.rows[table]:,} changed{waits}")
