"""Files that lie outside the database, by name: in a directory, or in a bucket of an S3-compatible server."""

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
        Make sure that the store is there, and for `writing` make it if it can be made, and try a file.

        Raises:
            StoreError: In words for an operator.
        """

    def write(self, name: str) -> AbstractContextManager[IO[bytes]]:
        """
        A file to write into. At the block's end it is there, whole and for good, in the place of an older one.

        A block that raises leaves what was there before.
        """

    def read(self, name: str) -> IO[bytes]:
        """Raises FileNotFoundError."""

    def names(self, ending: str) -> Iterator[str]:
        """Return the names with this ending, in the order of the alphabet."""

    def files(self, under: str, *, after: str = "") -> Iterator[FileInStore]:
        """Return the files of a folder that come after a name that this method gave before, in a stable order."""

    def remove(self, name: str) -> None:
        """Remove a file; a name that is not there is no error."""
