"""Says at the end where the run's time went: by folder and phase, the dearest tests, and those that only computed."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field

import pytest

DEAREST = 10
CPU = "cpu"  # the property in which tests/support/tiers.py notes it
CPU_SECONDS = 1.0  # a test without a process that takes more could be cheaper
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
    computed: set[tuple[float, str]] = set()
    for report in _reports(terminalreporter):
        for spent in (by_folder[report.nodeid.partition("::")[0].rpartition("/")[0]], by_test[report.nodeid]):
            spent.add(report.nodeid, report.when or "call", report.duration)
        computed |= {(float(str(seconds)), report.nodeid) for name, seconds in report.user_properties if name == CPU}
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
    for nodeid, spent in sorted(by_test.items(), key=lambda one: -one[1].total)[:DEAREST]:
        terminalreporter.line(f"{spent.total:7.1f} {nodeid}")
    if any(seconds > CPU_SECONDS for seconds, _ in computed):
        terminalreporter.line(f"more than {CPU_SECONDS:g} s of CPU without a process:")
    for seconds, nodeid in sorted(computed, reverse=True):
        if seconds > CPU_SECONDS:
            terminalreporter.line(f"{seconds:7.1f} {nodeid}")


def _reports(terminalreporter: pytest.TerminalReporter) -> Iterator[pytest.TestReport]:
    for reports in terminalreporter.stats.values():
        yield from (report for report in reports if isinstance(report, pytest.TestReport))
