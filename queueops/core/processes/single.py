"""A lock between processes: one process holds it at a time, until it lets go or dies."""

import contextlib
import fcntl
import os
from collections.abc import Iterator
from pathlib import Path

from queueops.core.errors import QueueOpsError


class AlreadyRunning(QueueOpsError):
    """Another process holds it."""

    code = "already_running"
    status = 409
    detail_fields = ("pid",)


@contextlib.contextmanager
def only_holder(path: Path) -> Iterator[None]:
    """
    Hold the lock file `path`; a holder that is killed lets go, because the kernel drops the lock.

    Raises:
        AlreadyRunning: Another process holds it; its pid is in the details.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a+") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            file.seek(0)
            raise AlreadyRunning(pid=file.read().strip() or "unknown") from None
        file.truncate(0)
        file.write(str(os.getpid()))
        file.flush()
        yield
