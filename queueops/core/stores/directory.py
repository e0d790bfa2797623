"""Files in a directory of this machine."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from .disk import to_disk
from .store import StoreError


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
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        partial = path.with_name(path.name + ".partial")
        with partial.open("wb") as file:
            partial.chmod(0o600)
            yield file
            file.flush()
            os.fsync(file.fileno())
        partial.replace(path)
        for directory in (path.parent, path.parent.parent, self.root):
            to_disk(directory)

    def read(self, name: str) -> IO[bytes]:
        return (self.root / name).open("rb")

    def names(self, ending: str) -> Iterator[str]:
        yield from sorted(str(path.relative_to(self.root)) for path in self.root.rglob(f"*{ending}") if path.is_file())

    def remove(self, name: str) -> None:
        (self.root / name).unlink(missing_ok=True)
        to_disk((self.root / name).parent)
