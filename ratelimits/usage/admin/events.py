"""Events of use, as they were reported."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from uuid import UUID

from django.contrib import admin
from django.db.models import QuerySet
from django.http import HttpRequest
from django.utils.html import format_html
from django.utils.safestring import SafeString

from queueops.screens import formatting
from queueops.screens.admin import QueueAdmin
from queueops.screens.columns import column, time_column
from queueops.screens.filters import ProjectFilter, UserFilter
from queueops.screens.paging import IdSearchMixin, NumberedListMixin, as_uuid
from queueops.screens.verbs import ReadOnlyMixin
from queueops.tenancy.models import Project
from ratelimits.models import UsageEvent, UsageReservation

from .filters import MarkFilter, MonthFilter
from .parts import amount, event_marks, month_link, tell_units


def _signed(event: UsageEvent) -> str:
    return f"{event.amount:+,} {event.unit}" if event.correction else amount(event.amount, event.unit)


@admin.register(UsageEvent)
class UsageEventAdmin(ReadOnlyMixin, IdSearchMixin, NumberedListMixin, QueueAdmin):
    list_display = ("event", "of_project", "of_month", "counted", "token_count", "by_service", "when", "marks")
    list_display_links = ("event",)
    list_filter = (ProjectFilter, UserFilter, MonthFilter, MarkFilter)
    list_filter_submit = True
    search_fields = ("pk",)
    search_help_text = "An event's id, in full, as whoever reported it chose it"
    empty_title = "No events yet."
    empty_hint = "What apps report of their calls appears here, each event once."
    fields = (
        "event_id", "of_project", "of_month", "counted", "token_count", "by_service", "marks", "when", "kept",
        "of_reservation",
    )  # fmt: skip
    readonly_fields = fields

    def prepare_rows(self, rows: list[UsageEvent]) -> None:
        tell_units(rows)

    def get_object(self, request: HttpRequest, object_id: str, from_field: str | None = None) -> UsageEvent | None:
        event: UsageEvent | None = super().get_object(request, object_id, from_field)
        if event is not None:
            self.prepare_rows([event])
        return event

    def rows_by_index(self, rows: QuerySet[Any], wanted: Mapping[str, str]) -> QuerySet[Any] | None:
        """Return the rows if project, user and month are all chosen, which an index finds; else None."""
        narrow = wanted.get("project") and as_uuid(wanted.get("user_id", "")) and wanted.get("month")
        return rows if narrow else None

    def with_id(self, rows: QuerySet[Any], identifier: UUID) -> QuerySet[Any]:
        # Name all projects, which are few: the index begins with the project. A separate query finds the ids: in one
        # query the planner might read the whole table.
        found = UsageEvent.objects.filter(project_id__in=Project.objects.values("pk"), event_id=identifier).order_by()
        return rows.filter(pk__in=list(found.values_list("pk", flat=True)))

    @admin.display(description="event")
    def event(self, event: UsageEvent) -> SafeString:
        return formatting.short_id(event.event_id)

    of_month = column("user and month", month_link)
    counted = column("counted", _signed)

    @admin.display(description="tokens")
    def token_count(self, event: UsageEvent) -> str:
        return f"{event.tokens:,}"

    @admin.display(description="service")
    def by_service(self, event: UsageEvent) -> str:
        return event.service or formatting.NOTHING

    when = time_column("when", "occurred_at")
    kept = time_column("reported", "created_at")
    marks = column("", event_marks)

    @admin.display(description="reservation")
    def of_reservation(self, event: UsageEvent) -> SafeString | str:
        if event.reservation is None:
            return formatting.NOTHING
        if not UsageReservation.objects.filter(pk=event.reservation, project_id=event.project_id).exists():
            return format_html("{}, which is not known", event.reservation)
        return formatting.link("ratelimits_usagereservation", event.reservation, event.reservation)
