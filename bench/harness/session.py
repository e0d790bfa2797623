"""The frame of every benchmark: arguments, server, environment, report."""

from __future__ import annotations

import argparse
import fcntl
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from django.conf import settings

from queueops.core.embedded.cluster import EmbeddedServer

from .databases import Databases
from .report import Report, environment_facts


@dataclass(frozen=True, slots=True)
class Session:
    """
    The tools that a benchmark works with.

    Attributes:
        postmaster: The pid of the embedded server, whose CPU time can be shown; None: another server is used.
        full: Whether the long form was asked for.
        options: The benchmark's own options that were given.
    """

    report: Report
    databases: Databases
    postmaster: int | None
    full: bool
    options: frozenset[str] = frozenset()


def run(bench: str, measure: Callable[[Session], None], *, options: Mapping[str, str] | None = None) -> None:
    """
    Carry out one benchmark as the command line asks.

    Args:
        options: The benchmark's own switches: the effect of each, by its name.
    """
    parser = argparse.ArgumentParser(prog=f"python -m bench.{bench}")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures to this file")
    parser.add_argument("--full", action="store_true", help="the long form")
    for name, meaning in (options or {}).items():
        parser.add_argument(f"--{name}", dest="options", action="append_const", const=name, help=meaning)
    parser.set_defaults(options=[])
    chosen = parser.parse_args()
    data_dir = settings.QUEUEOPS.data_dir
    with _alone(data_dir), _server(data_dir) as (server_url, postmaster):
        databases = Databases(server_url)
        databases.drop_stale()
        report = Report(bench, environment_facts(server_url))
        measure(Session(report, databases, postmaster, chosen.full, frozenset(chosen.options)))
    report.show()
    if chosen.json:
        report.write(chosen.json)


@contextmanager
def _alone(data_dir: Path) -> Iterator[None]:
    """Refuse to run beside another benchmark: each would measure the other."""
    data_dir.mkdir(parents=True, exist_ok=True)
    with (data_dir / "bench.lock").open("a") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise SystemExit("another benchmark is running; wait for it") from None
        yield


@contextmanager
def _server(data_dir: Path) -> Iterator[tuple[str, int | None]]:
    """Yield DATABASE_URL's server, or else the benchmarks' own embedded server, with the platform's settings."""
    if settings.QUEUEOPS.database_url:
        yield settings.QUEUEOPS.database_url, None
        return
    with EmbeddedServer(data_dir).use() as server:
        pid = int((server.cluster / "postmaster.pid").read_text().split("\n", 1)[0])
        yield server.dsn("postgres"), pid
