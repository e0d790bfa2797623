"""Every test here runs real executors, or real connections, against limits; several against the real sandbox."""

from pathlib import Path

import pytest

from tests.faults.ledger import Ledger


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    """Where handlers of tests.faults.app leave their traces."""
    return Ledger(tmp_path)
