"""
PostgreSQL 18 from a Python package, for installations that set no DATABASE_URL.

One server belongs to one data directory. Every process that needs it calls `use()`: the first
starts the server, later ones find it running, the last to leave stops it. A process that is killed leaves too: it
held a file lock, which the kernel drops. If that process was the last, the guard (guard.py) stops the server.

The package's own start is not used. It trusts a left-over pid file whose number now belongs to some other process. It
gives up after 10 s, although recovery after a crash may take longer. It opens the permissions of every parent
directory. The package provides the binaries and the system user.
"""

import contextlib
import fcntl
import hashlib
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import IO

import psycopg
from psycopg import sql

from .guard import ensure_guard
from .host import (
    EmbeddedServerError,
    binaries,
    names_a_stranger,
    refuse_private_parents,
    refuse_stranger,
    system_user,
    works_in,
)

DATABASE_NAME = "queueops"
SUPERUSER = "postgres"
RETRY_SECONDS = 2.0
SOCKET = ".s.PGSQL.5432"
MAX_SOCKET_PATH = 100  # bytes; sun_path holds 103 on macOS, 107 on Linux
# `up` starts the server itself, after it has made sure that no other `up` uses the directory.
STATELESS_COMMANDS = frozenset(
    ("help", "version", "write_docs", "collectstatic", "findstatic", "spectacular", "new_handler", "up")
)

# Durability stays on: an acknowledged submit survives a power cut. The other settings suit a queue: many small commits,
# short-lived rows, a table that grows in bulk.
SERVER_SETTINGS = {
    "fsync": "on",
    "synchronous_commit": "on",
    "full_page_writes": "on",
    "max_connections": "200",
    "shared_buffers": "256MB",
    "effective_cache_size": "1GB",
    "work_mem": "16MB",
    "maintenance_work_mem": "128MB",
    "wal_compression": "on",
    "max_wal_size": "2GB",
    "checkpoint_timeout": "10min",
    "random_page_cost": "1.1",
    "jit": "off",  # compiling costs more than any statement here takes
    "autovacuum_naptime": "5s",
    "autovacuum_vacuum_scale_factor": "0.02",
    "autovacuum_vacuum_insert_scale_factor": "0.05",
    "autovacuum_analyze_scale_factor": "0.02",
    "autovacuum_vacuum_cost_limit": "2000",
    "idle_in_transaction_session_timeout": "60s",
    "timezone": "UTC",
    "log_timezone": "UTC",
}


@dataclass(frozen=True)
class EmbeddedServer:
    """The server of one data directory, running or not."""

    data_dir: Path
    start_seconds: float = 60.0

    @property
    def cluster(self) -> Path:
        return self.data_dir / "postgresql"

    @property
    def log_file(self) -> Path:
        return self.cluster / "log"

    @cached_property
    def socket_dir(self) -> Path:
        """
        Return where the server's socket lives: beside the cluster, or, where that path is too long, in /tmp.

        Never in the cluster: a base backup would copy the socket's lock file, which names a running server. The
        directory is private, because the server trusts whoever reaches the socket.
        """
        beside = self.data_dir / "run"
        if len(os.fsencode(beside / SOCKET)) <= MAX_SOCKET_PATH:
            return beside
        digest = hashlib.sha256(os.fsencode(self.cluster)).hexdigest()[:12]
        return Path("/tmp") / f"queueops-{os.geteuid()}-{digest}"  # noqa: S108 (each process must find the same one)

    def dsn(self, database: str = DATABASE_NAME) -> str:
        return f"postgresql://{SUPERUSER}@/{database}?host={self.socket_dir}"

    @contextlib.contextmanager
    def use(self) -> Iterator["EmbeddedServer"]:
        """Keep the server running for the length of the block; the last user stops it."""
        self.data_dir.mkdir(parents=True, exist_ok=True)
        with (self.data_dir / "server.users").open("a") as users:
            fcntl.flock(users, fcntl.LOCK_SH)
            try:
                self.ensure_running()
                yield self
            finally:
                self._leave(users)

    def _leave(self, users: IO[str]) -> None:
        with self._one_at_a_time():
            try:
                fcntl.flock(users, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                return
            self.stop()

    @contextlib.contextmanager
    def _one_at_a_time(self) -> Iterator[None]:
        with (self.data_dir / "server.lock").open("a") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield

    def ensure_running(self) -> bool:
        """
        Start the server unless it answers; safe from several processes at once.

        Returns:
            Whether this call started it.

        Raises:
            EmbeddedServerError: It did not answer within `start_seconds`; the message ends with its log.
        """
        ensure_guard(self.data_dir)
        if self._answers(DATABASE_NAME):
            return False
        with self._one_at_a_time():
            started = not self._answers(SUPERUSER)
            if started:
                self._initialise()
                self._start()
            self._create_database()
        return started

    def stop(self, mode: str = "fast") -> None:
        """Stop the server if it runs. `mode` is pg_ctl's: smart, fast or immediate."""
        lock = self.cluster / "postmaster.pid"
        # In a copy of the directory, the lock file names the original's server: pg_ctl would stop that one.
        if lock.exists() and not names_a_stranger(lock, self.cluster):
            self._run("pg_ctl", "-w", "-t", "60", "-m", mode, "-D", str(self.cluster), "stop", check=False)

    def _answers(self, database: str) -> bool:
        try:
            psycopg.connect(self.dsn(database), connect_timeout=5).close()
        except psycopg.OperationalError:
            return False
        return True

    def _initialise(self) -> None:
        owner = system_user()
        for directory in (self.data_dir, self.cluster, self.socket_dir):
            directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        refuse_stranger(self.socket_dir, owner)
        if owner is not None:
            refuse_private_parents(self.data_dir)
            self.data_dir.chmod(0o711)  # the server's user passes through, and reads nothing
            shutil.chown(self.cluster, owner)
            shutil.chown(self.socket_dir, owner)
        if not (self.cluster / "PG_VERSION").exists():
            self._run(
                "initdb",
                *("--auth=trust", "--encoding=UTF8", "--locale=C.UTF-8", "--username", SUPERUSER),
                *("-D", str(self.cluster)),
            )
        settings = "".join(f"{name} = '{value}'\n" for name, value in SERVER_SETTINGS.items())
        (self.cluster / "queueops.conf").write_text(settings)
        (self.cluster / "queueops.conf").chmod(0o644)
        main = self.cluster / "postgresql.conf"
        include = "include_if_exists 'queueops.conf'\n"
        if include not in main.read_text():
            with main.open("a") as conf:
                conf.write(include)

    def _clear_stale_locks(self) -> None:
        """
        Remove lock files that PostgreSQL would take for a living server's.

        After a crash the pid in them may belong to another program, because containers count pids anew, or to a dead
        postmaster that nobody has reaped. In a copy of the cluster it is the pid of the original's server. Processes
        that still work in the cluster get up to `start_seconds` to end first.
        """
        for lock in (self.cluster / "postmaster.pid", self.socket_dir / f"{SOCKET}.lock"):
            if names_a_stranger(lock, self.cluster):
                deadline = time.monotonic() + self.start_seconds
                while works_in(self.cluster) and time.monotonic() < deadline:
                    time.sleep(0.05)
                lock.unlink(missing_ok=True)

    def _start(self) -> None:
        if self._listens_elsewhere():
            self.stop()
        deadline = time.monotonic() + self.start_seconds  # recovery after a crash may take long
        next_try = time.monotonic()
        while not self._answers(SUPERUSER):
            now = time.monotonic()
            if now > deadline:
                raise EmbeddedServerError(
                    f"The embedded PostgreSQL in {self.cluster} did not answer within "
                    f"{self.start_seconds:g} s. The end of its log:\n{self._log_tail()}"
                )
            if now >= next_try:
                # Try repeatedly: a server killed a moment ago may still hold its locks. A second start
                # while a server recovers fails and does no harm.
                next_try = now + RETRY_SECONDS
                self._try_to_start()
            time.sleep(0.05)

    def _listens_elsewhere(self) -> bool:
        """
        Say whether the last server had its socket in another directory; a server of an older version may still run.
        """
        with contextlib.suppress(OSError):
            return str(self.socket_dir) not in (self.cluster / "postmaster.pid").read_text().splitlines()
        return False

    def _try_to_start(self) -> None:
        self._clear_stale_locks()
        options = (
            f"-c listen_addresses='' -c unix_socket_directories='{self.socket_dir}' -c unix_socket_permissions=0700"
        )
        self._run(
            *("pg_ctl", "-W", "-D", str(self.cluster), "-l", str(self.log_file), "-o", options, "start"),
            check=False,
        )

    def _create_database(self) -> None:
        with psycopg.connect(self.dsn(SUPERUSER), autocommit=True) as connection:
            known = connection.execute("SELECT 1 FROM pg_database WHERE datname = %s", [DATABASE_NAME])
            if known.fetchone() is None:
                connection.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(DATABASE_NAME)))

    def _log_tail(self) -> str:
        with contextlib.suppress(OSError):
            return "\n".join(self.log_file.read_text(errors="replace").splitlines()[-15:])
        return "(none)"

    def _run(self, command: str, *arguments: str, check: bool = True) -> None:
        # A session of its own: Ctrl-C in the terminal must reach the supervisor alone, which stops
        # the server last.
        with tempfile.TemporaryFile("w+") as output:
            result = subprocess.run(
                [str(binaries(self.data_dir) / command), *arguments],
                stdout=output,
                stderr=subprocess.STDOUT,
                stdin=subprocess.DEVNULL,
                user=system_user(),
                cwd="/",
                start_new_session=True,
                check=False,
            )
            if check and result.returncode:
                output.seek(0)
                raise EmbeddedServerError(f"{command} failed:\n{output.read().strip()}")


def server_for_command(arguments: Sequence[str]) -> contextlib.AbstractContextManager[object]:
    """
    Return a context in which `manage.py <command>` finds its database.

    Nothing is started where DATABASE_URL is set or the command needs no database.
    """
    from django.conf import settings

    command = arguments[1] if len(arguments) > 1 else "help"
    stateless = command in STATELESS_COMMANDS or command.startswith("-") or "--help" in arguments
    if stateless or settings.QUEUEOPS.database_url:
        return contextlib.nullcontext()
    return EmbeddedServer(settings.QUEUEOPS.data_dir).use()
