"""Asynchronous servers for synchronous tests: on a loop of their own, in a thread."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import AbstractAsyncContextManager, contextmanager
from typing import TypeVar

T = TypeVar("T")


@contextmanager
def in_background(server: AbstractAsyncContextManager[T]) -> Iterator[T]:
    """Enter an asynchronous context in another thread, and leave it there."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    try:
        entered = asyncio.run_coroutine_threadsafe(server.__aenter__(), loop).result(timeout=60)
        try:
            yield entered
        finally:
            asyncio.run_coroutine_threadsafe(server.__aexit__(None, None, None), loop).result(timeout=60)
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join(timeout=20)
        loop.close()
