"""
Ask a language model for fields of each row of a CSV file, and write the rows with these fields in the same order.

A JSON Schema says which fields; an answer that does not fit it is asked for again.

    .venv/bin/python examples/extract_from_csv.py [IN.csv] [OUT.csv]

Kill it and start it again: each row is asked once, because its key says what it asks.
"""

from __future__ import annotations

import argparse
import csv
import hashlib
import json
import os
import sys
from collections.abc import Mapping
from pathlib import Path

from queueops_client import JobSpec, QueueOps

PROMPT = "Extract the product and the complaint of this ticket: "
FIELDS = ["product", "complaint"]
SCHEMA = {
    "type": "object",
    "properties": {name: {"type": "string"} for name in FIELDS},
    "required": FIELDS,
    "additionalProperties": False,
}


def job_of(row: Mapping[str, str]) -> JobSpec:
    prompt = PROMPT + json.dumps(row)
    asked = json.dumps([prompt, SCHEMA])
    return JobSpec(
        kind="llm.generate",
        payload={
            "provider": "openai",
            "credential": "demo-openai",
            "model": "small-1",
            "prompt": prompt,
            "schema": SCHEMA,
            "max_output_tokens": 64,
        },
        idempotency_key=f"extract-{hashlib.sha256(asked.encode()).hexdigest()}",
    )


def main(source: Path, target: Path) -> int:
    with source.open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    with QueueOps(os.environ.get("QUEUEOPS_URL", "http://127.0.0.1:8000"), key=os.environ["QUEUEOPS_KEY"]) as queue:
        batch = queue.submit_many((job_of(row) for row in rows), name=f"extract {source.name}")
        queue.wait(batch)
        results = list(queue.results(batch))
    with target.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, [*rows[0], *FIELDS, "error"])
        writer.writeheader()
        for row, result in zip(rows, results, strict=True):
            found = result.result["data"] if result.ok else {}
            writer.writerow({**row, **found, "error": "" if result.ok else result.last_error_code})
    failed = sum(not result.ok for result in results)
    print(f"{len(results) - failed} of {len(rows)} rows answered, in {target}")
    return 1 if failed else 0


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("source", type=Path, nargs="?", default=Path(__file__).with_name("tickets.csv"))
    parser.add_argument("target", type=Path, nargs="?", default=Path("answers.csv"))
    given = parser.parse_args()
    sys.exit(main(given.source, given.target))
