"""
The upper bound for `bench.drain`: a plain loop around hand-written SQL that leaves the same record.

`python -m bench.harness.raw_loop URL [BYTES]` prints `ready`, waits for a line, and drains the table. It then prints
the number of jobs and their CPU time, as JSON. BYTES: the size of each job's result.
"""

from __future__ import annotations

import json
import sys
import time
from uuid import uuid4

import psycopg

from queueops.core.sql import load_sql

BATCH = 200


def result_of(size: int) -> dict[str, str]:
    """Return a result that has so many bytes as JSON."""
    return {"text": "r" * (size - len('{"text": ""}'))}


def drain(url: str, result_bytes: int = 0) -> None:
    with psycopg.connect(url) as connection, connection.cursor(binary=True) as cursor:
        claim, finish = (load_sql("bench.harness", name).encode() for name in ("claim", "finish"))
        result = json.dumps(result_of(result_bytes)) if result_bytes else None
        connection.prepare_threshold = 1
        for setting in ("jit = off", "plan_cache_mode = force_generic_plan", "enable_seqscan = off"):
            cursor.execute(f"SET {setting}")
        connection.commit()
        worker = str(uuid4())
        print("ready", flush=True)
        sys.stdin.readline()
        begun = time.process_time()
        done = 0
        owned: list[str] = []
        while True:
            # One commit ends a batch of jobs and claims the next.
            with connection.pipeline():
                if owned:
                    cursor.execute(finish, {"ids": owned, "result": result})
                rows = cursor.execute(claim, {"wanted": BATCH, "worker": worker}).fetchall()
                done += len(owned)
                owned = [row[0] for row in rows]
                connection.commit()
            if not owned:
                break
        print(json.dumps({"done": done, "cpu": time.process_time() - begun}), flush=True)


if __name__ == "__main__":
    drain(sys.argv[1], *map(int, sys.argv[2:]))
