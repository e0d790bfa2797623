"""`queueops mcp`: an installation's tools by the Model Context Protocol (MCP) over standard streams."""

from __future__ import annotations

import json
import sys
from typing import Any

import click
import httpx

from queueops_client.cli.session import Session, command
from queueops_client.transport import CONNECT_TIMEOUT_SECONDS, base_url_of

TIMEOUT_SECONDS = 60.0
PARSE_ERROR, INVALID_REQUEST, SERVER_ERROR = -32700, -32600, -32000
VERSION_OF = "io.modelcontextprotocol/protocolVersion"  # the version in a message itself, without a handshake
NAMED_BY = {"tools/call": "name", "prompts/get": "name", "resources/read": "uri"}  # the parameter that Mcp-Name repeats


@click.command()
@command
def mcp(session: Session) -> None:
    """
    Offer the installation's tools to an assistant that starts this command.

    It reads requests of the Model Context Protocol, one a line, and writes their answers, until its input ends. The
    tools may do what the key may do.
    """
    key = session.key()
    bridge = Bridge(f"{base_url_of(session.address())}/mcp/", key)
    with bridge.http:
        for line in sys.stdin.buffer:
            if line.strip() and (answer := bridge.answer(line)):
                sys.stdout.buffer.write(answer + b"\n")
                sys.stdout.buffer.flush()


class Bridge:
    """
    Passes each message on as a request of the protocol's streamable HTTP, in the order in which they come.

    Args:
        address: The URL of the installation's tools.
    """

    def __init__(self, address: str, key: str) -> None:
        self.http = httpx.Client(
            timeout=httpx.Timeout(TIMEOUT_SECONDS, connect=CONNECT_TIMEOUT_SECONDS),
            headers={
                "authorization": f"Bearer {key}",
                "content-type": "application/json",
                "accept": "application/json, text/event-stream",
            },
        )
        self._address = address
        self._version = ""  # the version that a handshake agreed on

    def answer(self, line: bytes) -> bytes:
        """Return what is to be written, without the end of the line; empty: the message needs no answer."""
        try:
            message = json.loads(line)
        except ValueError as error:
            return _error(None, PARSE_ERROR, f"This is no JSON: {error}")
        if not isinstance(message, dict):
            return _error(None, INVALID_REQUEST, "A message is a JSON object.")
        number = message.get("id")
        try:
            response = self.http.post(self._address, content=line, headers=self._headers(message))
        except (httpx.HTTPError, UnicodeEncodeError) as error:
            return _error(number, SERVER_ERROR, f"{self._address}: {str(error) or type(error).__name__}")
        told = _parsed(response)
        if "jsonrpc" in told:
            if message.get("method") == "initialize" and isinstance(told.get("result"), dict):
                self._version = str(told["result"].get("protocolVersion", ""))
            return json.dumps(told, ensure_ascii=False).encode()
        if response.is_success and number is None:
            return b""  # a notification that was accepted
        told = told.get("error") or {}
        said = told.get("message") or f"{self._address} answered {response.status_code}."
        return _error(number, SERVER_ERROR, str(said), {"code": told.get("code") or f"http_{response.status_code}"})

    def _headers(self, message: dict[str, Any]) -> dict[str, str]:
        method, params = message.get("method"), message.get("params")
        given = params if isinstance(params, dict) else {}
        meta = given.get("_meta")
        version = (meta.get(VERSION_OF) if isinstance(meta, dict) else None) or self._version
        named = {
            "mcp-protocol-version": version,
            "mcp-method": method,
            "mcp-name": given.get(NAMED_BY.get(str(method), "")),
        }
        return {name: value for name, value in named.items() if isinstance(value, str) and value}


def _parsed(response: httpx.Response) -> dict[str, Any]:
    try:
        told = response.json()
    except ValueError:
        return {}
    return told if isinstance(told, dict) else {}


def _error(number: Any, code: int, message: str, data: dict[str, Any] | None = None) -> bytes:
    """
    Return an error as an answer. Nobody waits for an answer to a message without a number: a server's error is then
    written to standard error instead. A line that cannot be read is answered.
    """
    if number is None and code == SERVER_ERROR:
        click.echo(f"queueops: {message}", err=True)
        return b""
    error = {"code": code, "message": message, **({"data": data} if data else {})}
    return json.dumps({"jsonrpc": "2.0", "id": number, "error": error}, ensure_ascii=False).encode()
