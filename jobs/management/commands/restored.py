import sys
from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand, CommandError
from django.db import Error, ProgrammingError

from jobs.models import Epoch
from jobs.services.operate.epochs import RESTORED_REASON, Restored, UnderWay, declare_restored

ACTOR = "system:restored"
NEXT = (
    "Next: look for what was done since the moment it was put back to, and for these calls; manage.py reconcile FILE "
    "tells the database. Then manage.py resume --over 10m. See docs/how-to/back-up.md, 'After a restore'."
)


class Command(BaseCommand):
    help = (
        "Say that the database was put back to an earlier moment by other means than manage.py restore: point-in-time "
        "recovery, a copy of its files, a managed service. Everything is paused, cursors of before count no more, and "
        "nothing waits for the executors that are gone. Run it before web and workers start."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--dry-run", action="store_true", help="Only say what would be done.")
        parser.add_argument("--yes", action="store_true", help="Do not ask.")
        parser.add_argument("--reason", default=RESTORED_REASON, help="Of the pause; people see it.")

    def handle(self, *args: Any, dry_run: bool, yes: bool, reason: str, **options: Any) -> None:
        try:
            if not Epoch.objects.exists():
                raise CommandError("This database has no epoch yet. Run manage.py migrate first.")
            found = declare_restored(actor=ACTOR, keeps=True)
            self._tell(found, "would be")
            if dry_run:
                return
            if not yes:
                self._ask()
            done = declare_restored(actor=ACTOR, reason=reason)
        except ProgrammingError as error:
            raise CommandError("This database lacks tables or columns. Run manage.py migrate first.") from error
        except Error as error:
            raise CommandError(str(error).strip()) from error
        self.stdout.write(f"Done: everything is paused, in the new epoch {done.epoch}.\n{NEXT}")

    def _ask(self) -> None:
        if not sys.stdin.isatty():
            raise CommandError("Nothing was changed. Say --yes, or --dry-run.")
        if input("Pause everything and begin a new epoch? Type yes: ").strip() != "yes":
            raise CommandError("Nothing was changed.")

    def _tell(self, found: Restored, verb: str) -> None:
        self.stdout.write(f"Everything {verb} paused, in a new epoch; the present one is {found.epoch}.")
        self.stdout.write(f"{found.executors:,} executors and {found.leases:,} leases {verb} let go.")
        if found.alive:
            self.stdout.write(
                f"{found.alive:,} executors gave a sign of life since the server started, and keep what they have."
            )
        count = sum(one.count for one in found.under_way)
        self.stdout.write(f"{count:,} calls were under way; whether they went through, the database cannot know.")
        for one in found.under_way:
            self.stdout.write(f"  {one.count:>9,}  {one.kind}: {_fate(one)}")


def _fate(one: UnderWay) -> str:
    if one.idempotent is None:
        return "its payload, or a worker that knows it, tells whether it may be repeated"
    if one.idempotent:
        return "idempotent, is tried again after the pause"
    return "not idempotent, ends as a dead letter, outcome_unknown"
