"""
The owners of rows in an outbox. Each process locks a file of its own; the system drops the lock when the process dies.
"""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from pathlib import Path
from uuid import uuid4

if sys.platform == "win32":
    import msvcrt

    def _lock(descriptor: int) -> None:
        msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)
else:
    import fcntl

    def _lock(descriptor: int) -> None:
        # flock's lock is the open file's. lockf's is the process's, and closing another descriptor would drop it.
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)


SUFFIX = ".owner"


class Owner:
    """This process as an owner of an outbox's rows, by a locked file that the constructor creates."""

    def __init__(self, outbox: Path) -> None:
        self._descriptor: int | None = None
        while self._descriptor is None:
            self.id = uuid4().hex
            self._path = _path_of(outbox, self.id)
            self._descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
            with suppress(BlockingIOError, PermissionError):
                _lock(self._descriptor)
                if os.fstat(self._descriptor).st_nlink:
                    break
            self.forget()  # another process removed the file before it was locked

    def leave(self) -> None:
        """Stop being an owner: unlock the file and remove it."""
        self.forget()
        with suppress(OSError):
            self._path.unlink()

    def forget(self) -> None:
        """Close the file but do not remove it, as a forked child does with its parent's."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None


def is_alive(outbox: Path, owner_id: str) -> bool:
    """Whether this owner still runs; the file of a dead owner is removed."""
    path = _path_of(outbox, owner_id)
    try:
        descriptor = os.open(path, os.O_RDWR)
    except FileNotFoundError:
        return False
    except OSError:
        return True  # not permitted to open it: a live owner taken for dead would have its calls taken for lost
    try:
        _lock(descriptor)
    except OSError:
        return True
    finally:
        os.close(descriptor)
    with suppress(OSError):
        path.unlink()
    return False


def seats(outbox: Path) -> set[str]:
    """Return the ids of all owners, living and dead."""
    start = f"{outbox.name}-"
    found = outbox.parent.glob(f"*{SUFFIX}")
    return {path.name.removeprefix(start).removesuffix(SUFFIX) for path in found if path.name.startswith(start)}


def _path_of(outbox: Path, owner_id: str) -> Path:
    return outbox.with_name(f"{outbox.name}-{owner_id}{SUFFIX}")
