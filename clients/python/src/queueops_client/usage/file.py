"""The outbox's file: its connection, the wording of its errors, and its closing before forks."""

from __future__ import annotations

import errno
import hashlib
import os
import random
import sqlite3
import sys
import threading
import time
import weakref
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import TypeVar

from queueops_client.usage.errors import OutboxFailed
from queueops_client.usage.owners import Owner
from queueops_client.usage.schema import SCHEMA, VERSION

Value = TypeVar("Value")

BUSY_SECONDS = 10.0
RETRY_SECONDS = (0.0002, 0.002)


class OutboxFile:
    """
    One connection for all threads. It is opened at its first use, and opened again at a use after `close`.

    Args:
        path: The file, which is created if it is missing; only this user may read it.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock = threading.RLock()
        self._connection: sqlite3.Connection | None = None
        self._owner: Owner | None = None
        _all.add(self)

    @contextmanager
    def transaction(self) -> Iterator[sqlite3.Cursor]:
        """
        Begin a transaction that writes; it is durable when the block has ended.

        Raises:
            OutboxFailed: The file cannot be used. Nothing of the block was written.
        """
        # Close the cursor before the lock is released. An open statement would keep the connection open when it is
        # closed before a fork, and the child would inherit the connection's locks.
        with self._lock, _in_words(self.path), closing((self._connection or self._open()).cursor()) as db:
            _patiently(lambda: db.execute("BEGIN IMMEDIATE"))
            try:
                yield db
                db.execute("COMMIT")
            except BaseException:
                with suppress(sqlite3.Error):
                    db.execute("ROLLBACK")
                raise

    def seat(self) -> str:
        """Return the id of this process as an owner of rows. Call it only within a transaction."""
        if self._owner is None:
            self._owner = Owner(self.path)
        return self._owner.id

    def close(self) -> None:
        """Close the file, and give up this process's ownership of rows."""
        with self._lock, _in_words(self.path):
            self.disconnect()
            if self._owner is not None:
                self._owner.leave()
                self._owner = None

    def disconnect(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def before_fork(self) -> None:
        """
        Close the connection: SQLite's record of its locks must not be copied. A child that wrongly took its parent's
        locks for its own would lose the write-ahead log, and its rows with the log.
        """
        self._lock.acquire()
        with suppress(sqlite3.Error):
            self.disconnect()

    def after_fork_in_parent(self) -> None:
        self._lock.release()

    def after_fork_in_child(self) -> None:
        self._lock = threading.RLock()
        if self._owner is not None:
            self._owner.forget()
            self._owner = None

    def _open(self) -> sqlite3.Connection:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with suppress(FileExistsError):
            os.close(os.open(self.path, os.O_CREAT | os.O_EXCL, 0o600))
        # SQLite opens a read-only file without an error. To test that by opening it would drop this process's locks.
        if not os.access(self.path, os.W_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
        db = sqlite3.connect(self.path, timeout=0, isolation_level=None, check_same_thread=False)
        try:
            _prepare(db, self.path)
        except BaseException:
            db.close()
            raise
        self._connection = db
        return db


def _prepare(db: sqlite3.Connection, path: Path) -> None:
    [mode] = _patiently(lambda: db.execute("PRAGMA journal_mode = WAL").fetchone())
    if mode != "wal":
        raise OutboxFailed(f"The outbox {path} needs a local disk: its file system has no shared memory for SQLite.")
    db.execute("PRAGMA synchronous = FULL")
    db.execute("PRAGMA fullfsync = ON")  # macOS: fsync alone leaves rows in the drive's cache
    _patiently(lambda: db.execute("BEGIN IMMEDIATE"))
    [version] = db.execute("PRAGMA user_version").fetchone()
    if version > VERSION:
        raise OutboxFailed(f"The outbox {path} was written by a newer version of this package.")
    # Not executescript: it would commit, and another process would find half of the tables.
    for statement in _statements(SCHEMA) if version == 0 else ():
        db.execute(statement)
    db.execute("COMMIT")


def _patiently(act: Callable[[], Value]) -> Value:
    """
    Try again while another connection is in the way, for BUSY_SECONDS.

    SQLite itself sleeps up to 100 ms between two tries: beside a few busy writers a connection would wait for seconds.
    """
    deadline = time.monotonic() + BUSY_SECONDS
    while True:
        try:
            return act()
        except sqlite3.OperationalError as error:
            if not error.sqlite_errorname.startswith("SQLITE_BUSY") or time.monotonic() > deadline:
                raise
        time.sleep(random.uniform(*RETRY_SECONDS))  # noqa: S311 - keeps peers out of step


def _statements(script: str) -> Iterator[str]:
    statement = ""
    for line in script.splitlines(keepends=True):
        statement += line
        if sqlite3.complete_statement(statement):
            yield statement
            statement = ""


REMEDIES: Mapping[str, str] = {
    "SQLITE_FULL": "there is no room left on its disk; nothing was lost that had been written",
    "SQLITE_READONLY": "this user may not write it",
    "SQLITE_PERM": "this user may not use it",
    "SQLITE_CANTOPEN": "it cannot be opened or made there; see that its directory can be written by this user",
    "SQLITE_CORRUPT": "it is damaged; move it aside with its -wal file, and get rows back with `sqlite3 FILE .recover`",
    "SQLITE_NOTADB": "this file is no outbox",
    "SQLITE_BUSY": f"another process has locked it for more than {BUSY_SECONDS:g} s",
    "SQLITE_IOERR": "its disk cannot be read or written",
}


@contextmanager
def _in_words(path: Path) -> Iterator[None]:
    try:
        yield
    except sqlite3.Error as error:
        name = getattr(error, "sqlite_errorname", "")
        cause = next((remedy for start, remedy in REMEDIES.items() if name.startswith(start)), "")
        raise OutboxFailed(
            f"The outbox {path} cannot be used: {cause or error} ({name or type(error).__name__})."
        ) from error
    except OSError as error:
        raise OutboxFailed(f"The outbox {path} cannot be used: {error.strerror or error}.") from error


def default_path(base_url: str) -> Path:
    """Return the default path of an installation's outbox, in the directory for this user's lasting data."""
    if sys.platform == "win32":
        home = Path(os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local")
    elif sys.platform == "darwin":
        home = Path.home() / "Library" / "Application Support"
    else:
        home = Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state")
    # Use a digest: some file systems refuse characters of an address.
    return home / "queueops" / f"usage-{hashlib.sha256(base_url.encode()).hexdigest()[:16]}.sqlite3"


_all: weakref.WeakSet[OutboxFile] = weakref.WeakSet()
_forking: list[OutboxFile] = []
_fork_lock = threading.Lock()


def _before_fork() -> None:
    _fork_lock.acquire()
    _forking.extend(_all)
    for one in _forking:
        one.before_fork()


def _after_fork_in_parent() -> None:
    while _forking:
        _forking.pop().after_fork_in_parent()
    _fork_lock.release()


def _after_fork_in_child() -> None:
    while _forking:
        _forking.pop().after_fork_in_child()
    _fork_lock.release()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before_fork, after_in_parent=_after_fork_in_parent, after_in_child=_after_fork_in_child)
