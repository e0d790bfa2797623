from argparse import ArgumentParser
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TextIO
from uuid import UUID

from django.core.management.base import CommandError

from jobs.features.recovery.read_outcomes import Outcomes, read_outcomes
from jobs.features.recovery.reconcile import (
    CHANGING,
    WHAT_IS_DONE,
    Discrepancy,
    Judged,
    compare,
    find_by_key,
    reconcile,
)
from queueops.core.processes.operator_command import OperatorCommand
from queueops.core.values.csv_lines import csv_line

SHOWN_OF_EACH = 5
TOLD_EVERY = 10_000  # jobs
WORTH_SEEING = CHANGING | {Discrepancy.REPEAT, Discrepancy.RUNS, Discrepancy.DIFFERS, Discrepancy.MISSING}


class Command(OperatorCommand):
    help = (
        "After a restore to an earlier moment: compare what ran since, as outcome logs (QUEUEOPS_OUTCOME_LOG) or your "
        "own list tell, with the database, and show what would be done. With --apply it is done: what was completed is "
        "completed and does not run again. docs/how-to/reconcile.md."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument(
            "files",
            nargs="+",
            type=Path,
            metavar="FILE_OR_DIRECTORY",
            help="Outcome logs, of all hosts; or a list: .csv, or JSON lines, with job_id or effect_key, outcome "
            "(completed, failed, unknown, not_done) and, if you like, result.",
        )
        parser.add_argument("--apply", action="store_true", help="Do what is shown.")
        parser.add_argument("--yes", action="store_true", help="Do not ask.")
        parser.add_argument("--force", action="store_true", help="Although not everything is paused.")
        parser.add_argument("--list", type=Path, metavar="FILE", help="Write each job and what is found to this .csv.")

    def handle(self, *args: Any, files: list[Path], **options: Any) -> None:
        outcomes = read_outcomes(files)
        self._tell_what_was_read(outcomes)
        wanted = self._show(outcomes, options["list"])
        if not options["apply"]:
            if wanted:
                self.stdout.write("Nothing was changed. --apply does it.")
            return
        unasked = "Give --yes, after you have looked at what is shown without."
        if wanted and (options["yes"] or self.is_sure(f"Change {len(wanted):,} jobs?", unasked=unasked)):
            self._apply(wanted, outcomes, force=options["force"])

    def _tell_what_was_read(self, outcomes: Outcomes) -> None:
        self.stdout.write(f"{outcomes.lines:,} lines tell of {len(outcomes.jobs) + len(outcomes.by_key):,} jobs.")
        if outcomes.torn:
            self.stdout.write(f"{len(outcomes.torn):,} files end amid a line, as a killed worker leaves them.")
        if foreign := sum(outcomes.foreign.values()):
            self.stdout.write(f"{foreign:,} lines are neither and were left out: {', '.join(outcomes.named)} ...")
        if missing := find_by_key(outcomes):
            self.stdout.write(f"{len(missing):,} effect keys are of no job here: {', '.join(missing[:SHOWN_OF_EACH])}")

    def _show(self, outcomes: Outcomes, path: Path | None) -> list[UUID]:
        """Show what is found, and return the jobs to change."""
        counts: Counter[Discrepancy] = Counter()
        shown: dict[Discrepancy, list[Judged]] = {finding: [] for finding in Discrepancy}
        wanted: list[UUID] = []
        with _opened(path) as file:
            for some in compare(outcomes):
                counts.update(one.finding for one in some)
                wanted += [one.id for one in some if one.finding in CHANGING]
                for one in some:
                    if len(shown[one.finding]) < SHOWN_OF_EACH:
                        shown[one.finding].append(one)
                if file:
                    file.writelines(csv_line((one.id, one.finding, *_of(one))) for one in some)
        for finding in (one for one in Discrepancy if counts[one]):
            self.stdout.write(f"{counts[finding]:>9,}  {finding:<50} {WHAT_IS_DONE[finding]}")
            for one in shown[finding] if finding in WORTH_SEEING else ():
                kind, project, _ = _of(one)
                self.stdout.write(f"{'':>11}{one.id} {kind}, {project}")
        return wanted

    def _apply(self, wanted: list[UUID], outcomes: Outcomes, *, force: bool) -> None:
        done: Counter[Discrepancy] = Counter()
        told = 0
        for some in reconcile(wanted, outcomes, force=force):
            done += some
            if done.total() - told >= TOLD_EVERY:
                told = done.total()
                self.stdout.write(f"{told:,} of {len(wanted):,} ...")
        self.stdout.write(
            f"{done[Discrepancy.COMPLETE]:,} completed, "
            f"{done[Discrepancy.FAIL] + done[Discrepancy.BURY]:,} became dead letters, "
            f"{done[Discrepancy.CLOSE]:,} dead letters discarded, "
            f"{len(wanted) - done.total():,} left alone because they changed meanwhile."
        )


def _of(one: Judged) -> tuple[str, str, str]:
    kind, project = (one.job.kind, one.job.project_id) if one.job else (one.said.kind, one.said.project)
    return kind, project, one.said.effect_key or (one.job.effect_key if one.job else "")


@contextmanager
def _opened(path: Path | None) -> Iterator[TextIO | None]:
    if path is None:
        yield None
        return
    try:
        file = path.open("w", encoding="utf-8", newline="")
    except OSError as error:
        raise CommandError(f"{path} cannot be written: {error.strerror}.") from error
    with file:
        file.write(csv_line(("job_id", "found", "kind", "project", "effect_key")))
        yield file
