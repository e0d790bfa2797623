"""What tests counted, shown after the run: a test that passes should still say by how much."""

import json
import subprocess
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import pytest

FIGURE = "figure"


@pytest.fixture
def figures(request: pytest.FixtureRequest) -> Callable[[str], None]:
    """Say what was counted; it is shown after the tests."""
    # With the test's report it comes from whichever process ran the test.
    return lambda text: request.node.user_properties.append((FIGURE, f"{request.node.name}: {text}"))


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--write-figures", metavar="FILE", help="write the figures of a run without failures as JSON")


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    lines = [
        str(text)
        for outcome in ("passed", "failed")
        for report in terminalreporter.getreports(outcome)
        if report.when == "call"
        for name, text in report.user_properties
        if name == FIGURE
    ]
    if lines:
        terminalreporter.section("figures")
        for line in lines:
            terminalreporter.line(line)
    if (target := terminalreporter.config.getoption("--write-figures")) and not terminalreporter.getreports("failed"):
        _write(Path(target), sorted(lines))


def _write(target: Path, lines: list[str]) -> None:
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False)
    told = {
        "date": datetime.now(tz=UTC).date().isoformat(),
        "commit": commit.stdout.strip() or "unknown",
        "figures": [line.split(": ", 1) for line in lines],
    }
    target.write_text(json.dumps(told, indent=2) + "\n", encoding="utf-8")
