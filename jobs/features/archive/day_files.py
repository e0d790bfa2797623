"""
The archived files of one project and day, and their manifest.

    acme/2026-11-24/manifest.json
    acme/2026-11-24/jobs-0001.ndjson.gz      jobs that ended on that day
    acme/2026-11-24/batches-0001.ndjson.gz   batches that ended on that day
    acme/2026-11-24/events-0001.ndjson.gz    the log of that day, sorted by job

A part is written, read back and compared before the manifest names it. Only `manage.py erase_user` changes it
afterwards. A part that no manifest names is left from a call that was cut off; `erase_user` removes it.
"""

from __future__ import annotations

import gzip
import hashlib
import json
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from datetime import UTC, date, datetime
from typing import IO, Any, cast

from queueops.core.errors import QueueOpsError
from queueops.core.stores.store import Store

ARCHIVE_FORMAT = 1
MANIFEST_NAME = "manifest.json"
PART_ENDING = ".ndjson.gz"
COMPRESSION = 6


class ArchiveError(QueueOpsError):
    """The archive cannot be written, or does not hold what was written."""

    code = "archive_failed"
    status = 500


@dataclass(frozen=True, slots=True)
class ArchivedPart:
    """
    One file.

    Attributes:
        sort: `jobs`, `batches` or `events`.
        sha256: SHA-256 of the file.
        content: SHA-256 of the file's unpacked lines.
        first, last: The first and last key of its rows, which are sorted by key. A row's key is its id; an event's
            key is `<job>/<number>`.
        schema: The last migration of the tables that the rows come from.
    """

    name: str
    sort: str
    rows: int
    size: int
    sha256: str
    content: str
    first: str
    last: str
    schema: str
    written_at: str


class DayFiles:
    """The archived parts of a project and day."""

    def __init__(self, store: Store, project_id: str, day: date) -> None:
        self.store, self.project_id, self.day = store, project_id, day
        self.parts: list[ArchivedPart] = self._read_manifest()

    @classmethod
    def every(cls, store: Store, *, project_id: str = "", since: date = date.min) -> Iterator[DayFiles]:
        """
        Yield the archived days of one project or of all, in order.

        Raises:
            ArchiveError: A manifest in the store belongs to no project and day.
        """
        for name in store.names(f"/{MANIFEST_NAME}"):
            try:
                project, day_text, _ = name.rsplit("/", 2)
                day = date.fromisoformat(day_text)
            except ValueError as error:
                raise ArchiveError(f"{store} is no archive: its {name} belongs to no project and day.") from error
            if project_id in ("", project) and day >= since:
                yield cls(store, project, day)

    @classmethod
    def remove_rests(cls, store: Store, project_id: str) -> None:
        """
        Remove a project's files that no manifest names: a call that was cut off left them. Call it only while this
        process has the archive's duty.

        Raises:
            ArchiveError: A day has parts and no manifest. The manifest may have been lost, so the parts stay.
        """
        days = {f"{project_id}/{files.day}": files for files in cls.every(store, project_id=project_id)}
        for name in [*store.names(".partial"), *store.names(PART_ENDING)]:
            day, _, file = name.rpartition("/")
            if not day.startswith(f"{project_id}/"):
                continue
            files = days.get(day)
            if files is None and file.endswith(PART_ENDING):
                raise ArchiveError(
                    f"{name} is named by no manifest: an archiving was cut off, or the manifest is lost. "
                    "Repeat manage.py archive, or bring the manifest back."
                )
            if files is None or file not in {part.name for part in files.parts}:
                store.remove(name)

    def of(self, sort: str) -> list[ArchivedPart]:
        return [part for part in self.parts if part.sort == sort]

    def add(self, sort: str, rows: Iterable[tuple[str, str]], *, schema: str) -> ArchivedPart:
        """
        Write a part, read it back, and name it in the manifest; without rows there is no part.

        Args:
            rows: The key and the JSON text of each row.

        Raises:
            ArchiveError: What is read back is not what was written.
        """
        part = self._write(f"{sort}-{len(self.of(sort)) + 1:04}{PART_ENDING}", sort, rows, schema)
        if part.rows:
            self.parts.append(part)
            self._write_manifest()
        else:
            self.store.remove(self._path(part.name))
        return part

    def rewrite(self, old: ArchivedPart, rows: Iterable[tuple[str, str]]) -> None:
        """
        Replace a part's rows; without rows the part is empty. A call that was cut off can be repeated without harm.

        The new file has another name than the old one, so that the manifest is true before and after it names the new
        file.
        """
        stem, _, number = old.name.removesuffix(PART_ENDING).partition("+")
        name = f"{stem}+{int(number or 0) + 1}{PART_ENDING}"
        new = self._write(name, old.sort, rows, old.schema)
        self.parts[self.parts.index(old)] = new
        self._write_manifest()
        self.store.remove(self._path(old.name))

    def lines(self, part: ArchivedPart) -> Iterator[str]:
        """
        Yield the rows of a part; after the last row, compare their checksum with the recorded one.

        Raises:
            ArchiveError: The file is missing, or is not what was written. Do not trust the rows yielded before.
        """
        content, rows = hashlib.sha256(), 0
        try:
            with self.store.read(self._path(part.name)) as file, gzip.open(file) as unpacked:
                for line in unpacked:
                    content.update(line)
                    rows += 1
                    yield line.decode()
        except (OSError, EOFError, ValueError) as error:
            raise ArchiveError(f"{self._path(part.name)} cannot be read: {error}.") from error
        if (rows, content.hexdigest()) != (part.rows, part.content):
            raise ArchiveError(f"{self._path(part.name)} is not what was written: its checksum differs.")

    def verify(self, part: ArchivedPart) -> None:
        """Check a part's rows and its file against the checksums recorded with the part. Raises ArchiveError."""
        for _ in self.lines(part):
            pass
        with self.store.read(self._path(part.name)) as file:
            if hashlib.file_digest(cast("Any", file), "sha256").hexdigest() != part.sha256:
                raise ArchiveError(f"{self._path(part.name)} is not what was written: its checksum differs.")

    def _write(self, name: str, sort: str, rows: Iterable[tuple[str, str]], schema: str) -> ArchivedPart:
        content, count, first, last = hashlib.sha256(), 0, "", ""
        with self.store.write(self._path(name)) as file:
            sink = _Hashing(file)
            with gzip.GzipFile("", "wb", COMPRESSION, cast("Any", sink), mtime=0) as packed:
                for last, text in rows:
                    first = first or last
                    line = text.encode() + b"\n"
                    content.update(line)
                    packed.write(line)
                    count += 1
        now = f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}"
        part = ArchivedPart(
            name, sort, count, sink.size, sink.hash.hexdigest(), content.hexdigest(), first, last, schema, now
        )
        self.verify(part)
        return part

    def _path(self, name: str) -> str:
        return f"{self.project_id}/{self.day}/{name}"

    def _read_manifest(self) -> list[ArchivedPart]:
        path = self._path(MANIFEST_NAME)
        try:
            with self.store.read(path) as file:
                given = json.load(file)
            if given["format"] != ARCHIVE_FORMAT:
                raise ArchiveError(f"{path} says format {given['format']}; this version knows {ARCHIVE_FORMAT}.")
            return [ArchivedPart(**part) for part in given["parts"]]
        except FileNotFoundError:
            return []
        except (ValueError, TypeError, KeyError) as error:
            raise ArchiveError(f"{path} is damaged: it is not what manage.py archive writes.") from error

    def _write_manifest(self) -> None:
        parts = [asdict(part) for part in self.parts]
        said = {"format": ARCHIVE_FORMAT, "project": self.project_id, "day": str(self.day), "parts": parts}
        with self.store.write(self._path(MANIFEST_NAME)) as file:
            file.write(json.dumps(said, indent=1).encode())
        if self._read_manifest() != self.parts:
            raise ArchiveError(f"{self._path(MANIFEST_NAME)} is not what was written.")


class _Hashing:
    """A file to write into, and the checksum and size of what was written."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file, self.hash, self.size = file, hashlib.sha256(), 0

    def write(self, data: bytes) -> int:
        self.hash.update(data)
        self.size += len(data)
        return self._file.write(data)

    def flush(self) -> None:
        self._file.flush()
