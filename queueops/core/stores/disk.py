"""Makes files outlive a loss of power on this machine's disk."""

from __future__ import annotations

import os
from pathlib import Path


def to_disk(path: Path) -> None:
    """Wait until a file, or the names in a directory, would outlive a loss of power."""
    opened = os.open(path, os.O_RDONLY)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)
