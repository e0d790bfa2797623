"""What tests counted, shown after the run: a test that passes should still say by how much."""

from collections.abc import Callable

import pytest

_figures: list[str] = []


@pytest.fixture
def figures(request: pytest.FixtureRequest) -> Callable[[str], None]:
    """Say what was counted; it is shown after the tests."""
    return lambda text: _figures.append(f"{request.node.name}: {text}")


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if _figures:
        terminalreporter.section("figures")
        for line in _figures:
            terminalreporter.line(line)
