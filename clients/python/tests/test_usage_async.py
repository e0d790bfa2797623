"""What only the asynchronous tracker can get wrong: cancellation, and a loop that waits for a disk."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from contextlib import closing, suppress

from queueops_client import AsyncUsageTracker
from usage_trackers import USER

NOBODY = "http://127.0.0.1:9"


class Held:
    """Holds the worker thread at one of the desk's calls until it is released."""

    def __init__(self, owner, name):
        self.reached, self.released = threading.Event(), threading.Event()
        original = getattr(owner, name)

        def held(*args, **options):
            self.reached.set()
            assert self.released.wait(20)
            return original(*args, **options)

        setattr(owner, name, held)


def tracker(tmp_path):
    return AsyncUsageTracker(
        NOBODY, "qo_key", user_id=USER, path=tmp_path / "outbox.sqlite3", policy="optimistic", background=False
    )


async def cancelled_at(held, work):
    task = asyncio.create_task(work)
    await asyncio.to_thread(held.reached.wait, 20)
    task.cancel()
    await asyncio.sleep(0)
    held.released.set()
    with suppress(asyncio.CancelledError):
        await task
    return task


async def use(tracker):
    async with tracker.use(50) as usage:
        usage.tokens = 30


def test_a_use_cancelled_while_it_begins_leaves_no_intent(tmp_path):
    async def main():
        counter = tracker(tmp_path)
        task = await cancelled_at(Held(counter._desk.outbox, "begin"), use(counter))
        assert task.cancelled()
        assert (await counter.report()).size == 0
        await counter.close(timeout=0.2)

    asyncio.run(main())


def test_a_use_cancelled_while_it_ends_is_written_down_before_the_task_ends(tmp_path):
    async def main():
        counter = tracker(tmp_path)
        task = await cancelled_at(Held(counter._desk.outbox, "complete"), use(counter))
        assert task.cancelled()
        with closing(sqlite3.connect(tmp_path / "outbox.sqlite3")) as file:
            assert file.execute("SELECT status, tokens FROM event").fetchall() == [("ready", 30)]
        await counter.close(timeout=0.2)

    asyncio.run(main())


def test_the_loop_goes_on_while_the_outbox_is_locked_by_another_process(tmp_path):
    async def main():
        counter = tracker(tmp_path)
        await use(counter)
        other = sqlite3.connect(tmp_path / "outbox.sqlite3", isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        task = asyncio.create_task(use(counter))
        for _ in range(50):
            await asyncio.sleep(0.002)
        assert not task.done()
        other.execute("ROLLBACK")
        other.close()
        await task
        assert (await counter.report()).pending == 2
        await counter.close(timeout=0.2)

    asyncio.run(main())
