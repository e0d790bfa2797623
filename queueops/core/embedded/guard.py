"""
`python -m queueops.core.embedded.guard DIRECTORY`: stops the embedded server when its last user was killed.

A user that ends in order stops the server itself. A user that is killed cannot; the kernel drops its lock, for which
this process waits, at no cost. The process that keeps the server running starts the guard again if it was killed.
"""

import fcntl
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]


def ensure_guard(data_dir: Path) -> None:
    """Start the guard of this directory's server unless it runs."""
    with (data_dir / "server.guard").open("a") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            return
        # It inherits the lock, and holds it for as long as it lives. It is started through a shell, which ends at once:
        # otherwise its starter, which may live longer, would have to collect it.
        subprocess.run(
            ["/bin/sh", "-c", '"$@" &', "sh", sys.executable, "-m", __name__, str(data_dir)],
            cwd=ROOT,
            env={"PATH": os.defpath},
            pass_fds=[lock.fileno()],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
            check=True,
        )


def main(data_dir: Path) -> None:
    with (data_dir / "server.users").open("a") as users:
        fcntl.flock(users, fcntl.LOCK_EX)
        from .cluster import EmbeddedServer  # only now: until then this process is small

        EmbeddedServer(data_dir).stop()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
