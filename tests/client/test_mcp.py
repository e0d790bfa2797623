"""An assistant that starts `queueops mcp`, against the real server: the official SDK's client over standard streams."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from asgiref.sync import async_to_sync, sync_to_async
from mcp.client.client import Client
from mcp.client.stdio import StdioServerParameters, stdio_client

from jobs.models import PauseSwitch
from tests.client.commands import QUEUEOPS
from tests.factories import make_job
from tests.support.assistants import answered
from tests.support.processes import free_port

pytestmark = pytest.mark.django_db(transaction=True)

Environ = dict[str, str]


def connected(environ: Environ, work: Callable[[Client], Awaitable[Any]], *, mode: str = "auto") -> Any:
    async def connect() -> Any:
        command, *arguments = [*QUEUEOPS, "mcp"]
        server = StdioServerParameters(command=command, args=arguments, env=environ)
        with open(os.devnull, "w") as nowhere:  # noqa: ASYNC230, PTH123
            async with Client(stdio_client(server, errlog=nowhere), mode=mode) as client:
                return await work(client)

    return async_to_sync(connect)()


def said_to(environ: Environ, *lines: str) -> list[dict[str, Any]]:
    done = subprocess.run(
        [*QUEUEOPS, "mcp"], env=environ, input="\n".join(lines), capture_output=True, text=True, timeout=60, check=True
    )
    return [json.loads(line) for line in done.stdout.splitlines()]


@pytest.mark.parametrize("mode", ["auto", "legacy"])
def test_an_assistant_lists_and_calls_the_tools(environ: Environ, mode: str):
    make_job()

    async def work(client: Client) -> Any:
        tools = {tool.name for tool in (await client.list_tools()).tools}
        return tools, await client.call_tool("what_holds_the_project", {})

    tools, told = connected(environ, work, mode=mode)
    assert {"what_holds_the_project", "preview_pause", "confirm"} <= tools
    assert not told.is_error, told


def test_a_change_is_made_by_what_its_preview_gave(environ: Environ):
    pause = {"scope": "project", "reason": "the provider asked for it"}

    async def work(client: Client) -> Any:
        shown = answered(await client.call_tool("preview_pause", pause))
        made_up = {"change": "preview_pause", "arguments": pause, "confirmation": "made up"}
        refused = answered(await client.call_tool("confirm", made_up))
        assert await sync_to_async(PauseSwitch.objects.exists)() is False
        return refused, answered(
            await client.call_tool("confirm", made_up | {"confirmation": shown.data["confirmation"]})
        )

    refused, done = connected(environ, work)
    assert (refused.code, done.error) == ("bad_confirmation", {})
    assert PauseSwitch.objects.get().key == "acme"


def test_a_key_that_is_refused_is_told(environ: Environ):
    ask = json.dumps({"jsonrpc": "2.0", "id": 7, "method": "tools/list"})
    [refused] = said_to({**environ, "QUEUEOPS_KEY": "qo_nobody"}, ask)
    assert (refused["id"], refused["error"]["data"]["code"]) == (7, "invalid_key")


def test_what_cannot_be_read_or_reached_is_answered(environ: Environ):
    ask = json.dumps({"jsonrpc": "2.0", "id": "a", "method": "tools/list"})
    told = json.dumps({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 1}})
    broken, number, answered = said_to(environ, "{", "7", "", told, ask)
    assert (broken["error"]["code"], number["error"]["code"]) == (-32700, -32600)
    assert (answered["id"], "result" in answered or "error" in answered) == ("a", True)
    [away] = said_to({**environ, "QUEUEOPS_URL": f"http://127.0.0.1:{free_port()}"}, told, ask)
    assert (away["id"], away["error"]["code"]) == ("a", -32000)
