"""Answers that are sent piece by piece, by threads that hold no database connection."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from functools import partial
from typing import IO

from asgiref.sync import sync_to_async
from django.core.handlers.asgi import ASGIRequest
from django.db import connections
from django.http import HttpRequest, StreamingHttpResponse

NO_SNIFFING = {"X-Content-Type-Options": "nosniff"}
PIECE_BYTES = 65_536


def download(request: HttpRequest, pieces: Iterator[bytes], content_type: str, name: str = "") -> StreamingHttpResponse:
    """
    Args:
        pieces: The content, from a file or a store. Reading it must not need the database: the request's connection is
            back in the pool by then.
        name: The file name under which a browser saves the content; empty: the browser shows the content.
    """
    content = asynchronous(pieces) if isinstance(request, ASGIRequest) else pieces
    headers = NO_SNIFFING | ({"Content-Disposition": f'attachment; filename="{name}"'} if name else {})
    return StreamingHttpResponse(content, content_type=content_type, headers=headers)


def export(request: HttpRequest, lines: Iterator[str], content_type: str, name: str) -> StreamingHttpResponse:
    """Answer with lines that are read from the database while they are sent, however many there are."""
    is_asynchronous = isinstance(request, ASGIRequest)
    pieces = _read_apart(lines) if is_asynchronous else (line.encode() for line in lines)
    return download(request, pieces, content_type, name)


def pieces_of(file: IO[bytes]) -> Iterator[bytes]:
    """Yield a file's content in pieces, and close the file at the end."""
    with file:
        yield from iter(partial(file.read, PIECE_BYTES), b"")


async def asynchronous(pieces: Iterator[bytes]) -> AsyncIterator[bytes]:
    """
    Make an iterator asynchronous: Django would read all of a plain iterator before it sends the first piece.

    The thread for thread-bound code is not used: a store that hangs would hold up all of that code.
    """
    while (piece := await sync_to_async(_next, thread_sensitive=False)(pieces)) is not None:
        yield piece


def _read_apart(lines: Iterator[str]) -> Iterator[bytes]:
    """Yield the lines in pieces; each has at least PIECE_BYTES, but for the last."""
    piece = [""]
    while piece:
        piece, size = [], 0
        try:
            for line in lines:
                piece.append(line)
                size += len(line)
                if size >= PIECE_BYTES:
                    break
        finally:
            connections.close_all()  # each piece may be read by another thread, whose connection no request gives back
        if piece:
            yield "".join(piece).encode()


def _next(pieces: Iterator[bytes]) -> bytes | None:
    return next(pieces, None)
