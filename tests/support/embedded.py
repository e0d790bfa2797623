"""Servers of a test's own, for tests that stop or kill them."""

import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def throw_away_data_dir() -> Iterator[Path]:
    """Give a directory that the server's user can reach (pytest's tmp_path is closed to others)."""
    directory = Path(tempfile.mkdtemp(prefix="queueops-test-"))
    directory.chmod(0o711)
    try:
        yield directory
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def copy_files(directory: Path, copy: Path) -> None:
    """Copy a stopped server's files, with those whom they belong to: as root it runs as another user."""
    subprocess.run(["cp", "-a", "--", directory, copy], check=True)
