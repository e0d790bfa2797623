"""
An app that calls the sandbox's Gemini directly and counts what it used: `python -m tests.client.app <JSON>`.

It works until SIGTERM, then prints how its calls ended. Started with `"works": false` it only clears up what others
left in the outbox.
"""

from __future__ import annotations

import asyncio
import json
import random
import signal
import sys
import threading
from collections import Counter
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from typing import Any

import httpx

from queueops_client import AsyncUsageTracker, QuotaExceeded, QuotaUnavailable, UsageTracker

MODEL = "gemini-2.5-flash"
OUTPUT_TOKENS = 16  # of each answer: the sandbox's knob
MAX_PROMPT_LENGTH = 40  # tokens
ESTIMATE = MAX_PROMPT_LENGTH + OUTPUT_TOKENS
PAUSE_SECONDS = 0.05  # after a refusal


@dataclass(frozen=True)
class Order:
    """
    What one process does.

    Attributes:
        policies: By user.
        workers: Threads, or tasks if `asynchronous`.
    """

    server: str
    key: str
    provider: str
    outbox: str
    policies: dict[str, str]
    workers: int = 4
    asynchronous: bool = False
    works: bool = True
    seed: int = 0

    def text(self) -> str:
        return json.dumps(asdict(self))

    @property
    def tracker_options(self) -> dict[str, dict[str, Any]]:
        shared = {"token": self.key, "path": self.outbox}
        return {user: {**shared, "user_id": user, "policy": policy} for user, policy in self.policies.items()}


@dataclass
class Outcomes:
    """How calls ended, by user."""

    done: Counter[str] = field(default_factory=Counter)
    refused: Counter[str] = field(default_factory=Counter)
    unavailable: Counter[str] = field(default_factory=Counter)
    failed: Counter[str] = field(default_factory=Counter)

    def note(self, error: Exception, user: str) -> None:
        if isinstance(error, QuotaExceeded):
            self.refused[user] += 1
        elif isinstance(error, QuotaUnavailable):
            self.unavailable[user] += 1
        else:
            self.failed[user] += 1


def request_of(user: str, event_id: str, dice: random.Random) -> dict[str, Any]:
    """A call that the sandbox counts for this user, under the event's id."""
    return {
        "url": f"/v1beta/models/{MODEL}:generateContent",
        "headers": {"x-goog-api-key": f"project:app/user:{user}", "Idempotency-Key": event_id},
        "json": {"contents": [{"parts": [{"text": "word" * dice.randint(1, MAX_PROMPT_LENGTH)}]}]},
    }


def tokens_of(response: httpx.Response) -> int:
    return int(response.raise_for_status().json()["usageMetadata"]["totalTokenCount"])


def tokens_according_to(provider: httpx.Client, event_id: str) -> int | None:
    """What the provider charged for a call; None: it never carried it out."""
    page = provider.get("/_sandbox/ledger", params={"effect_key": event_id, "status": 200})
    charged = [call["cost_tokens"] + OUTPUT_TOKENS for call in page.json()["calls"]]
    return sum(charged) if charged else None


def clear_up(order: Order) -> dict[str, int]:
    """Resolve what processes that were killed left behind, and send all there is."""
    resolved = Counter[str]()
    with (
        httpx.Client(base_url=order.provider, timeout=30) as provider,
        UsageTracker(order.server, order.key, path=order.outbox) as tracker,
    ):
        for intent in tracker.report().intents:
            tokens = tokens_according_to(provider, intent.event_id)
            resolved["never happened" if tokens is None else "happened"] += 1
            tracker.resolve(intent.event_id, tokens=tokens)
        tracker.flush(timeout=30)
        left = tracker.report()
        resolved["left"] += left.pending + len(left.intents) + len(left.rejected)
    return resolved


def work_in_threads(order: Order, outcomes: Outcomes) -> None:
    stop = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    trackers = {user: UsageTracker(order.server, **options) for user, options in order.tracker_options.items()}

    def work(number: int) -> None:
        dice = random.Random(order.seed * 100 + number)  # noqa: S311 - draws work
        with httpx.Client(base_url=order.provider, timeout=30) as provider:
            while not stop.is_set():
                user = dice.choice(list(trackers))
                try:
                    with trackers[user].use(estimate=ESTIMATE, service="gemini") as usage:
                        usage.tokens = tokens_of(provider.post(**request_of(user, usage.event_id, dice)))
                    outcomes.done[user] += 1
                except (QuotaExceeded, QuotaUnavailable, httpx.HTTPStatusError) as error:
                    outcomes.note(error, user)
                    stop.wait(PAUSE_SECONDS)

    with ThreadPoolExecutor(order.workers) as workers:
        at_work = [workers.submit(work, number) for number in range(order.workers)]
        say("working")
    for worker in at_work:
        worker.result()
    for tracker in trackers.values():
        tracker.close()


async def work_in_tasks(order: Order, outcomes: Outcomes) -> None:
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    trackers = {user: AsyncUsageTracker(order.server, **options) for user, options in order.tracker_options.items()}

    async def work(number: int, provider: httpx.AsyncClient) -> None:
        dice = random.Random(order.seed * 100 + number)  # noqa: S311 - draws work
        while not stop.is_set():
            user = dice.choice(list(trackers))
            try:
                async with trackers[user].use(estimate=ESTIMATE, service="gemini") as usage:
                    usage.tokens = tokens_of(await provider.post(**request_of(user, usage.event_id, dice)))
                outcomes.done[user] += 1
            except (QuotaExceeded, QuotaUnavailable, httpx.HTTPStatusError) as error:
                outcomes.note(error, user)
                await asyncio.sleep(PAUSE_SECONDS)

    async with httpx.AsyncClient(base_url=order.provider, timeout=30) as provider:
        say("working")
        await asyncio.gather(*(work(number, provider) for number in range(order.workers)))
    for tracker in trackers.values():
        await tracker.close()


def say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def main(text: str) -> None:
    order, outcomes = Order(**json.loads(text)), Outcomes()
    result: Mapping[str, object]
    if not order.works:
        result = clear_up(order)
    else:
        if order.asynchronous:
            asyncio.run(work_in_tasks(order, outcomes))
        else:
            work_in_threads(order, outcomes)
        result = vars(outcomes)
    say(json.dumps(result))


if __name__ == "__main__":
    main(sys.argv[1])
