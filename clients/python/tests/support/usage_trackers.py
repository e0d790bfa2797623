"""Either tracker by the same calls, for tests that are to hold for both."""

from __future__ import annotations

import asyncio
import inspect
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from queueops_client import AsyncUsageTracker, UsageTracker
from queueops_client.usage.desk import Usage

KINDS = ("sync", "async")
# What the desk, the outbox and the flusher decide, which either tracker only carries out, is tried with one of them.
of_shared_code = pytest.mark.parametrize("kind", ["sync"])
KEY = "qo_key"
USER = "0f8fad5b-d9cb-469f-a165-70867728950e"
OTHER_USER = "7c9e6679-7425-40de-944b-e07fc1f90ae7"


class Tracker:
    """
    A tracker of the kind; the asynchronous one lives on a loop of its own. Nothing is sent in the background
    unless asked for.
    """

    def __init__(self, kind: str, url: str, path: Path, *, token: Any = KEY, **options: Any) -> None:
        options = {"user_id": USER, "background": False, **options}
        self.is_async = kind == "async"
        if not self.is_async:
            self.inner: Any = UsageTracker(url, token, path=path, **options)
            return
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self.inner = self._do(self._made(url, token, path=path, **options))

    async def _made(self, *args: Any, **options: Any) -> AsyncUsageTracker:
        return AsyncUsageTracker(*args, **options)

    def _do(self, coroutine: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result(60)

    def __getattr__(self, name: str) -> Callable[..., Any]:
        def call(*args: Any, **options: Any) -> Any:
            result = getattr(self.inner, name)(*args, **options)
            return self._do(result) if inspect.isawaitable(result) else result

        return call

    def use(
        self,
        estimate: int | None = None,
        *,
        tokens: int | None = None,
        error: Exception | None = None,
        during: Callable[[Usage], None] = lambda _: None,
        **options: Any,
    ) -> Any:
        """One whole use."""

        def body(usage: Usage) -> None:
            during(usage)
            if tokens is not None:
                usage.tokens = tokens
            if error is not None:
                raise error

        async def asynchronously() -> Any:
            async with self.inner.use(estimate, **options) as usage:
                body(usage)
            return usage

        if self.is_async:
            return self._do(asynchronously())
        with self.inner.use(estimate, **options) as begun:
            body(begun)
        return begun

    def close(self, **options: Any) -> None:
        if not self.is_async:
            self.inner.close(**options)
        elif self._thread.is_alive():
            self._do(self.inner.close(**options))
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()
            self._loop.close()


def wait_until(condition: Callable[[], Any], *, seconds: float = 20.0) -> Any:
    deadline = time.monotonic() + seconds
    is_last = False  # looked at once more after the deadline: a machine may have stood still until then
    while not (value := condition()):
        assert not is_last, "it did not come about"
        is_last = time.monotonic() > deadline
        time.sleep(0.01)
    return value
