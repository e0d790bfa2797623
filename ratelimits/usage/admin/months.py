"""Usage: what every user has used and reserved of the allowance, month by month."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, date, datetime
from typing import Any
from uuid import UUID

from django.contrib import admin
from django.db.models import QuerySet
from django.http import HttpRequest, QueryDict
from django.utils.html import format_html
from django.utils.safestring import SafeString

from queueops.screens.admin import PageAdmin
from queueops.screens.columns import column
from queueops.screens.filters import ProjectFilter
from queueops.screens.paging import IdSearchMixin, NumberedListMixin, filters_of
from queueops.screens.verbs import ReadOnlyMixin, on_one
from queueops.tenancy.models import Project
from queueops.tenancy.user_labels import labels_of
from ratelimits.models import UsageTracking
from ratelimits.usage.models import NEAR

from . import correction as usage_correction
from . import export as usage_export
from . import top as usage_top
from .filters import EVERY_MONTH, LevelFilter, ThisMonthFilter, month_wanted, months_offered, this_month
from .page import page_of
from .parts import amount, remaining_of, tell_units, usage_bar, usage_marks
from .verbs import REMOVE_QUOTA, SET_QUOTA

MONTHS_AT_HAND = 3
MAX_OF_A_USER = 1_000  # months that a search shows


@admin.register(UsageTracking)
class UsageTrackingAdmin(ReadOnlyMixin, IdSearchMixin, NumberedListMixin, PageAdmin):
    list_display = ("user", "of_project", "month", "used_of", "left")
    list_display_links = ("user",)
    list_filter = (ThisMonthFilter, ProjectFilter, LevelFilter)
    list_filter_submit = True
    list_before_template = "admin/ratelimits/usagetracking/tools.html"
    search_fields = ("pk",)
    search_help_text = "A user's id, in full: all months of that user"
    empty_title = "Nothing was used."
    empty_hint = "A user's month appears here with the first reservation or event. Allowances are set per project."
    actions_detail = ("correct", "set_quota", "remove_quota")

    class Media:
        css = {"all": ("dashboards/limits.css",)}

    correct = usage_correction.ACTION
    set_quota, remove_quota = on_one(SET_QUOTA), on_one(REMOVE_QUOTA)

    def audit_targets(self, row: UsageTracking) -> list[str]:
        return [f"usage {row.project_id}/{row.user_id} {row.month_year}"]

    @admin.display(description="user")
    def user(self, row: UsageTracking) -> SafeString:
        return format_html('{} <code class="qo-id">{}</code>', row.label, row.user_id)

    month = column("month", lambda row: row.month_year)

    @admin.display(description="used")
    def used_of(self, row: UsageTracking) -> SafeString:
        return format_html('<span class="qo-pile">{}{}</span>', usage_bar(row, row.unit), usage_marks(row, row.unit))

    @admin.display(description="remaining")
    def left(self, row: UsageTracking) -> SafeString:
        reserved = format_html('<span class="qo-muted">{} reserved</span>', f"{row.reserved:,}") if row.reserved else ""
        return format_html(
            '<span class="qo-pile"><span>{}</span>{}</span>', amount(remaining_of(row), row.unit), reserved
        )

    def prepare_rows(self, rows: list[UsageTracking]) -> None:
        tell_units(rows)
        labels = {
            (project, user): label
            for project in {row.project_id for row in rows}
            for user, label in labels_of(project, [row.user_id for row in rows if row.project_id == project]).items()
        }
        for row in rows:
            row.label = labels.get((row.project_id, row.user_id), "")

    def in_order(self, wanted: Mapping[str, str]) -> bool:
        return not wanted.get("level") and wanted.get("month") != EVERY_MONTH

    def window_source(self, wanted: Mapping[str, str]) -> QuerySet[Any]:
        month = wanted.get("month") or this_month()
        rows = UsageTracking.objects.filter(level__gte=NEAR) if wanted.get("level") else UsageTracking.objects.all()
        return rows if month == EVERY_MONTH else rows.filter(month_year=month)

    def time_of_key(self, key: int) -> datetime:
        nearest = UsageTracking.objects.filter(pk__gte=key).only("month_year").earliest("pk")
        return datetime.combine(date.fromisoformat(f"{nearest.month_year}-01"), datetime.min.time(), UTC)

    def with_id(self, rows: QuerySet[Any], identifier: UUID) -> QuerySet[Any]:
        # A separate query finds the ids: in one query with the page's order the planner might read the whole table.
        # Name all projects, which are few: the index begins with the project.
        months = UsageTracking.objects.filter(project_id__in=Project.objects.values("pk"), user_id=identifier)
        return rows.filter(pk__in=list(months.values_list("pk", flat=True)[:MAX_OF_A_USER]))

    def get_urls(self) -> list[Any]:
        return [
            self.page_at("top/", usage_top.top_users, "top"),
            self.page_at("export.csv", usage_export.export_matching, "csv"),
            *super().get_urls(),
        ]

    def shown_above(self, request: HttpRequest) -> dict[str, Any]:
        return {
            "query": filters_of(request),
            "month_chips": _month_chips(request),
            "may_export": request.user.has_perm(usage_export.PERMISSION),
        }

    def shown_of(self, request: HttpRequest, row: UsageTracking) -> dict[str, Any]:
        return page_of(row, request.user)


def _month_chips(request: HttpRequest) -> list[dict[str, Any]]:
    """Links to this month and earlier months, each keeping the other filters."""
    chosen = month_wanted(request)
    chips = []
    for month in dict.fromkeys([*months_offered()[:MONTHS_AT_HAND], *([chosen] if chosen else [])]):
        query = QueryDict(filters_of(request), mutable=True)
        query["month"] = month
        chips.append({"month": month, "chosen": month == chosen, "href": f"?{query.urlencode()}"})
    return chips
