"""Bodies far larger than other calls have, read as they come."""

from collections.abc import Callable
from dataclasses import dataclass, field

from aiohttp import BodyPartReader, web

from sandbox.envelopes import ApiError

_CHUNK_BYTES = 262_144


@dataclass(slots=True)
class UploadedForm:
    """A multipart form: its fields, and its file."""

    filename: str | None = None
    data: bytes = b""
    fields: dict[str, str] = field(default_factory=dict)


async def read_body(request: web.Request, *, most_bytes: int, too_large: Callable[[], ApiError]) -> bytes:
    """
    Return the whole body.

    Raises:
        ApiError: The body is larger than `most_bytes`; the rest was not read.
    """
    body = bytearray()
    async for chunk in request.content.iter_chunked(_CHUNK_BYTES):
        body += chunk
        if len(body) > most_bytes:
            raise too_large()
    return bytes(body)


async def read_upload(request: web.Request, *, most_bytes: int, too_large: Callable[[], ApiError]) -> UploadedForm:
    """
    Return the form; its file is the part named `file`.

    Raises:
        ApiError: The file is larger than `most_bytes`.
        ValueError: The body is not a multipart form.
    """
    if not request.content_type.startswith("multipart/"):
        raise ValueError("not a multipart form")
    found = UploadedForm()
    async for part in await request.multipart():
        if not isinstance(part, BodyPartReader):
            raise ValueError("a part holds parts")  # noqa: TRY004 (of the request, not of our code)
        data = bytearray()
        while chunk := await part.read_chunk(_CHUNK_BYTES):
            data += chunk
            if len(data) > most_bytes:
                raise too_large()
        if part.name == "file":
            found.filename, found.data = part.filename or "file", bytes(data)
        elif part.name is not None:
            found.fields[part.name] = data.decode()
    return found
