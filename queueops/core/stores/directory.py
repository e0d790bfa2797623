"""Files in a directory of this machine."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from stat import S_ISREG
from typing import IO

from .disk import to_disk
from .store import FileInStore, StoreError


class DirectoryStore:
    """Files below a directory, readable by their owner alone: payloads are in them."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def __str__(self) -> str:
        return str(self.root)

    def check(self, *, writing: bool) -> None:
        if not writing:
            if not self.root.is_dir():
                raise StoreError(f"There is nothing in {self.root}: it is no directory.")
            return
        probe = self.root / f".probe-{os.getpid()}"
        try:
            self.root.mkdir(mode=0o700, parents=True, exist_ok=True)
            probe.touch()
            probe.unlink()
        except OSError as error:
            raise StoreError(f"{self.root} must be a directory that can be written: {error.strerror}.") from error

    @contextmanager
    def write(self, name: str) -> Iterator[IO[bytes]]:
        path = self.root / name
        partial = path.with_name(path.name + ".partial")
        with self._opened(partial) as file:
            partial.chmod(0o600)
            yield file
            file.flush()
            os.fsync(file.fileno())
        partial.replace(path)
        for directory in self._parents(path):
            to_disk(directory)

    def read(self, name: str) -> IO[bytes]:
        return (self.root / name).open("rb")

    def names(self, ending: str) -> Iterator[str]:
        yield from sorted(str(path.relative_to(self.root)) for path in self.root.rglob(f"*{ending}") if _is_file(path))

    def files(self, under: str, *, after: str = "") -> Iterator[FileInStore]:
        past = Path(after).parts
        for path in self._walk(self.root / under, past):
            with suppress(FileNotFoundError):  # another process has removed it
                yield FileInStore(str(path.relative_to(self.root)), datetime.fromtimestamp(path.stat().st_mtime, UTC))

    def remove(self, name: str) -> None:
        path = self.root / name
        path.unlink(missing_ok=True)
        for directory in self._parents(path):
            try:
                if directory != self.root:
                    directory.rmdir()
            except FileNotFoundError:
                continue
            except OSError:  # the directory still holds files
                to_disk(directory)
                return
        to_disk(self.root)

    def _opened(self, path: Path) -> IO[bytes]:
        while True:
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            with suppress(FileNotFoundError):  # another process removed the folder with its last file
                return path.open("wb")

    def _parents(self, path: Path) -> Iterator[Path]:
        """Return the folders that a file is in, up to the root."""
        for directory in path.parents:
            yield directory
            if directory == self.root:
                return

    def _walk(self, directory: Path, past: tuple[str, ...]) -> Iterator[Path]:
        try:
            found = sorted(os.scandir(directory), key=lambda entry: entry.name)
        except FileNotFoundError:
            return
        for entry in found:
            path = directory / entry.name
            parts = path.relative_to(self.root).parts
            if entry.is_dir():
                if parts >= past[: len(parts)]:
                    yield from self._walk(path, past)
            elif parts > past:
                yield path


def _is_file(path: Path) -> bool:
    """
    Do what `Path.is_file` does, but raise where access is denied: from Python 3.14 on that method returns False there,
    and a file would be left out silently.

    Raises:
        OSError
    """
    try:
        return S_ISREG(path.stat().st_mode)
    except FileNotFoundError:  # another process has removed it
        return False
