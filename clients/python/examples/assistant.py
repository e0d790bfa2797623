"""
An app that calls a language model by itself and counts the tokens against its user's allowance.

While the allowance is plentiful, no call waits for QueueOps, and the app goes on without a network to it. Near the
limit the tokens are reserved before the call.
"""

from __future__ import annotations

import argparse
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from http import HTTPStatus
from threading import Event

import httpx

from queueops_client import QuotaExceeded, QuotaUnavailable, UsageTracker

MODEL = "gemini-2.5-flash"
MAX_OUTPUT_TOKENS = 64
PROMPT = "Say in one sentence what it means that a log is written ahead. "
WORKERS = 4
PAUSE_SECONDS = 0.1  # while somebody reads the answer
CREDIT = 1.0  # all that is left may be used while offline: nobody else uses this user's allowance


def ask(model: httpx.Client, prompt: str, *, call_id: str) -> tuple[str, int]:
    """Call the model; return its answer and the tokens that it charges."""
    body = {
        "contents": [{"parts": [{"text": prompt}]}],
        "generationConfig": {"maxOutputTokens": MAX_OUTPUT_TOKENS},
    }
    # The id goes with the call, so that the provider can be asked about it later.
    headers = {"Idempotency-Key": call_id}
    answer = model.post(f"/v1beta/models/{MODEL}:generateContent", json=body, headers=headers).raise_for_status().json()
    return answer["candidates"][0]["content"]["parts"][0]["text"], answer["usageMetadata"]["totalTokenCount"]


def charged_by(model: httpx.Client, call_id: str) -> int | None:
    """Return the tokens that the provider charged for a call; None: it never carried the call out."""
    while True:
        calls = model.get("/_sandbox/ledger", params={"effect_key": call_id}).raise_for_status().json()["calls"]
        if all(call["ended"] for call in calls):
            return next(
                (call["cost_tokens"] + MAX_OUTPUT_TOKENS for call in calls if call["status"] == HTTPStatus.OK), None
            )
        time.sleep(PAUSE_SECONDS)  # the provider still works on the call, though nobody waits for it


def clear_up(tracker: UsageTracker, model: httpx.Client) -> None:
    """Find out what became of calls that were under way when the app was killed."""
    for intent in tracker.report().intents:
        tokens = charged_by(model, intent.event_id)
        print(f"a call was under way at the crash; the provider charged {tokens or 'nothing'}", flush=True)
        tracker.resolve(intent.event_id, tokens=tokens)


def work(tracker: UsageTracker, model: httpx.Client) -> None:
    """Ask until the allowance is used up."""
    enough = Event()

    def worker() -> None:
        while not enough.is_set():
            try:
                with tracker.use(estimate=len(PROMPT) // 4 + 1 + MAX_OUTPUT_TOKENS, service="gemini") as usage:
                    print("calling", flush=True)
                    _, usage.tokens = ask(model, PROMPT, call_id=usage.event_id)
            except QuotaExceeded:
                enough.set()
            except (QuotaUnavailable, httpx.HTTPError):
                pass  # try again after the pause
            enough.wait(PAUSE_SECONDS)

    with ThreadPoolExecutor(WORKERS) as workers:
        for _ in range(WORKERS):
            workers.submit(worker)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    for name in ("--server", "--key", "--model", "--user", "--outbox"):
        parser.add_argument(name, required=True)
    given = parser.parse_args()
    model_key = {"x-goog-api-key": f"project:assistant/user:{given.user}"}
    with (
        httpx.Client(base_url=given.model, headers=model_key, timeout=30) as model,
        UsageTracker(given.server, given.key, user_id=given.user, path=given.outbox, credit=CREDIT) as tracker,
    ):
        clear_up(tracker, model)
        with suppress(KeyboardInterrupt):
            work(tracker, model)
        tracker.flush()
        standing = tracker.standing()
        print(f"used {standing.used:,} of {standing.quota:,} {standing.unit}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
