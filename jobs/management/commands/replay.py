from argparse import ArgumentParser
from collections import Counter
from datetime import datetime
from time import monotonic
from typing import Any
from uuid import UUID

from django.core.management.base import CommandError
from django.db.models import QuerySet

from jobs.features.recovery.replay import RowDifference, choose_jobs, compare, repair
from jobs.models import Batch, Job
from queueops.core.processes.operator_command import OperatorCommand
from queueops.core.values.moments import RULE, parse_moment
from queueops.tenancy.models import Project

SHOWN = 10
SAID_EVERY_SECONDS = 5.0


class Command(OperatorCommand):
    help = (
        "Rebuild jobs from their log and compare the rows with it, column by column. Changes nothing without --repair. "
        " Ends with 1 while something differs. Work may go on meanwhile."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--batch", help="Only this batch's jobs.")
        parser.add_argument("--project", help="Only this project's.")
        parser.add_argument("--since", help=f"Only jobs made since. {RULE}.")
        parser.add_argument("--until", help="Only jobs made before.")
        parser.add_argument("--repair", action="store_true", help="Write rows that differ as their log says.")
        parser.add_argument("--yes", action="store_true", help="Do not ask.")

    def handle(self, *args: Any, repair: bool, yes: bool, **options: Any) -> None:
        chosen = _chosen(options)
        begun = told = monotonic()
        judged = dropped = 0
        headless: list[UUID] = []
        columns: Counter[str] = Counter()
        differing: dict[UUID, bool] = {}
        for some in compare(chosen):
            judged, dropped = judged + some.judged, dropped + some.dropped
            headless += some.headless
            for one in some.differences:
                columns.update(list(one.columns))
                differing[one.job_id] = one.is_running
                if len(differing) <= SHOWN:
                    self._show(one)
            if monotonic() - told > SAID_EVERY_SECONDS:
                told = monotonic()
                self.stdout.write(f"{judged + dropped:,} jobs looked at, {len(differing):,} differ ...")
        seconds = monotonic() - begun
        self.stdout.write(
            f"{judged:,} jobs were compared with their log in {seconds:,.1f} s; {len(differing):,} differ."
        )
        if dropped:
            self.stdout.write(
                f"{dropped:,} older jobs cannot be judged: retention has dropped the beginning of their log."
            )
        if headless:
            self.stdout.write(
                f"{len(headless):,} jobs have no beginning in the log: {', '.join(map(str, headless[:3]))} ..."
            )
        for name, count in columns.most_common():
            self.stdout.write(f"{count:>9,}  {name}")
        left = len(differing)
        if repair and differing:
            left -= self._repair([job_id for job_id, runs in differing.items() if not runs], asks=not yes)
        if left or headless:
            raise CommandError(f"{left + len(headless):,} jobs differ from their log.")

    def _show(self, one: RowDifference) -> None:
        self.stdout.write(f"job {one.job_id} of {one.project}{', which runs' if one.is_running else ''}:")
        for name, (is_so, should_be) in one.columns.items():
            self.stdout.write(f"    {name}: the row has {_shown(is_so)}, its log {_shown(should_be)}")

    def _repair(self, ids: list[UUID], *, asks: bool) -> int:
        unasked = "Give --yes, after you have looked at what differs."
        if asks and ids and not self.is_sure(f"Write {len(ids):,} rows anew from their log?", unasked=unasked):
            return 0
        done = 0
        for count in repair(ids):
            done += count
            self.stdout.write(f"{done:,} of {len(ids):,} written ...")
        return done


def _shown(value: Any) -> str:
    return value.isoformat() if isinstance(value, datetime) else repr(value)[:100]


def _chosen(options: dict[str, Any]) -> QuerySet[Job]:
    since, until = (_moment(f"--{name}", options[name]) for name in ("since", "until"))
    if since and until and since >= until:
        raise CommandError("--since must be before --until.")
    return choose_jobs(batch=_batch(options["batch"]), project=_project(options["project"]), since=since, until=until)


def _batch(given: str | None) -> UUID | None:
    if given is None:
        return None
    try:
        return Batch.objects.values_list("pk", flat=True).get(pk=UUID(given))
    except (ValueError, Batch.DoesNotExist):
        raise CommandError(f"There is no batch {given!r}.") from None


def _project(given: str | None) -> str | None:
    if given is not None and not Project.objects.filter(pk=given).exists():
        raise CommandError(f"There is no project {given!r}.")
    return given


def _moment(option: str, given: str | None) -> datetime | None:
    try:
        return None if given is None else parse_moment(given)
    except ValueError:
        raise CommandError(f"{option}: {RULE}.") from None
