import time
from argparse import ArgumentParser
from typing import Any
from uuid import UUID

from django.core.management.base import BaseCommand, CommandError
from django.db import OperationalError, connection
from django.utils import timezone
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from jobs.models import Batch, Executor
from jobs.services.explain.batch_report import BatchReport, duration_text, read_report
from jobs.states import SHOWN

TERMINAL_SECONDS = 0.5
LINE_SECONDS = 2.0
SETTLE_READS = 6
WORKERS_START_SECONDS = 10.0
NO_WORKER = "No worker is running; start one: manage.py qcluster"

TERMINAL_COLOURS = {"green": "green", "red": "red", "amber": "yellow", "blue": "cyan", "grey": ""}
COLOURS = {one.words: TERMINAL_COLOURS[one.tone] for one in SHOWN.values()}


class Command(BaseCommand):
    help = "Show a batch's progress until it is done: counts by state, rate, time left, dead letters."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("batch", nargs="?", default="latest", help="Its id, or latest (the default).")
        parser.add_argument("--once", action="store_true", help="Show it as it is now and end.")

    def handle(self, *args: Any, batch: str, once: bool, **options: Any) -> None:
        watched = self._find(batch)
        self.stdout.write(f"batch {watched.pk} {watched.name!r} of project {watched.project_id}")
        try:
            if once:
                self.stdout.write(self._read(watched.pk).line())
            elif self.stdout.isatty():
                self._show_live(watched.pk)
            else:
                self._show_lines(watched.pk)
        except KeyboardInterrupt:
            self.stdout.write(f"It goes on; look again: manage.py watch_batch {watched.pk}")
            return
        if not once:
            self._sum_up(self._settled(watched.pk))

    def _find(self, wanted: str) -> Batch:
        if wanted == "latest":
            found = Batch.objects.order_by("-created_at").first()
            if found is None:
                raise CommandError("There is no batch yet; manage.py seed_demo submits one.")
            return found
        try:
            return Batch.objects.get(pk=UUID(wanted))
        except (ValueError, Batch.DoesNotExist):
            raise CommandError(f"There is no batch {wanted!r}.") from None

    def _show_live(self, batch_id: UUID) -> None:
        with Live(console=Console(), transient=True, refresh_per_second=4) as live:
            while not (report := self._read(batch_id)).is_done:
                live.update(_screen(report, worker_runs=Executor.objects.exists()))
                time.sleep(TERMINAL_SECONDS)

    def _show_lines(self, batch_id: UUID) -> None:
        known: set[str] = set()
        warned = False
        while not (report := self._read(batch_id)).is_done:
            for reason in report.reasons:
                if reason.fingerprint not in known:
                    known.add(reason.fingerprint)
                    self.stdout.write(f"dead letter: {reason.line().partition(' x ')[2]}")
            if not warned and not report.finished and not Executor.objects.exists():
                warned = (timezone.now() - report.batch.created_at).total_seconds() > WORKERS_START_SECONDS
                if warned:
                    self.stdout.write(NO_WORKER)
            self.stdout.write(report.line())
            self.stdout.flush()
            time.sleep(LINE_SECONDS)
        self.stdout.write(report.line())

    def _read(self, batch_id: UUID) -> BatchReport:
        while True:
            try:
                return read_report(Batch.objects.get(pk=batch_id), now=timezone.now())
            except OperationalError:
                connection.close()
                self.stderr.write("The database does not answer; trying again.")
                time.sleep(LINE_SECONDS)

    def _settled(self, batch_id: UUID) -> BatchReport:
        """Read the batch again until a worker has noticed its end: before, nobody knows how long the batch took."""
        for _ in range(SETTLE_READS):
            report = self._read(batch_id)
            if report.took:
                break
            time.sleep(TERMINAL_SECONDS)
        return report

    def _sum_up(self, report: BatchReport) -> None:
        if report.is_done:
            took = f" in {duration_text(report.took)}" if report.took else ""
            self.stdout.write(f"done{took}: {report.counts()}")
        if report.reasons:
            self.stdout.write("dead letters, by reason:")
        for reason in report.reasons:
            self.stdout.write(f"  {reason.line()}")
            self.stdout.write(f"    {reason.remedy}")


def _screen(report: BatchReport, *, worker_runs: bool) -> RenderableType:
    figures = Table.grid(padding=(0, 3))
    for name in report.groups:
        figures.add_column(name)
    figures.add_row(*(Text(name, style="dim") for name in report.groups))
    figures.add_row(*(Text(str(count), style=COLOURS[name]) for name, count in report.groups.items()))
    pace = [f"{report.finished} of {report.total}"]
    if report.rate:
        pace.append(f"{report.rate:.1f}/s")
    if report.left is not None:
        pace.append(f"{duration_text(report.left)} left")
    head = Table.grid(padding=(0, 2))
    head.add_row(ProgressBar(total=max(1, report.total), completed=report.finished, width=50), Text("   ".join(pace)))
    parts: list[RenderableType] = [head, figures]
    if report.held_by:
        parts.append(Text(f"held by: {report.held_by}", style="dim"))
    if report.reasons:
        parts.append(Text("dead letters", style="dim"))
        parts += [Text(f"  {reason.line()}", overflow="ellipsis", no_wrap=True) for reason in report.reasons]
    if not worker_runs:
        parts.append(Text(NO_WORKER, style="yellow"))
    return Group(*parts)
