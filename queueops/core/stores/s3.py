"""Files in a bucket of Amazon S3, or of a server with the same protocol. Needs the extra `queueops[s3]`."""

from __future__ import annotations

import io
import os
import re
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import IO, TYPE_CHECKING, Any, cast

from django.conf import settings

from .store import FileInStore, StoreError

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

CONNECT_SECONDS = 5
REQUEST_SECONDS = 60  # of one request, including its body
PART_BYTES = 8 << 20  # of a large file; each part is sent and retried by itself
READ_BYTES = 1 << 20
RETRIES = 5  # of one request, for about five seconds
MEANINGS = {
    "NoSuchBucket": "there is no such bucket",
    "InvalidAccessKeyId": "nobody has this access key",
    "SignatureDoesNotMatch": "the secret key is another one's",
    "AccessDenied": "these credentials may not do that",
}


class S3Store:
    """
    Files below a prefix of a bucket. A file is written to this machine's disk first, and sent when it is whole.

    Credentials and region are those of AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and AWS_REGION, or the machine's.

    Raises:
        StoreError: The extra is not installed.
    """

    def __init__(self, bucket: str, prefix: str) -> None:
        try:
            import obstore
            from obstore.store import S3Store as Bucket
        except ImportError as error:
            raise StoreError(
                "Buckets need the extra queueops[s3]: pip install --require-hashes -r deploy/requirements-s3.lock"
            ) from error
        endpoint = settings.QUEUEOPS.s3_endpoint
        self._url = f"s3://{bucket}/{prefix}".rstrip("/")
        self._files = obstore
        self._bucket = Bucket(
            bucket,
            prefix=prefix or None,
            config={"endpoint": endpoint} if endpoint else None,
            client_options={
                "connect_timeout": timedelta(seconds=CONNECT_SECONDS),
                "timeout": timedelta(seconds=REQUEST_SECONDS),
                "allow_http": endpoint.startswith("http:"),
            },
            retry_config={"max_retries": RETRIES, "retry_timeout": timedelta(seconds=REQUEST_SECONDS)},
        )

    def __str__(self) -> str:
        return self._url

    def check(self, *, writing: bool) -> None:
        with self._in_words():
            if writing:
                probe = f".probe-{os.getpid()}"
                self._files.put(self._bucket, probe, b"")
                self._files.delete(self._bucket, probe)
            else:
                self._files.list_with_delimiter(self._bucket)

    @contextmanager
    def write(self, name: str) -> Iterator[IO[bytes]]:
        with tempfile.TemporaryFile() as file:
            yield file
            size = file.tell()
            file.seek(0)
            with self._in_words():
                self._files.put(self._bucket, name, file, chunk_size=PART_BYTES)
                stored = self._files.head(self._bucket, name)["size"]
            if stored != size:
                raise StoreError(f"{self}/{name} has {stored:,} bytes after {size:,} were written.")

    def read(self, name: str) -> IO[bytes]:
        with self._in_words():
            chunks = iter(self._files.get(self._bucket, name).stream(min_chunk_size=READ_BYTES))
        return cast("IO[bytes]", io.BufferedReader(_Chunks(self, chunks), READ_BYTES))

    def names(self, ending: str) -> Iterator[str]:
        with self._in_words():
            found = [one["path"] for page in self._files.list(self._bucket) for one in page]
        yield from sorted(name for name in found if name.endswith(ending))

    def files(self, under: str, *, after: str = "") -> Iterator[FileInStore]:
        with self._in_words():
            pages = iter(self._files.list(self._bucket, prefix=under, offset=after or None))
        while True:
            with self._in_words():
                page = next(pages, None)
            if page is None:
                return
            yield from (FileInStore(one["path"], one["last_modified"]) for one in page)

    def remove(self, name: str) -> None:
        with self._in_words():
            self._files.delete(self._bucket, name)

    @contextmanager
    def _in_words(self) -> Iterator[None]:
        """Raise StoreError for every error but the FileNotFoundError of a missing file in an existing bucket."""
        try:
            yield
        except (self._files.exceptions.BaseError, OSError) as error:
            said = re.search(r"<Code>(\w+)</Code>", str(error))
            code = said.group(1) if said else ""
            if isinstance(error, FileNotFoundError) and code != "NoSuchBucket":
                raise
            meaning = MEANINGS.get(code, code) or str(error).partition("\n")[0]
            raise StoreError(f"{self} does not do what is asked of it: {meaning}.") from error


class _Chunks(io.RawIOBase):
    """Lets the body of an answer be read as a file."""

    def __init__(self, store: S3Store, chunks: Iterator[Any]) -> None:
        self._store, self._chunks, self._rest = store, chunks, memoryview(b"")

    def readable(self) -> bool:
        return True

    def readinto(self, target: WriteableBuffer, /) -> int:
        if not self._rest:
            with self._store._in_words():  # noqa: SLF001 - of one module
                self._rest = memoryview(next(self._chunks, b""))
        into = memoryview(target)
        given, self._rest = self._rest[: len(into)], self._rest[len(into) :]
        into[: len(given)] = given
        return len(given)
