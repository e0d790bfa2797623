"""What every fault test needs: committed data and a ledger."""

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from jobs.models import RetryPolicy
from tests.faults.ledger import Ledger


@pytest.fixture
def ledger() -> Iterator[Ledger]:
    directory = Path(tempfile.mkdtemp(prefix="queueops-ledger-"))
    yield Ledger(directory)
    shutil.rmtree(directory, ignore_errors=True)


@pytest.fixture
def quick_retries(transactional_db: None) -> None:
    """The retry policy of the test's handlers: as the default, but soon."""
    RetryPolicy.objects.create(name="faults", initial_seconds=0.05, multiplier=1, max_delay_seconds=0.1)
