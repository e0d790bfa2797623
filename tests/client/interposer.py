"""Something between client and server that answers as it is told, then lets requests through."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import aiohttp
from aiohttp import web

from tests.support.http_server import serving

CARRIED = {
    "accept-encoding",
    "authorization",
    "content-encoding",
    "content-type",
    "date",
    "idempotency-key",
    "idempotency-replayed",
    "retry-after",
}


@dataclass(frozen=True)
class Reply:
    """
    Attributes:
        body: Text, or what is written as JSON.
        lets_through: The server is asked first, and its answer is thrown away.
    """

    status: int = 200
    body: Any = ""
    headers: dict[str, str] = field(default_factory=dict)
    lets_through: bool = False

    @classmethod
    def refusal(cls, status: int, code: str, **headers: str) -> Reply:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        return cls(status, {"error": {"code": code, "message": f"It is {code}."}}, named)


@dataclass
class Interposer:
    """
    Attributes:
        replies: Given first, one a request.
        passed: Requests that the server answered.
    """

    url: str = ""
    replies: list[Reply] = field(default_factory=list)
    passed: int = 0


@asynccontextmanager
async def interposed(address: str) -> AsyncIterator[Interposer]:
    between = Interposer()
    # What the client accepts is asked for, and nothing else: aiohttp would add encodings of its own.
    async with aiohttp.ClientSession(auto_decompress=False, skip_auto_headers=["Accept-Encoding"]) as session:

        async def ask(request: web.Request) -> web.Response:
            async with session.request(
                request.method,
                f"{address}{request.raw_path}",
                data=await request.read(),
                headers=_carried(request.headers),
                allow_redirects=False,
            ) as answer:
                return web.Response(status=answer.status, body=await answer.read(), headers=_carried(answer.headers))

        async def handle(request: web.Request) -> web.Response:
            if not between.replies:
                between.passed += 1
                return await ask(request)
            reply = between.replies.pop(0)
            if reply.lets_through:
                await ask(request)
            if isinstance(reply.body, str):
                return web.Response(status=reply.status, text=reply.body, headers=reply.headers)
            return web.json_response(reply.body, status=reply.status, headers=reply.headers)

        async with serving(handle) as url:
            between.url = url
            yield between


def _carried(headers: Any) -> dict[str, str]:
    return {name: value for name, value in headers.items() if name.lower() in CARRIED}
