"""Files of a door, stored and read part by part, so that a file of 200 MB is never in memory as a whole."""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from datetime import timedelta
from tempfile import TemporaryFile
from typing import IO
from uuid import UUID

from django.db import transaction

from jobs.services.submit.prepare import PayloadTooLarge
from queueops.core.clock import Now, database_moment
from queueops.core.sealing import open_bytes, seal_bytes
from queueops.core.web.asking import ensure_wanted
from queueops.tenancy.secrets.encryption import is_encrypted

from .errors import BadDoorRequest, NoSuchObject
from .models import DoorFile, DoorFilePart

FILE = "file-"  # begins the id that clients see
PURPOSES = ("batch", "user_data")  # "batch": the file has a batch's lines; "user_data": payloads name the file
FILE_PART_BYTES = 1_000_000
KEPT_DAYS = 30  # as OpenAI keeps files of batches; docs/reference/wire-facts.md
MIN_KEPT = timedelta(hours=1)  # OpenAI's bounds of expires_after
MAX_KEPT = timedelta(days=KEPT_DAYS)
_DIGITS = re.compile(r"[0-9a-f]{32}")


def store_file(
    blocks: Iterable[bytes],
    *,
    project_id: str,
    actor: str,
    file_name: str,
    purpose: str,
    kept: timedelta = MAX_KEPT,
) -> DoorFile:
    """
    Store a file durably.

    Args:
        blocks: Its content, in pieces of any size.
        kept: How long the file is kept.

    Raises:
        BadDoorRequest: The purpose is not known, `kept` is out of bounds, or the file is empty. Nothing was stored.
        ClientLeft, OutOfTime
    """
    if purpose not in PURPOSES:
        raise BadDoorRequest(
            f"Files are taken for the purposes {' and '.join(PURPOSES)}, not {purpose[:40]!r}.",
            fields={"purpose": list(PURPOSES)},
        )
    if not MIN_KEPT <= kept <= MAX_KEPT:
        raise BadDoorRequest(
            f"A file is kept for an hour to {KEPT_DAYS} days.", fields={"expires_after": ["3600 to 2592000 seconds"]}
        )
    sealed = is_encrypted(project_id)
    with transaction.atomic():
        file = DoorFile.objects.create(
            project_id=project_id,
            purpose=purpose,
            file_name=file_name[:200],
            size_bytes=0,
            created_by=actor,
            expires_at=database_moment() + kept,
        )
        size = 0
        for number, part in enumerate(_parts(blocks)):
            ensure_wanted()
            size += len(part)
            content = zlib.compress(part, 1)
            DoorFilePart.objects.create(
                project_id=project_id, file=file, number=number, content=seal_bytes(content) if sealed else content
            )
        if not size:
            raise BadDoorRequest("The file is empty.", fields={"file": ["empty"]})
        file.size_bytes = size
        file.save(update_fields=["size_bytes"])
        file.refresh_from_db()
    return file


def _parts(blocks: Iterable[bytes]) -> Iterator[bytes]:
    held = bytearray()
    for block in blocks:
        held += block
        while len(held) >= FILE_PART_BYTES:
            yield bytes(held[:FILE_PART_BYTES])
            del held[:FILE_PART_BYTES]
    if held:
        yield bytes(held)


def id_in(text: str, prefix: str, *, field: str = "id") -> UUID:
    """
    Read an id that a door gave, such as `batch_<32 digits>`.

    Args:
        field: The field of the request that has it.

    Raises:
        NoSuchObject
    """
    if text.startswith(prefix) and _DIGITS.fullmatch(text[len(prefix) :]):
        return UUID(text[len(prefix) :])
    raise NoSuchObject(f"There is nothing with the id {text[:80]!r}.", fields={field: ["nothing with the id"]})


def find_file(file_id: UUID, *, project_id: str, field: str = "id") -> DoorFile:
    """
    Args:
        field: The field of the request that names the file.

    Raises:
        NoSuchObject
    """
    found = DoorFile.objects.filter(pk=file_id, project_id=project_id, expires_at__gt=Now()).first()
    if found is None:
        raise _no_file(file_id, field)
    return found


def _no_file(file_id: UUID, field: str = "id") -> NoSuchObject:
    return NoSuchObject(f"There is no file 'file-{file_id.hex}'.", fields={field: ["There is no file"]})


def read_file(name: str, *, project_id: str, most_bytes: int) -> bytes:
    """
    Read a file that a job's payload names.

    Args:
        name: `file-<32 digits>`, as the door has given it.

    Raises:
        NoSuchObject
        PayloadTooLarge: It has more than `most_bytes`.
    """
    file = find_file(id_in(name, FILE), project_id=project_id)
    if file.size_bytes > most_bytes:
        raise PayloadTooLarge(
            f"{name} has {file.size_bytes:,} bytes; {most_bytes:,} fit into the payload.",
            given_bytes=file.size_bytes,
            limit_bytes=most_bytes,
        )
    with copy_file(file) as copy:
        return copy.read()


def copy_file(file: DoorFile) -> IO[bytes]:
    """
    Copy a file's content to a temporary file on this machine's disk that no other process sees, ready to be read.

    Raises:
        NoSuchObject: It was deleted meanwhile.
        ClientLeft, OutOfTime
    """
    with ExitStack() as stack:
        copy = stack.enter_context(TemporaryFile())
        number = 0
        while (part := file.parts.filter(number=number).first()) is not None:
            ensure_wanted()
            copy.write(zlib.decompress(open_bytes(bytes(part.content))))
            number += 1
        if copy.tell() != file.size_bytes:  # the file was deleted meanwhile
            raise _no_file(file.pk)
        copy.seek(0)
        stack.pop_all()
        return copy


def files_naming(project_id: str, text: str) -> list[UUID]:
    """Return a project's files that have a text in their name or content; reads one part of one file at a time."""
    needle, found = text.encode(), []
    for file in DoorFile.objects.filter(project_id=project_id).iterator(chunk_size=100):
        before = file.file_name.encode() + b"\n"
        for part in file.parts.order_by("number").iterator(chunk_size=1):
            block = before + zlib.decompress(open_bytes(bytes(part.content)))
            if needle in block:
                found.append(file.pk)
                break
            before = block[1 - len(needle) :]  # the text may begin in one part and end in the next
    return found


def delete_file(file_id: UUID, *, project_id: str) -> None:
    """
    Delete a file; batches that were made of it stay.

    Raises:
        NoSuchObject
    """
    find_file(file_id, project_id=project_id).delete()


def forget_files() -> int:
    """Delete files whose time is over; for house-keeping. Returns how many."""
    ids = list(DoorFile.objects.filter(expires_at__lte=Now()).values_list("pk", flat=True))
    for pk in ids:  # one by one: a file has hundreds of parts
        DoorFile.objects.filter(pk=pk).delete()
    return len(ids)
