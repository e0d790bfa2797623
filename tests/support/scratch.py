"""
Where tests keep their databases and files: in memory, where this machine has room there.

A test that commits is followed by a TRUNCATE, which makes a new file for each table and index and removes the old
one, some hundred a test. On ext4 that took 0.15 s each: it looks through what was lately removed for a free place.
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

MEMORY = Path("/dev/shm")  # noqa: S108 - what is made there has names of its own
MIN_FREE_BYTES = 6 << 30


def use_memory() -> None:
    """Have this process, and those that it starts, make temporary files in memory, unless TMPDIR says where."""
    if "TMPDIR" not in os.environ and _has_room(MEMORY):
        os.environ["TMPDIR"] = tempfile.tempdir = str(MEMORY)


def _has_room(place: Path) -> bool:
    """Whether files may be made, and carried out, as the database's programs are."""
    if not os.access(place, os.W_OK | os.X_OK):
        return False
    kept = os.statvfs(place)
    return not kept.f_flag & os.ST_NOEXEC and kept.f_bavail * kept.f_frsize >= MIN_FREE_BYTES
