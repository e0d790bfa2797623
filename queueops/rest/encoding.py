"""Compressed request bodies and compressed answers."""

from __future__ import annotations

import io
import zlib
from typing import IO, Any, cast

from django.http import HttpRequest
from django.http.response import HttpResponseBase
from django.middleware.gzip import GZipMiddleware
from rest_framework.request import Request

from queueops.core.web.requests.body_cap import too_large

from .errors import MalformedGzip, UnsupportedEncoding

BODY_READ_BYTES = 65_536
MAX_MEMBERS = 1_000  # gzip streams that are joined in one body; each costs time and may hold nothing
GZIP = 31  # zlib's window bits for gzip with the largest window
COMPRESSED = ("/api/", "/functions/")


def body_of(request: Request, *, limit_bytes: int, source: IO[bytes] | None = None) -> IO[bytes]:
    """
    Return the body to be read, inflated where it is gzip.

    Args:
        limit_bytes: The largest inflated body. core/web/requests/body_cap.py caps the compressed body before Django
            sees it.
        source: The file from which the body is read, if not from the request.

    Raises:
        UnsupportedEncoding

    Reading raises MalformedGzip, and BodyTooLarge (413) at the first inflated byte beyond the limit.
    """
    encoding = request.headers.get("Content-Encoding", "").strip().lower()
    if encoding in {"", "identity"}:
        return source or cast("IO[bytes]", request)
    if encoding not in {"gzip", "x-gzip"}:
        raise UnsupportedEncoding(f"Send the body plain or as gzip, not as {encoding[:50]!r}.")
    return io.BufferedReader(_Inflated(source or request, limit_bytes), BODY_READ_BYTES)


class _Inflated(io.RawIOBase):
    """An inflated body. Holds at most one block of compressed and one of inflated bytes, even for a gzip bomb."""

    def __init__(self, source: Any, limit_bytes: int) -> None:
        self._source = source
        self._limit = limit_bytes
        self._size = 0
        self._members = 1
        self._member = zlib.decompressobj(GZIP)
        self._pending = b""

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any, /) -> int:
        view = memoryview(buffer)
        while True:
            self._pending = self._pending or self._source.read(BODY_READ_BYTES)
            if self._member.eof:
                if not self._pending:
                    return 0
                self._begin_member()
            elif not self._pending:
                raise MalformedGzip("The body ends before its gzip stream does.")
            try:
                block = self._member.decompress(self._pending, len(view))
            except zlib.error:
                raise MalformedGzip from None
            self._pending = self._member.unused_data if self._member.eof else self._member.unconsumed_tail
            if block:
                self._size += len(block)
                if self._size > self._limit:
                    raise too_large(self._limit)
                view[: len(block)] = block
                return len(block)

    def _begin_member(self) -> None:
        self._members += 1
        if self._members > MAX_MEMBERS:
            raise MalformedGzip(f"The body is made of more than {MAX_MEMBERS:,} gzip streams.")
        self._member = zlib.decompressobj(GZIP)


class CompressedAnswers(GZipMiddleware):
    """
    Compresses the API's JSON where the client takes gzip, and nothing else.

    The length of a compressed page reveals a secret in it to an attacker who can place guesses on the same page
    (BREACH). Pages hold a CSRF token and show text of their URL; the API's answers hold no secret that is shown twice.
    """

    def process_response(self, request: HttpRequest, response: HttpResponseBase) -> HttpResponseBase:
        is_json = response.headers.get("Content-Type", "").startswith("application/json")
        if not is_json or response.streaming or not request.path_info.startswith(COMPRESSED):
            return response
        compressed: HttpResponseBase = super().process_response(request, response)
        return compressed
