"""Says at the end where the run's time went: by folder and phase, and the slowest tests."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field

import pytest

SLOWEST = 12
SHOWN_SECONDS = 2.0  # folders below it are summed up in one line


@dataclass(slots=True)
class _Spent:
    tests: set[str] = field(default_factory=set)
    setup: float = 0.0
    call: float = 0.0
    teardown: float = 0.0

    @property
    def total(self) -> float:
        return self.setup + self.call + self.teardown

    def add(self, nodeid: str, when: str, seconds: float) -> None:
        self.tests.add(nodeid)
        setattr(self, when, getattr(self, when) + seconds)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    by_folder: defaultdict[str, _Spent] = defaultdict(_Spent)
    by_test: defaultdict[str, _Spent] = defaultdict(_Spent)
    for reports in terminalreporter.stats.values():
        for report in reports:
            if isinstance(report, pytest.TestReport):
                for spent in (by_folder[report.nodeid.partition("::")[0].rpartition("/")[0]], by_test[report.nodeid]):
                    spent.add(report.nodeid, report.when or "call", report.duration)
    whole = sum(spent.total for spent in by_folder.values())
    if whole < SHOWN_SECONDS:
        return
    terminalreporter.section("where the time went, in seconds of a test process")
    terminalreporter.line(f"{'folder':<32}{'tests':>7}{'setup':>9}{'call':>9}{'teardown':>10}{'all':>9}")
    for folder, spent in sorted(by_folder.items(), key=lambda one: -one[1].total):
        if spent.total >= SHOWN_SECONDS:
            terminalreporter.line(
                f"{folder:<32}{len(spent.tests):>7}{spent.setup:>9.1f}{spent.call:>9.1f}"
                f"{spent.teardown:>10.1f}{spent.total:>9.1f}"
            )
    terminalreporter.line(f"{'all':<32}{len(by_test):>7}{whole:>44.1f}")
    for nodeid, spent in sorted(by_test.items(), key=lambda one: -one[1].total)[:SLOWEST]:
        terminalreporter.line(f"{spent.total:7.1f} {nodeid}")
