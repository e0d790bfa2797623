import json
from argparse import ArgumentParser
from pathlib import Path
from typing import Any

import pydantic_core
from django.conf import settings
from django.core.management.base import CommandError

from jobs.features.uploads.uploads import read_lines
from jobs.models import Upload
from queueops.core.processes.operator_command import OperatorCommand
from queueops.site.rehearsal import Rehearsed, rehearse, written_limits


class Command(OperatorCommand):
    help = (
        "Carry out jobs of a file against the sandbox under production's limits, and say what would happen. "
        "Nothing of it stays. docs/how-to/rehearse-a-quota.md"
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("file", nargs="?", type=Path, help="Jobs: NDJSON, an array of JSON, or CSV.")
        add = parser.add_argument
        add("--limits", type=Path, help="Production's, from --write-limits there. Left out: these here.")
        add("--write-limits", type=Path, metavar="FILE", help="Write this installation's limits, and end.")
        add("--most", type=int, default=100, help="How many jobs are carried out (100).")
        add("--minutes", type=float, default=2.0, help="For at most so long (2).")
        add("--knobs", type=Path, help="JSON for the sandbox, such as its quotas: docs/how-to/sandbox.md.")

    def handle(self, *args: Any, file: Path | None, **options: Any) -> None:
        try:
            if options["write_limits"]:
                options["write_limits"].write_text(written_limits(), encoding="utf-8")
                self.stdout.write(f"{options['write_limits']} has the limits of this installation.")
                return
            if file is None:
                raise CommandError("Name a file of jobs.")
            if not settings.QUEUEOPS.allow_loopback_targets:
                raise CommandError("The sandbox is at 127.0.0.1: set QUEUEOPS_ALLOW_LOOPBACK_TARGETS=on, elsewhere.")
            limits, knobs = options["limits"], options["knobs"]
            done = rehearse(
                _lines(file),
                limits=limits.read_text(encoding="utf-8") if limits else None,
                most=options["most"],
                seconds=options["minutes"] * 60,
                knobs=json.loads(knobs.read_text(encoding="utf-8")) if knobs else {},
            )
        except (OSError, ValueError) as error:
            raise CommandError(f"It cannot be read: {error}") from error
        for line in _told(done):
            self.stdout.write(line)


def _lines(file: Path) -> list[dict[str, Any]]:
    form = Upload.Format.CSV if file.suffix.lower() in (".csv", ".tsv") else Upload.Format.NDJSON
    found = []
    for line in read_lines(file.read_bytes(), form=form, default_kind="", jobs_alone=False):
        job = pydantic_core.from_json(line) if isinstance(line, bytes | str) and line.strip() else line
        if isinstance(job, dict):
            found.append(job)
    return found


def _told(done: Rehearsed) -> list[str]:
    forecast = done.forecast
    lines = [
        f"{done.jobs:,} jobs in {done.seconds:.0f} s: {_counts(done.ended)}.",
        f"The sandbox took {done.accepted:,} calls and refused {done.refused:,}.",
    ]
    if done.failures:
        lines.append(f"Failed for good: {_counts(done.failures)}.")
    if done.deferred:
        lines.append(f"Put back for want of room: {_counts(done.deferred)}.")
    slowest = max((one.seconds for one in forecast.binding if one.seconds is not None), default=0.0)
    known = forecast.live.seconds
    whole = _minutes(known) if known is not None else f"at least {_minutes(slowest)} by its limits; {forecast.live.why}"
    lines.append(f"The whole file, {forecast.jobs:,} jobs: {whole.rstrip('.')}.")
    for one in forecast.binding:
        took = one.why if one.seconds is None else _minutes(one.seconds)
        lines.append(f"  {one.limit} ({one.key}) lets it through in {took}")
    lines += [f"  {forecast.rejected_count:,} lines would be refused"] * bool(forecast.rejected_count)
    if done.refused:
        lines.append("Refused calls mean that a limit lets through more than the provider takes: lower it first.")
    return lines


def _counts(counted: Any) -> str:
    return ", ".join(f"{count:,} {name}" for name, count in sorted(counted.items(), key=lambda one: -one[1])) or "none"


def _minutes(seconds: float) -> str:
    return f"{seconds / 60:,.1f} min"
