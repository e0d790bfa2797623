"""The log summed up now: what the house-keeping does within seconds."""

from __future__ import annotations

from django.db import connection

from jobs.features.flow import flow
from jobs.models import FlowCursor
from tests.support.processes import wait_for


def count_all() -> None:
    """Count what is logged; waits for transactions of other databases on the server, which hold the horizon back."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT coalesce(pg_sequence_last_value('jobs_jobevent_id'), 0)")
        [drawn] = cursor.fetchone()

    def is_counted() -> bool:
        flow.sum_up(settle_seconds=0)
        return FlowCursor.objects.filter(pk=flow.EVENT_LOG, counted__gte=drawn).exists()

    wait_for(is_counted, seconds=60, what="the log's end to be counted")
