"""
Moves unfinished jobs to the right pools after the rules of the pools have changed.

A job gets its pool when it is inserted. After a change all unfinished jobs are looked through twice, part by part. The
second pass begins once every transaction has ended that may have inserted jobs by the old rules.
"""

from __future__ import annotations

import time
import uuid

from django.db import connection, transaction

from jobs.models import PoolSweep
from queueops.core.clock import with_clocks
from queueops.core.notify import Channel, notify
from queueops.core.sql import run_sql

LOOKED_AT_ONCE = 5000  # jobs of one statement, which locks those that it moves
SWEEP_SECONDS = 0.3  # how much of each second of house-keeping a sweep may take
PASSES = 2
# A transaction that has read the old rules gets its id only with its first write: the second pass waits this long.
UNDER_WAY_SECONDS = 5.0

SETTLED = """
SELECT pg_snapshot_xmin(pg_current_snapshot())::text::bigint > xid
       AND {{now}} > changed_at + %s * interval '1 second'
       OR {{now}} > changed_at + interval '1 day'  -- another server's ids, where a dump was restored
  FROM jobs_poolsweep
"""


def follow_pools() -> int:
    """
    Move jobs to the pools that the rules name now, as many as time allows; does nothing once all have followed.

    Returns:
        How many were moved.
    """
    moved, until = 0, time.monotonic() + SWEEP_SECONDS
    while time.monotonic() < until:
        part = _follow_part()
        if part is None:
            break
        moved += part
    if moved:
        notify(Channel.READY)
    return moved


@transaction.atomic
def _follow_part() -> int | None:
    """
    Move the jobs of the next part and return how many; None: there is nothing to do now.

    A change of the rules waits for this part, and starts the passes anew.
    """
    sweep = PoolSweep.objects.select_for_update().filter(passes__lt=PASSES).first()
    if sweep is None or (sweep.passes == PASSES - 1 and sweep.after.int == 0 and not _is_settled()):
        return None
    [(last, moved)] = run_sql("jobs", "assign_pools", {"after": sweep.after, "most": LOOKED_AT_ONCE})
    if last is None:
        sweep.passes += 1
    sweep.after = last or uuid.UUID(int=0)
    sweep.save(update_fields=["passes", "after"])
    return int(moved)


def _is_settled() -> bool:
    with connection.cursor() as cursor:
        cursor.execute(with_clocks(SETTLED), [UNDER_WAY_SECONDS])
        return bool((cursor.fetchone() or [False])[0])
