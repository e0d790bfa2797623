"""Exports users' months as a file."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

from django.core.exceptions import PermissionDenied
from django.db.models import QuerySet
from django.http import HttpRequest, StreamingHttpResponse
from django.utils import timezone

from queueops.audit import trail
from queueops.core.postgres.replica import RowReader
from queueops.core.values.csv_lines import csv_line
from queueops.core.web import downloads
from queueops.core.web.read_your_writes import reader_for
from queueops.screens.paging import filters_of
from queueops.screens.verbs import actor_of
from ratelimits.models import UsageTracking

from .parts import remaining_of, units_of

PERMISSION = "ratelimits.export_usage"
ROWS_AT_ONCE = 1_000  # rows in memory at once
COLUMNS = ("project", "user_id", "month", "unit", "quota", "used", "reserved", "remaining", "overage")


def export_matching(model_admin: Any, request: HttpRequest) -> StreamingHttpResponse:
    """Export the months that the list's address selects as CSV; the audit trail records it."""
    if not request.user.has_perm(PERMISSION):
        raise PermissionDenied
    rows = model_admin.get_changelist_instance(request).queryset
    trail.record(
        actor=actor_of(request),
        action="export_usage",
        target="usage as csv",
        after={"filter": filters_of(request)},
        moved=0,
        project_id=request.GET.get("project", ""),
    )
    name = f"usage-{timezone.now():%Y%m%d-%H%M%S}.csv"
    return downloads.export(request, lines(rows, reader_for(request)), "text/csv; charset=utf-8", name)


def lines(rows: QuerySet[UsageTracking], reader: RowReader) -> Iterator[str]:
    """Yield a header, then one line for each month, page by page in the order of ids. No cell can act as a formula."""
    yield csv_line(COLUMNS)
    rest = ordered = rows.order_by("pk")
    page: list[UsageTracking]
    while page := reader(partial(list, rest[:ROWS_AT_ONCE])):
        units = units_of(row.project_id for row in page)
        for row in page:
            yield csv_line(
                (
                    row.project_id,
                    row.user_id,
                    row.month_year,
                    units[row.project_id],
                    row.quota,
                    row.used,
                    row.reserved,
                    remaining_of(row),
                    row.overage,
                )
            )
        rest = ordered.filter(pk__gt=page[-1].pk)
