"""Files that are kept outside the database: in a directory, or in a bucket of an S3-compatible server."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager
from datetime import datetime
from typing import IO, NamedTuple, Protocol

from queueops.core.errors import QueueOpsError


class StoreError(QueueOpsError):
    """A store of files cannot be reached, or refuses what is asked of it."""

    code = "store_failed"
    status = 503


class FileInStore(NamedTuple):
    """A file and when it came to be there, by the store's clock."""

    name: str
    written_at: datetime


class Store(Protocol):
    """Files by name; a name has slashes. A failure raises StoreError or OSError."""

    def check(self, *, writing: bool) -> None:
        """
        Make sure that the store exists. For `writing`, make the store if it can be made, and write a trial file.

        Raises:
            StoreError: The store cannot be used; the message is for an operator.
        """

    def write(self, name: str) -> AbstractContextManager[IO[bytes]]:
        """
        Open a file to write. At the block's end the file is stored whole and durably, and replaces an older one.

        If the block raises, the older file stays.
        """

    def read(self, name: str) -> IO[bytes]:
        """Open a file to read. Raises FileNotFoundError."""

    def names(self, ending: str) -> Iterator[str]:
        """Return the names with this ending, in the order of the alphabet."""

    def files(self, under: str, *, after: str = "") -> Iterator[FileInStore]:
        """Return the files of a folder that come after a name that this method gave before, in a stable order."""

    def remove(self, name: str) -> None:
        """Remove a file; a missing file is no error."""
