"""What every fault test needs: committed data, a ledger, and a place for its figures."""

import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from jobs.models import RetryPolicy
from tests.faults.ledger import Ledger

_figures: list[str] = []


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker("faults")


@pytest.fixture
def ledger() -> Iterator[Ledger]:
    directory = Path(tempfile.mkdtemp(prefix="queueops-ledger-"))
    yield Ledger(directory)
    shutil.rmtree(directory, ignore_errors=True)


@pytest.fixture
def quick_retries(transactional_db: None) -> None:
    """The retry policy of the test's handlers: as the default, but soon."""
    RetryPolicy.objects.create(name="faults", initial_seconds=0.05, multiplier=1, max_delay_seconds=0.1)


@pytest.fixture
def figures(request: pytest.FixtureRequest) -> Callable[[str], None]:
    """Say what was counted; it is shown after the tests."""
    return lambda text: _figures.append(f"{request.node.name}: {text}")


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if _figures:
        terminalreporter.section("figures of the fault tests")
        for line in _figures:
            terminalreporter.line(line)
