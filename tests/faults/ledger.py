"""An append-only file that handlers write and tests read: what was really done, told by nobody who could be wrong."""

from __future__ import annotations

import json
import os
import time
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from uuid import UUID


@dataclass(frozen=True, slots=True)
class Entry:
    """One thing that a handler did; `what` is `effect`, `begin` or `end`."""

    job: UUID
    what: str
    pid: int
    at: float


class Ledger:
    """
    The ledger of one test, with the gates that its handlers wait at; everything lives in one directory.

    One write to a file opened with O_APPEND is atomic, so a killed writer leaves a whole line or none.
    """

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._file = directory / "ledger"

    def write(self, job: UUID, what: str) -> None:
        line = json.dumps({"job": str(job), "what": what, "pid": os.getpid(), "at": time.time()}) + "\n"
        file = os.open(self._file, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        try:
            os.write(file, line.encode())
        finally:
            os.close(file)

    def entries(self, what: str = "effect") -> list[Entry]:
        """In the order they were written."""
        if not self._file.exists():
            return []
        found = [json.loads(line) for line in self._file.read_text().splitlines()]
        return [Entry(**{**entry, "job": UUID(entry["job"])}) for entry in found if entry["what"] == what]

    def by_job(self, what: str = "effect") -> dict[UUID, list[Entry]]:
        found: dict[UUID, list[Entry]] = defaultdict(list)
        for entry in self.entries(what):
            found[entry.job].append(entry)
        return found

    def open_gate(self, name: str) -> None:
        """Let the handlers that wait at this gate go on, and those that come later."""
        (self.directory / f"gate-{name}").touch()

    def is_open(self, name: str) -> bool:
        return (self.directory / f"gate-{name}").exists()

    def first_time(self, name: str) -> bool:
        """Whether nobody asked this before, in any process."""
        try:
            os.close(os.open(self.directory / f"once-{name}", os.O_CREAT | os.O_EXCL))
        except FileExistsError:
            return False
        return True

    def was_asked(self, name: str) -> bool:
        """Whether somebody asked `first_time` this."""
        return (self.directory / f"once-{name}").exists()
