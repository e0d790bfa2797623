from argparse import ArgumentParser
from pathlib import Path
from time import monotonic
from typing import Any

from django.db import DatabaseError

from queueops.audit.backups import note_backup
from queueops.core.processes.operator_command import OperatorCommand
from queueops.site.backup import MEGABYTE, back_up


class Command(OperatorCommand):
    help = (
        "Write a backup of the database, as of one moment, into a new directory, and read it back to see that it is "
        "whole. Work goes on meanwhile. The secret keys are not in it: keep them apart."
    )
    requires_system_checks = ()

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("directory", type=Path, help="A new directory: a backup is never overwritten.")

    def handle(self, *args: Any, directory: Path, **options: Any) -> None:
        begun = monotonic()
        manifest = back_up(directory.absolute(), self.stdout.write)
        try:
            note_backup("manage.py backup")
        except DatabaseError as error:  # a standby, or the server stopped meanwhile; the backup itself is complete
            self.stderr.write(f"The backup is not noted, so doctor and the alert do not know of it: {error}".strip())
        self.stdout.write(
            f"{directory}: {manifest.row_count:,} rows as of {manifest.taken_at}, {manifest.size / MEGABYTE:,.1f} MB, "
            f"read back whole, in {monotonic() - begun:,.1f} s."
        )
