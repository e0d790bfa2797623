"""
Write a CSV file into a spreadsheet, once a night.

    .venv/bin/python examples/sync_to_sheets.py [IN.csv]

Start it from cron as often as you like: a row is written once a day, because its key has the day. Waiting rows leave
together in few calls, within every quota.
"""

from __future__ import annotations

import csv
import os
import sys
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path

from queueops_client import JobSpec, QueueOps

SPREADSHEET = "example-stock"


def jobs_of(rows: Sequence[Sequence[str]], day: str) -> Iterator[JobSpec]:
    for number, row in enumerate(rows, start=1):
        last = chr(ord("A") + len(row) - 1)
        yield JobSpec(
            kind="google_sheets.values_update",
            payload={
                "credential": "demo-sheets",
                "spreadsheet_id": SPREADSHEET,
                "range": f"Sheet1!A{number}:{last}{number}",
                "values": [list(row)],
            },
            idempotency_key=f"stock-{day}-{number}",
        )


def main(source: Path) -> int:
    day = datetime.now(UTC).date().isoformat()
    with source.open(newline="", encoding="utf-8") as file:
        rows = list(csv.reader(file))
    with QueueOps(os.environ.get("QUEUEOPS_URL", "http://127.0.0.1:8000"), key=os.environ["QUEUEOPS_KEY"]) as queue:
        batch = queue.submit_many(jobs_of(rows, day), name=f"stock {day}", tags=["nightly"])
        queue.wait(batch)
        results = list(queue.results(batch))
    for result in results:
        if not result.ok:
            print(f"job {result.id}: {result.last_error_code}: {result.last_error_message}")
    written = sum(result.ok for result in results)
    print(f"{written} of {len(rows)} rows are in the spreadsheet {SPREADSHEET}")
    return 0 if written == len(rows) else 1


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]) if sys.argv[1:] else Path(__file__).with_name("stock.csv")))
