"""What the tests of the clients start, and what they read of it."""

from __future__ import annotations

import sys
from pathlib import Path
from uuid import UUID

from jobs.models import Job
from tests.factories import move_along
from tests.support.processes import ROOT, RunningProcess

QUEUEOPS = [sys.executable, "-c", "from queueops_client.cli.main import main; main()"]
ENVIRON = {"PYTHONPATH": str(ROOT / "clients/python/src")}


def finish(jobs: list[Job], *, edge: str = "complete") -> None:
    for step in ("dispatch", "start", edge):
        move_along(step, [job.pk for job in jobs])


def calls_of(record: Path) -> dict[UUID, int]:
    """What the provider carried out."""
    lines = [line.split() for line in record.read_text().splitlines()]
    return {UUID(event_id): int(tokens) for event_id, tokens in lines}


def returned(process: RunningProcess) -> set[UUID]:
    """The uses that ended, as far as their process could still say so."""
    whole = process.output.rpartition("\n")[0]
    return {UUID(line.removeprefix("done ")) for line in whole.splitlines() if line.startswith("done ")}
