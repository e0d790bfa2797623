"""Writes events of the watched jobs at a steady rate, many in each commit, as executors do. Prints how many."""

from __future__ import annotations

import sys
import time

import psycopg

COMMITS_PER_SECOND = 100

WRITE = """
INSERT INTO jobs_jobevent (job_id, project_id, batch_id, event_type, message, progress_percent)
SELECT id, project_id, batch_id, 'progress', %(at)s, 50
  FROM (SELECT id, project_id, batch_id FROM jobs_job ORDER BY id OFFSET %(offset)s LIMIT %(count)s) AS job
"""


def write(url: str, *, per_second: int, seconds: float) -> int:
    count = per_second // COMMITS_PER_SECOND
    written = 0
    with psycopg.connect(url, autocommit=True) as connection:
        [jobs] = connection.execute("SELECT count(*) FROM jobs_job").fetchone() or (0,)
        begun = due = time.monotonic()
        while due < begun + seconds:
            time.sleep(max(0.0, due - time.monotonic()))
            due += 1 / COMMITS_PER_SECOND
            offset = written % max(1, jobs - count)
            parameters = {"at": repr(time.time()), "offset": offset, "count": count}
            written += connection.execute(WRITE, parameters).rowcount
    return written


if __name__ == "__main__":
    print(write(sys.argv[1], per_second=int(sys.argv[2]), seconds=float(sys.argv[3])))
