"""
`python -m queueops.core.embedded.guard DIRECTORY`: stops the embedded server when its last user was killed.

A process that ends in order stops the server itself. A killed process cannot, but the kernel drops its lock, and the
guard waits for that lock at no cost. If the guard is killed, the process that keeps the server running restarts it.
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
        # The guard inherits the lock and holds it while it lives. A shell starts the guard and ends at once: otherwise
        # the process that called this, which may live longer, would have to reap the guard.
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
        from .cluster import EmbeddedServer  # imported late, so that the waiting process stays small

        EmbeddedServer(data_dir).stop()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
