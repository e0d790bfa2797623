"""
An app that calls a language model by itself, and counts the tokens of each of its users against their allowance.

    .venv/bin/python examples/count_tokens.py

No call waits for QueueOps while there is plenty left. Usage is on disk before the app goes on.
"""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path
from uuid import uuid4

import httpx

from queueops_client import QuotaExceeded, UsageTracker

USERS = 3
CALLS_EACH = 5
MODEL = "gemini-2.5-flash"
MODEL_KEY = {"x-goog-api-key": "project:demo/user:app"}
BODY = {
    "contents": [{"parts": [{"text": "Say in one sentence what a quota is."}]}],
    "generationConfig": {"maxOutputTokens": 64},
}


def main(server: str, key: str, model_address: str) -> int:
    differences = 0
    with (
        tempfile.TemporaryDirectory() as folder,
        UsageTracker(server, key, path=Path(folder) / "outbox.db") as tracker,
        httpx.Client(base_url=model_address, headers=MODEL_KEY, timeout=30) as model,
    ):
        for user in (uuid4() for _ in range(USERS)):
            charged = 0
            for _ in range(CALLS_EACH):
                try:
                    with tracker.use(estimate=200, service="gemini", user_id=user) as usage:
                        headers = {"Idempotency-Key": str(usage.event_id)}
                        answer = model.post(f"/v1beta/models/{MODEL}:generateContent", json=BODY, headers=headers)
                        tokens = int(answer.raise_for_status().json()["usageMetadata"]["totalTokenCount"])
                        usage.tokens = tokens
                except QuotaExceeded as refused:
                    print(f"user {user}: nothing is left until {refused.resets_at}")
                    break
                charged += tokens
            tracker.flush(timeout=30)
            standing = tracker.standing(user)
            print(f"user {user}: the model charged {charged}, {standing.used:,} of {standing.quota:,} are counted")
            differences += abs(charged - standing.used)
    print("exact" if not differences else f"{differences} tokens differ")
    return 1 if differences else 0


if __name__ == "__main__":
    sys.exit(
        main(
            os.environ.get("QUEUEOPS_URL", "http://127.0.0.1:8000"),
            os.environ["QUEUEOPS_KEY"],
            os.environ.get("MODEL_URL", "http://127.0.0.1:8001"),
        )
    )
