"""Servers of a test's own, for tests that stop or kill them, and Django's connection to them."""

import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from django.db import connection

from queueops.core.embedded.cluster import DATABASE_NAME, SUPERUSER


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


@contextmanager
def connected_to(host: str, port: int | str = "", *, user: str = SUPERUSER, password: str = "") -> Iterator[None]:
    """Have every connection of this process, and of those that it starts, go to a server's database `queueops`."""
    connection.close()
    before = dict(connection.settings_dict)
    connection.settings_dict.update(NAME=DATABASE_NAME, USER=user, PASSWORD=password, HOST=host, PORT=str(port))
    try:
        yield
    finally:
        connection.close()
        connection.settings_dict.update(before)
