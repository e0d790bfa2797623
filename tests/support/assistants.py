"""An assistant that knows nothing but the protocol: the SDK's own client, over HTTP to the app in this process."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

import httpx2
from asgiref.sync import async_to_sync, sync_to_async
from django.test import Client as Browser
from mcp.client.client import Client
from mcp.client.streamable_http import streamable_http_client
from mcp.types import CallToolResult

from queueops.assistant.showing import IS_DATA, data_of
from queueops.audit.models import AuditEntry
from tests.api.conftest import ALL_SCOPES, key_for
from tests.security.world import everything

URL = "http://testserver/mcp/"


@dataclass(frozen=True)
class Answered:
    """`says`: the tool's own words; `data`: what it marked as data; `error`: in the API's shape, where it refused."""

    says: str
    data: Any
    error: dict[str, Any]

    @property
    def code(self) -> str:
        return str(self.error.get("code", ""))


class InProcess(httpx2.AsyncBaseTransport):
    """Hands requests to Django in the thread of the test, and so in its transaction."""

    def __init__(self) -> None:
        self._browser = Browser(raise_request_exception=False)

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        body = await request.aread()
        response = await sync_to_async(self._send)(request, body)
        return httpx2.Response(response.status_code, headers=dict(response.headers), content=response.content)

    def _send(self, request: httpx2.Request, body: bytes) -> Any:
        kind = request.headers.get("content-type", "")
        return self._browser.generic(request.method, request.url.path, body, content_type=kind, headers=request.headers)


def answered(result: CallToolResult) -> Answered:
    texts = [block.text for block in result.content if block.type == "text"]
    if result.is_error:
        return Answered("", None, json.loads(texts[0])["error"])
    says, marked = texts
    assert marked.startswith(IS_DATA)
    return Answered(says, data_of(marked), {})


@dataclass(frozen=True)
class Assistant:
    """With one key of a project."""

    key: str

    def call(self, tool: str, /, **arguments: Any) -> Answered:
        async def work(client: Client) -> CallToolResult:
            return await client.call_tool(tool, arguments)

        return answered(self.connected(work))

    def connected(self, work: Callable[[Client], Awaitable[Any]], *, mode: str = "auto") -> Any:
        """What `work` makes of a connected client, of the newest era of the protocol or of the one with handshakes."""

        async def connect() -> Any:
            headers = {"Authorization": f"Bearer {self.key}"}
            async with (
                httpx2.AsyncClient(transport=InProcess(), headers=headers) as http,
                Client(streamable_http_client(URL, http_client=http), mode=mode) as client,
            ):
                return await work(client)

        return async_to_sync(connect)()


def assistant_of(project: str = "acme", *, scopes: list[str] = ALL_SCOPES, **fields: Any) -> Assistant:
    return Assistant(key_for(project, scopes=scopes, **fields))


def previewed(assistant: Assistant, tool: str, **arguments: Any) -> Answered:
    """What the preview says; it has written nothing."""
    assistant.call("executors")
    before = everything()
    answer = assistant.call(tool, **arguments)
    assert everything() == before
    return answer


def confirm(assistant: Assistant, tool: str, answer: Answered, **arguments: Any) -> Answered:
    token = answer.data["confirmation"]
    return assistant.call("confirm", change=tool, arguments=arguments, confirmation=token)


def made(assistant: Assistant, tool: str, **arguments: Any) -> Answered:
    shown = previewed(assistant, tool, **arguments)
    assert shown.says.startswith("Nothing has changed yet.")
    done = confirm(assistant, tool, shown, **arguments)
    assert done.error == {}
    assert AuditEntry.objects.filter(reason__endswith="(through the assistant)", actor__startswith="key:").exists()
    return shown
