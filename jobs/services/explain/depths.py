"""How many jobs wait, by service, for metrics. Bounded reads."""

from __future__ import annotations

from typing import NamedTuple

from queueops.core.sql import run_sql

MAX_WAITING_COUNTED = 2000  # jobs of one service and state
MAX_SERVICES_COUNTED = 50


class Depth(NamedTuple):
    """Waiting jobs, counted up to MAX_WAITING_COUNTED for a service and state."""

    service: str
    state: str
    priority: str
    jobs: int


def waiting_depths() -> list[Depth]:
    """Count ready jobs, scheduled jobs and jobs that a limit holds, by service and priority."""
    rows = run_sql("jobs", "count_waiting", {"most": MAX_WAITING_COUNTED, "most_services": MAX_SERVICES_COUNTED})
    return [Depth(*row) for row in rows]
