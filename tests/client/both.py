"""Every form of the client, asked in the same way."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncIterator, Iterator
from types import TracebackType
from typing import Any, Self


class Both:
    """
    Calls methods of a client in any form: what must be awaited is, and what is iterated over comes as a list.

    Args:
        make: The client's class; an asynchronous one belongs to this object's own loop.
    """

    def __init__(self, make: Any, *arguments: Any, **named: Any) -> None:
        self._runner = asyncio.Runner()
        self._client = self._run(_made(make, *arguments, **named))

    def __getattr__(self, name: str) -> Any:
        def call(*arguments: Any, **named: Any) -> Any:
            return self._run(_called(getattr(self._client, name), *arguments, **named))

        return call

    def use(self, tokens: int | Exception, **options: Any) -> str:
        """One use that took so many tokens, or failed; returns its event's id."""
        return str(self._run(_used(self._client, tokens, **options)))

    def _run(self, steps: Any) -> Any:
        return self._runner.run(steps)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()
        self._runner.close()


async def _made(make: Any, *arguments: Any, **named: Any) -> Any:
    return make(*arguments, **named)


async def _called(method: Any, *arguments: Any, **named: Any) -> Any:
    found = method(*arguments, **named)
    if inspect.isawaitable(found):
        return await found
    if isinstance(found, AsyncIterator):
        return [item async for item in found]
    return list(found) if isinstance(found, Iterator) else found


async def _used(tracker: Any, tokens: int | Exception, **options: Any) -> str:
    use = tracker.use(**options)
    if hasattr(use, "__aenter__"):
        async with use as usage:
            _take(usage, tokens)
    else:
        with use as usage:
            _take(usage, tokens)
    return str(usage.event_id)


def _take(usage: Any, tokens: int | Exception) -> None:
    if isinstance(tokens, Exception):
        raise tokens
    usage.tokens = tokens
