"""
Decompresses the bodies of answers, piece by piece.

aiohttp discards a whole answer, its status included, if it cannot decompress the body. Therefore aiohttp passes bodies
on as they came, and this module decompresses them: an unreadable answer keeps its status.
"""

from __future__ import annotations

import zlib

from queueops.core.errors import QueueOpsError

ACCEPTED = "gzip, deflate"
_GZIP_OR_ZLIB, _RAW = 32 + zlib.MAX_WBITS, -zlib.MAX_WBITS
_OF_ZLIB = 0x08  # in the lower half of the first byte of a zlib stream
_READ = frozenset({"gzip", "x-gzip", "deflate"})
_NAMES = _READ | {"br", "zstd", "compress", "x-compress", "dcb", "dcz", "exi", "pack200-gzip"}  # registered by IANA


class UnreadableEncoding(QueueOpsError):
    """The answer is compressed in a way that was not asked for, or is not what it says."""

    code = "unreadable_encoding"


class Inflater:
    """Decompresses one body."""

    def __init__(self, encoding: str) -> None:
        """
        Args:
            encoding: The header `Content-Encoding`; empty: the body is not compressed. A word that names no
                compression, such as `UTF-8` or S3's `aws-chunked`, says nothing of the body.

        Raises:
            UnreadableEncoding
        """
        names = [name for part in encoding.split(",") if (name := part.strip().lower()) in _NAMES]
        if len(names) > 1 or not _READ.issuperset(names):
            raise UnreadableEncoding(f"compressed as {encoding[:50]!r}, which was not asked for")
        self._name = names[0] if names else ""
        self._is_plain = not names
        self._inner: zlib._Decompress | None = None

    def feed(self, piece: bytes, most: int) -> bytes:
        """
        Return a piece decompressed, at most `most` + 1 bytes: the last byte tells a caller that the limit is exceeded.

        Raises:
            UnreadableEncoding
        """
        if self._is_plain or not piece:
            return piece
        found, rest = bytearray(), piece
        try:
            while rest and len(found) <= most:
                if self._inner is None:
                    is_raw = self._name == "deflate" and rest[0] & 0x0F != _OF_ZLIB
                    self._inner = zlib.decompressobj(_RAW if is_raw else _GZIP_OR_ZLIB)
                found += self._inner.decompress(rest, most + 1 - len(found))
                rest = self._inner.unused_data or self._inner.unconsumed_tail
                if self._inner.eof:
                    self._inner = None  # another member of the same body may follow
                    rest = rest.lstrip(b"\0")  # padding after the last member
        except zlib.error:
            raise UnreadableEncoding(f"it calls itself {self._name}, and is not") from None
        return bytes(found)
