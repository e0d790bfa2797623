"""
Summarise texts by a deadline, at half the price where the deadline leaves time for a provider's batch.

    .venv/bin/python examples/batch_by_deadline.py [HOURS] [TEXTS]

With 36 hours the work goes by a batch, with one hour it goes live: `via` says which.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections import Counter
from datetime import UTC, datetime, timedelta

from queueops_client import JobSpec, QueueOps


def main(hours: float, count: int) -> int:
    deadline = datetime.now(UTC) + timedelta(hours=hours)
    with QueueOps(os.environ.get("QUEUEOPS_URL", "http://127.0.0.1:8000"), key=os.environ["QUEUEOPS_KEY"]) as queue:
        batch = queue.submit_many(
            (
                JobSpec(
                    kind="llm.generate",
                    payload={
                        "provider": "openai",
                        "credential": "demo-openai",
                        "model": "small-1",
                        "prompt": f"Summarise: text number {number}",
                        "max_output_tokens": 64,
                    },
                    complete_by=deadline,
                )
                for number in range(count)
            ),
            name=f"{count} summaries by {deadline:%Y-%m-%d %H:%M} UTC",
        )
        print(f"{batch.accepted} summaries are submitted", flush=True)
        queue.wait(batch)
        results = list(queue.results(batch))
        ways = Counter(queue.job(result.id).via for result in results)
    print(", ".join(f"{number} went {'by a batch' if way == 'batch' else 'live'}" for way, number in ways.items()))
    return 0 if all(result.ok for result in results) else 1


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("hours", type=float, nargs="?", default=36.0)
    parser.add_argument("texts", type=int, nargs="?", default=50)
    given = parser.parse_args()
    sys.exit(main(given.hours, given.texts))
