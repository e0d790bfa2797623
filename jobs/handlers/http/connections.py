"""The connections of an event loop, which all handlers that call out share."""

from __future__ import annotations

import asyncio
from weakref import WeakKeyDictionary

from jobs.handlers.registry import on_close
from queueops.core.outbound.client import OutboundClient

_clients: WeakKeyDictionary[asyncio.AbstractEventLoop, OutboundClient] = WeakKeyDictionary()


@on_close
async def close() -> None:
    """Close the running loop's connections; call it before the loop ends."""
    client = _clients.pop(asyncio.get_running_loop(), None)
    if client is not None:
        await client.close()


def shared_client() -> OutboundClient:
    """Return the running loop's client, made at its first call."""
    return _clients.setdefault(asyncio.get_running_loop(), OutboundClient())
