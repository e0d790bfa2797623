"""A benchmark's report: a table on screen, and one JSON object."""

from __future__ import annotations

import json
import os
import platform
import subprocess
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import psycopg

ROOT = Path(__file__).resolve().parents[2]


@dataclass(slots=True)
class Report:
    """Collects one benchmark's figures."""

    bench: str
    facts: dict[str, str | int]
    metrics: dict[str, float] = field(default_factory=dict)
    names: dict[str, str] = field(default_factory=dict)  # metrics whose value is a word
    rows: list[tuple[str, str, str]] = field(default_factory=list)

    def figure(self, what: str, value: str, note: str = "") -> None:
        """Add a row to the table."""
        self.rows.append((what, value, note))

    def metric(self, name: str, value: float, what: str, note: str = "", *, unit: str = "") -> None:
        """Add a figure to the JSON, and its row to the table."""
        self.metrics[name] = round(value, 3)
        digits = max(0, 3 - len(f"{abs(value):.0f}"))  # three figures: further digits are noise
        self.figure(what, f"{value:,.{digits}f}{unit and ' ' + unit}", note)

    def show(self) -> None:
        facts = self.facts
        print(
            f"\n{self.bench}   commit {facts['commit']}, Python {facts['python']}, PostgreSQL {facts['postgres']}, "
            f"{facts['cpus']} CPUs"
        )
        widths = [max((len(row[column]) for row in self.rows), default=0) for column in (0, 1)]
        for what, value, note in self.rows:
            print(f"  {what:<{widths[0]}}  {value:>{widths[1]}}  {note}".rstrip())

    def write(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        content = {"bench": self.bench, **self.facts, "metrics": self.metrics | self.names}
        path.write_text(json.dumps(content, indent=2) + "\n")


def environment_facts(dsn: str) -> dict[str, str | int]:
    """
    Return the machine and the versions on which the figures were measured.

    Raises:
        SystemExit: The server answers commits before they are durable: the figures would mean nothing.
    """
    with psycopg.connect(dsn) as connection:
        for setting in ("fsync", "synchronous_commit", "full_page_writes"):
            value = connection.execute(f"SHOW {setting}").fetchone()
            if value != ("on",):
                raise SystemExit(f"{setting} must be on: a queue that may lose work is not what is measured")
        [version] = connection.execute("SHOW server_version").fetchone() or ("?",)
    return {
        "commit": _commit(),
        "python": platform.python_version(),
        "postgres": str(version).split()[0],
        "cpus": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1,
    }


def percentile(values: Sequence[float], share: float) -> float:
    """Return the value that this share of the values does not exceed, by nearest rank."""
    ordered = sorted(values)
    return ordered[max(0, -(-len(ordered) * round(share * 1000) // 1000) - 1)]


def commit_milliseconds(url: str, *, commits: int = 100, rest_seconds: float = 0.0) -> list[float]:
    """
    Return the milliseconds of commits that write one row: they show how fast the disk is at the moment.

    Args:
        rest_seconds: The pause between two commits. A disk that has rested may take ten times as long.
    """
    taken = []
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("CREATE TABLE IF NOT EXISTS bench_commit (number int)")
        for number in range(commits):
            begun = time.monotonic()
            connection.execute("INSERT INTO bench_commit VALUES (%s)", [number])
            taken.append((time.monotonic() - begun) * 1000)
            time.sleep(rest_seconds)
    return taken


def _commit() -> str:
    git = ("git", "-C", str(ROOT))
    found = subprocess.run((*git, "rev-parse", "--short", "HEAD"), capture_output=True, text=True, check=False)
    if found.returncode:
        return "unknown"
    code = ("jobs", "queueops", "ratelimits", "dashboards")
    dirty = subprocess.run((*git, "diff", "--quiet", "HEAD", "--", *code), check=False).returncode
    return found.stdout.strip() + ("+" if dirty else "")
