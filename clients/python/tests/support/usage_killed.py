"""One use and one flush by a process that kills itself at a point: SRC KIND URL FILE USER POINT."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from contextlib import contextmanager
from typing import Any

_, SRC, KIND, URL, FILE, USER, POINT = sys.argv
sys.path.insert(0, SRC)

from queueops_client import AsyncUsageTracker, UsageTracker  # noqa: E402
from queueops_client.transport import AsyncTransport, Transport  # noqa: E402
from queueops_client.usage.file import OutboxFile  # noqa: E402
from queueops_client.usage.outbox import Outbox  # noqa: E402

OPTIONS: Any = {"user_id": USER, "path": FILE, "policy": "optimistic", "background": False}


def die_at(point: str) -> None:
    if point == POINT:
        os.kill(os.getpid(), signal.SIGKILL)


def around(owner: Any, name: str, before: str, after: str) -> None:
    original = getattr(owner, name)

    def wrapped(*args: Any, **options: Any) -> Any:
        die_at(before)
        result = original(*args, **options)
        die_at(after)
        return result

    setattr(owner, name, wrapped)


around(Outbox, "begin", "before_intent", "after_intent")
around(Outbox, "complete", "", "after_commit")
around(Outbox, "settle", "before_settle", "after_settle")
around(Outbox, "claim", "", "before_send")

taken = Transport.take, AsyncTransport.take


def take(self: Transport, step: Any) -> Any:
    answer = taken[0](self, step)
    die_at("after_answer")
    return answer


async def take_async(self: AsyncTransport, step: Any) -> Any:
    answer = await taken[1](self, step)
    die_at("after_answer")
    return answer


Transport.take = take  # type: ignore[method-assign]
AsyncTransport.take = take_async  # type: ignore[method-assign]

committed = OutboxFile.transaction


@contextmanager
def cut_short(self: OutboxFile) -> Any:
    """The rows are written and not committed when the process dies."""
    with committed(self) as db:
        yield db
        die_at("before_commit")


def at_the_end(usage: Any) -> None:
    usage.tokens = 30
    die_at("after_call")
    OutboxFile.transaction = cut_short  # type: ignore[method-assign]


async def asynchronously() -> None:
    async with AsyncUsageTracker(URL, "qo_key", **OPTIONS) as tracker:
        async with tracker.use(50, service="gemini") as usage:
            at_the_end(usage)
        die_at("after_use")
        await tracker.flush()


if KIND == "async":
    asyncio.run(asynchronously())
else:
    with UsageTracker(URL, "qo_key", **OPTIONS) as tracker:
        with tracker.use(50, service="gemini") as usage:
            at_the_end(usage)
        die_at("after_use")
        tracker.flush()
