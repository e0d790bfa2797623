from argparse import ArgumentParser
from time import monotonic
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError

from jobs.features.archive.archive import archive, count_archivable, stop_archiving
from queueops.core.errors import QueueOpsError
from queueops.core.stores.choose import store_at

MAX_KEPT_DAYS = 36_500


class Command(BaseCommand):
    help = (
        "Write ended jobs, batches and days of the log that are past their retention into the archive, read them back, "
        "and delete them then. Run it once a day, on one host. Once it has run, house-keeping deletes none of these. "
        "Safe to repeat and to interrupt."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--to", help="A directory or s3://bucket/prefix, instead of QUEUEOPS_ARCHIVE_DIR.")
        parser.add_argument("--older-than", type=int, metavar="DAYS", help="Instead of QUEUEOPS_RETENTION_DAYS.")
        parser.add_argument("--dry-run", action="store_true", help="Only say what would be archived.")
        parser.add_argument("--stop", action="store_true", help="Archive no more: house-keeping deletes what is old.")

    def handle(
        self, *args: Any, to: str | None, older_than: int | None, dry_run: bool, stop: bool, **options: Any
    ) -> None:
        if stop and (dry_run or to is not None or older_than is not None):
            raise CommandError("--stop goes with no other option.")
        if stop:
            stop_archiving(actor="system:archive")
            still = " QUEUEOPS_ARCHIVE_DIR is still set: unset it, on every host." * bool(settings.QUEUEOPS.archive_dir)
            self.stdout.write(f"House-keeping deletes what is past its retention again.{still}")
            return
        if older_than is not None and not 1 <= older_than <= MAX_KEPT_DAYS:
            raise CommandError(f"--older-than is a number of days, 1 to {MAX_KEPT_DAYS:,}.")
        if dry_run:
            found = ", ".join(f"{count:,} {what}" for what, count in count_archivable(older_than).items())
            self.stdout.write(f"Would archive {found}.")
            return
        root = to or settings.QUEUEOPS.archive_dir
        if root is None:
            raise CommandError("Say where to: --to PLACE, or QUEUEOPS_ARCHIVE_DIR.")
        begun = monotonic()
        try:
            store = store_at(root)
            store.check(writing=True)  # before the database records that there is an archive
            done = archive(store, say=self.stdout.write, actor="system:archive", days=older_than)
        except (QueueOpsError, OSError) as error:
            raise CommandError(str(error)) from error
        left = f" {done.left_days} days of the log stay for now." if done.left_days else ""
        self.stdout.write(
            f"{store}: {done.jobs:,} jobs, {done.batches:,} batches and {done.events:,} events in {done.files:,} new "
            f"files, read back and deleted here, in {monotonic() - begun:,.1f} s.{left}"
        )
