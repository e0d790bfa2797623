import json
from argparse import ArgumentParser, ArgumentTypeError
from collections.abc import Mapping
from datetime import date
from typing import Any
from uuid import UUID

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError

from jobs.features.archive.unarchive import find_archived_job, restore_jobs, verify_archive
from queueops.core.errors import QueueOpsError
from queueops.core.stores.choose import store_at
from queueops.core.stores.store import Store
from queueops.core.values.masking import masked_text, pretty

from .archive import MAX_KEPT_DAYS


class Command(BaseCommand):
    help = (
        "Read the archive back: show one job with all that was logged of it, or restore a project's jobs of a day, or "
        "some, as the ended jobs they were. Checksums are compared first. The archive keeps them."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument(
            "--from", dest="source", help="A directory or s3://bucket/prefix, instead of QUEUEOPS_ARCHIVE_DIR."
        )
        parser.add_argument("--show", type=UUID, metavar="JOB", help="Print one job, without its secrets; no more.")
        parser.add_argument("--verify", action="store_true", help="Read every file and compare checksums; no more.")
        parser.add_argument("--project", default="", help="Whose jobs.")
        parser.add_argument("--day", type=_day, help="Jobs that ended on this day (UTC), YYYY-MM-DD.")
        parser.add_argument(
            "--job", type=UUID, action="append", default=[], metavar="JOB", help="This one; repeatable."
        )
        parser.add_argument("--keep", type=int, default=30, metavar="DAYS", help="How long they stay; 30.")
        parser.add_argument("--dry-run", action="store_true", help="Check all, and write nothing.")

    def handle(self, *args: Any, source: str | None, show: UUID | None, verify: bool, **options: Any) -> None:
        root = source or settings.QUEUEOPS.archive_dir
        if root is None:
            raise CommandError("Say where the archive is: --from PLACE, or QUEUEOPS_ARCHIVE_DIR.")
        try:
            store = store_at(root)
            store.check(writing=False)
            if show:
                self._show(store, show)
            elif verify:
                files, rows = verify_archive(store, project_id=options["project"], say=self.stdout.write)
                if not files:
                    of = f" of the project {options['project']}" * bool(options["project"])
                    raise CommandError(f"{store} has nothing archived{of}: is that where the archive is?")
                self.stdout.write(f"{files:,} files with {rows:,} rows are what was written.")
            else:
                self._restore(store, options)
        except (QueueOpsError, OSError) as error:
            raise CommandError(str(error)) from error

    def _restore(self, store: Store, options: dict[str, Any]) -> None:
        project, day, job_ids, dry = (options[name] for name in ("project", "day", "job", "dry_run"))
        if not project or bool(day) == bool(job_ids):
            raise CommandError("Name a --project, and either --day or --job; or one job to --show.")
        if not 1 <= options["keep"] <= MAX_KEPT_DAYS:
            raise CommandError(f"--keep is a number of days, 1 to {MAX_KEPT_DAYS:,}.")
        done = restore_jobs(
            store,
            project_id=project,
            day=day,
            job_ids=job_ids,
            keep_days=options["keep"],
            actor="system:unarchive",
            say=self.stdout.write,
            dry_run=dry,
        )
        if dry:
            self.stdout.write(f"Would restore {done.jobs:,} jobs; {done.there:,} are there, the same.")
            return
        self.stdout.write(
            f"{done.jobs:,} jobs, {done.events:,} events and {done.batches:,} batches restored, for {options['keep']} "
            f"days; {done.there:,} jobs were there, the same."
        )

    def _show(self, store: Store, job_id: UUID) -> None:
        found = find_archived_job(store, job_id)
        letter = found.dead_letter and _with_values(found.dead_letter)
        text, _ = pretty(_with_values(found.job) | {"tags": found.tags, "dead_letter": letter})
        self.stdout.write(text)
        for event in found.events:
            move = f"{event['from_status'] or ''} > {event['to_status']}" if event["to_status"] else ""
            words = [event["created_at"], event["event_type"], move, masked_text(event["message"])]
            self.stdout.write("  ".join(word for word in words if word))


def _with_values(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return a row with `payload` and `result` as values, in place of the columns that have them as text."""
    texts = {name.removesuffix("_text"): row[name] for name in ("payload_text", "result_text") if row.get(name)}
    columns = {name: value for name, value in row.items() if name not in {"payload_text", "result_text"}}
    return columns | {name: json.loads(text) for name, text in texts.items()}


def _day(text: str) -> date:
    try:
        return date.fromisoformat(text)
    except ValueError:
        raise ArgumentTypeError(f"{text!r} is no day; write it as 2026-03-02") from None
