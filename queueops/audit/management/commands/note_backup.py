from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand

from queueops.audit.backups import MAX_NAME_LENGTH, note_backup


class Command(BaseCommand):
    help = (
        "Note in the audit trail that another program has just made a backup, after it has succeeded: doctor and the"
        " alert about old backups go by it. manage.py backup notes its own."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument(
            "by", help=f"What made it, such as 'pgBackRest, full'; at most {MAX_NAME_LENGTH} characters."
        )

    def handle(self, *args: Any, by: str, **options: Any) -> None:
        note_backup(by)
        self.stdout.write(f"Noted: a backup by {by[:MAX_NAME_LENGTH]}.")
