"""A test that is a coroutine."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from functools import wraps
from typing import Any, ParamSpec

P = ParamSpec("P")


def played(test: Callable[P, Coroutine[Any, Any, None]]) -> Callable[P, None]:
    """Run the test to its end on an event loop of its own; it takes fixtures as others do."""

    @wraps(test)
    def run(*args: P.args, **kwargs: P.kwargs) -> None:
        asyncio.run(test(*args, **kwargs))

    return run
