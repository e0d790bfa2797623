import signal
from argparse import ArgumentParser
from math import inf
from time import monotonic
from typing import Any

from django.core.management.base import CommandError

from queueops.core.processes.operator_command import OperatorCommand
from queueops.core.processes.stop_signals import handle_stop
from queueops.core.values.parse import POSTGRES_URL
from queueops.site.moving.move import Outcome, abort_move, move_project, plan_move

MOVE_WAIT_SECONDS = 300.0


class Command(OperatorCommand):
    help = (
        "Move a project to another installation (docs/how-to/move-a-project.md): pause it, copy its rows, compare, "
        "switch. Without --yes it only checks and counts. Cut off, repeat it: it finishes, or begins anew."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("project")
        parser.add_argument("--to", required=True, metavar="DATABASE_URL", help="The other installation's database.")
        parser.add_argument("--address", default="", help="The other installation's address, which callers are told.")
        parser.add_argument(
            "--wait", type=float, default=MOVE_WAIT_SECONDS, help="Seconds that running jobs may take (300)."
        )
        doing = parser.add_mutually_exclusive_group()
        doing.add_argument("--yes", action="store_true", help="Move it.")
        doing.add_argument("--dry-run", action="store_true", help="Only check and count, as without --yes.")
        doing.add_argument("--abort", action="store_true", help="Let it go on here after a move that was cut off.")

    def handle(self, *args: Any, project: str, to: str, address: str, wait: float, **options: Any) -> None:
        if address and not address.startswith(("https://", "http://")):
            raise CommandError("--address must begin with https:// or http://.")
        try:
            POSTGRES_URL.parse(to)
        except ValueError:
            # The URL is not repeated in the message, because it has a password. An empty URL would mean this machine's
            # database.
            raise CommandError(f"--to must be {POSTGRES_URL.rule}.") from None
        if not 0 <= wait < inf:
            raise CommandError("--wait is a number of seconds, 0 or more.")
        before = handle_stop(signal.default_int_handler)  # a stop before the switch undoes the move
        try:
            if options["abort"]:
                undone = abort_move(project, url=to)
                self.stdout.write(f"{project} goes on here." if undone else f"{project} is not being moved.")
            elif options["yes"]:
                self._move(project, to, address, wait)
            else:
                self._tell(project, plan_move(project, url=to))
        except KeyboardInterrupt:
            raise CommandError("Stopped. Repeat the command, or look whether the project goes on here.") from None
        finally:
            for name, handler in before.items():
                signal.signal(name, handler)

    def _move(self, project: str, to: str, address: str, wait: float) -> None:
        begun = monotonic()
        done = move_project(project, url=to, address=address, wait_seconds=wait, say=self.stdout.write)
        if done.finished:
            self._tell(project, done)
            return
        self._say(project, done)
        self.stdout.write(
            f"{project} has moved: {sum(done.rows.values()):,} rows, the same on both sides, in "
            f"{monotonic() - begun:,.1f} s. It runs there; here its API answers 410 project_moved, and it stays paused."
        )

    def _tell(self, project: str, plan: Outcome) -> None:
        if plan.finished:
            self.stdout.write(f"{project} has moved there already: there is nothing left to do.")
            return
        self._say(project, plan)
        self.stdout.write("Nothing was changed. --yes moves these; its API refuses what would write meanwhile.")

    def _say(self, project: str, outcome: Outcome) -> None:
        self.stdout.write(", ".join(f"{count:,} {name}" for name, count in outcome.rows.items() if count))
        if outcome.unserved:
            self.stderr.write(outcome.unserved)
        if outcome.stored:
            self.stdout.write(
                f"Of these jobs {outcome.stored:,} have results in the result store, {outcome.stored_bytes:,} bytes, "
                f"which are not moved: copy its folder {project} into the other installation's store, once the project "
                "is there. Until then these results answer result_missing there; here nothing removes them."
            )
