import json
from argparse import ArgumentParser
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from uuid import UUID

from django.conf import settings
from django.core.management.base import CommandError

from jobs.features.erasure.erase_user import STAYS, count_user, erase_user
from jobs.features.erasure.proof import WHY_TRAIL, find_traces
from queueops.core.processes.operator_command import OperatorCommand
from queueops.core.stores.choose import store_at

MAX_ENTRIES_SHOWN = 20


class Command(OperatorCommand):
    help = (
        "Erase one end user of a project: payloads, results, errors, logs, labels, stored answers, archived files. "
        "What is counted stays, under a name that leads nowhere. Cannot be undone. Without --yes it only counts."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("project")
        parser.add_argument("user", type=UUID, help="The user's id.")
        parser.add_argument("--yes", action="store_true", help="Erase.")
        parser.add_argument("--cancel", action="store_true", help="Cancel jobs that have not ended first.")
        parser.add_argument("--archive", help="Where archived files are, instead of QUEUEOPS_ARCHIVE_DIR.")
        parser.add_argument("--reason", default="", help="For the audit trail; do not name the user in it.")
        parser.add_argument("--report", type=Path, help="Write what was done into this new file, as JSON.")
        parser.add_argument(
            "--prove",
            action="store_true",
            help="Then search every row of the database, the project's results and archive for the user's id; slow.",
        )

    def handle(self, *args: Any, project: str, user: UUID, report: Path | None, **options: Any) -> None:
        try:
            if not options["yes"]:
                self._say(count_user(project, user))
                self.stdout.write("Nothing was erased. --yes erases these, and archived files besides.")
                return
            root = options["archive"] or settings.QUEUEOPS.archive_dir
            store = store_at(root) if root else None
            if store:
                store.check(writing=False)
            with _reserved(report):
                done = erase_user(
                    project,
                    user,
                    store=store,
                    cancel=options["cancel"],
                    actor="system:erase_user",
                    reason=options["reason"],
                    say=self.stdout.write,
                )
                traces = find_traces(project, user, archive=store) if options["prove"] else None
        except OSError as error:
            raise CommandError(f"It cannot be proven: {error}. What could be erased is.") from error
        untouched = [asdict(one) for one in done.untouched]
        self._say(done.rows)
        self.stdout.write(f"Counted rows are called {done.pseudonym} now. What stays:")
        self.stdout.writelines(f"  - {line}\n" for line in STAYS)
        self.stdout.write(f"{len(untouched):,} entries of the audit trail name the user, and stay: {WHY_TRAIL}.")
        for one in untouched[:MAX_ENTRIES_SHOWN]:
            self.stdout.write(f"  - entry {one['entry']}, {one['action']}: in {', '.join(one['fields']) or 'its row'}")
        if len(untouched) > MAX_ENTRIES_SHOWN:
            self.stdout.write(f"  - and {len(untouched) - MAX_ENTRIES_SHOWN:,} more; --report has all of them.")
        if report:
            said = {
                "project": project,
                "user": str(user),
                "called_now": str(done.pseudonym),
                "erased_at": f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}",
                "erased": done.rows,
                "stays": STAYS,
                "audit_entries": len(untouched),
                "untouched": untouched,
                "archive": str(store) if store else None,
                "rows_with_the_id": traces,
            }
            report.write_text(json.dumps(said, indent=1, default=str), encoding="utf-8")
        if traces:
            words = ", ".join(f"{count:,} in {table}" for table, count in traces.items())
            raise CommandError(f"The user's id is left: {words}. Another project may know the same user.")
        if traces is not None:
            self.stdout.write("No other row of the database has the user's id, nor any result or archived file.")

    def _say(self, rows: Any) -> None:
        self.stdout.write(
            ", ".join(f"{count:,} {name}" for name, count in rows.items() if count) or "There is nothing."
        )


@contextmanager
def _reserved(report: Path | None) -> Iterator[None]:
    """Make the report's file, empty, before anything is erased: without it nothing could be told later."""
    if report is None:
        yield
        return
    try:
        report.touch(exist_ok=False)
    except FileExistsError:
        raise CommandError(f"{report} exists. Name a new file for the report.") from None
    except OSError as error:
        raise CommandError(f"{report} cannot be written: {error.strerror}. Nothing was erased.") from error
    try:
        yield
    except BaseException:
        report.unlink(missing_ok=True)
        raise
