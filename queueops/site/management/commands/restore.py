from argparse import ArgumentParser
from pathlib import Path
from time import monotonic
from typing import Any

from queueops.core.processes.operator_command import OperatorCommand
from queueops.site.backup import restore


class Command(OperatorCommand):
    help = (
        "Restore a backup into an empty database, and compare all rows and definitions with what was backed up. "
        "Everything is paused then: what ran after the backup would run again."
    )
    requires_system_checks = ()

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("directory", type=Path, help="What manage.py backup wrote.")

    def handle(self, *args: Any, directory: Path, **options: Any) -> None:
        begun = monotonic()
        manifest = restore(directory.absolute(), self.stdout.write)
        self.stdout.write(
            f"Restored {manifest.row_count:,} rows as of {manifest.taken_at}, the same as were there, in "
            f"{monotonic() - begun:,.1f} s.\n"
            f"Everything is paused. {manifest.under_way:,} jobs were running at that moment. Whatever was submitted or "
            "done since is not here.\n"
            "Next: manage.py migrate, where this version is newer than the backup; then docs/how-to/back-up.md, "
            "'After a restore'."
        )
