"""Answers sent piece by piece."""

from collections.abc import Mapping, Sequence

from aiohttp import web

from sandbox import clock
from sandbox.state import FATE


async def send(
    request: web.Request,
    pieces: Sequence[str],
    *,
    content_type: str,
    pause_milliseconds: float,
    headers: Mapping[str, str] | None = None,
) -> web.StreamResponse:
    """Send the pieces. If a 503 is to hide the answer, return an empty response that is not sent yet."""
    if request[FATE].answers_503_after:
        return web.Response()
    response = web.StreamResponse(headers={**(headers or {}), "Content-Type": content_type})
    await response.prepare(request)
    for number, piece in enumerate(pieces):
        if number and pause_milliseconds:
            await clock.sleep(pause_milliseconds / 1000)
        await response.write(piece.encode())
    await response.write_eof()
    return response
