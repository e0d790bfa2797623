"""What tests counted, shown after the run: a test that passes should still say by how much."""

from collections.abc import Callable

import pytest

FIGURE = "figure"


@pytest.fixture
def figures(request: pytest.FixtureRequest) -> Callable[[str], None]:
    """Say what was counted; it is shown after the tests."""
    # With the test's report it comes from whichever process ran the test.
    return lambda text: request.node.user_properties.append((FIGURE, f"{request.node.name}: {text}"))


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
