"""The ledger: each call and what it cost."""

from __future__ import annotations

from datetime import datetime
from typing import Any
from uuid import UUID

from django.conf import settings
from django.contrib import admin
from django.db.models import QuerySet
from django.utils.html import format_html
from django.utils.safestring import SafeString

from queueops.screens import formatting
from queueops.screens.admin import QueueAdmin
from queueops.screens.columns import time_column
from queueops.screens.filters import BatchFilter, Choice, ProjectFilter, UserFilter
from queueops.screens.paging import IdSearchMixin, NumberedListMixin
from queueops.screens.verbs import ReadOnlyMixin
from ratelimits.models import Spend, Via
from ratelimits.money.amounts import shown

from . import report
from .pricing import ACTION


class SpendMarkFilter(Choice):
    title = "marked"
    parameter_name = "marked"
    choices_offered = (("unpriced", "without a price"), ("unknown", "cost not known"))
    conditions = {"unpriced": {"money": None}, "unknown": {"kind": Spend.Kind.UNKNOWN}}


@admin.register(Spend)
class SpendAdmin(ReadOnlyMixin, IdSearchMixin, NumberedListMixin, QueueAdmin):
    list_display = ("job", "of_project", "by_model", "used", "money_shown", "when")
    list_display_links = None
    sortable_by = ()
    list_filter = (ProjectFilter, UserFilter, BatchFilter, SpendMarkFilter)
    list_filter_submit = True
    list_before_template = "admin/ratelimits/spend/tools.html"
    search_fields = ("pk",)
    search_help_text = "A job's id, in full: all of its calls"
    empty_title = "Nothing was spent."
    empty_hint = "A call whose provider says what it used appears here, with what it cost by its price of that moment."
    actions_list = ("price_unpriced",)

    class Media:
        css = {"all": ("dashboards/limits.css",)}

    price_unpriced = ACTION

    def get_urls(self) -> list[Any]:
        return [
            self.page_at("report/", report.page, "report"),
            self.page_at("report/export.csv", report.export, "export"),
            *super().get_urls(),
        ]

    def time_of_key(self, key: int) -> datetime:
        moment: datetime = Spend.objects.filter(pk__gte=key).only("at").earliest("pk").at
        return moment

    def with_id(self, rows: QuerySet[Any], identifier: UUID) -> QuerySet[Any]:
        return rows.filter(job_id=identifier)

    @admin.display(description="job")
    def job(self, row: Spend) -> SafeString:
        return formatting.link("jobs_job", row.job_id, formatting.short_id(row.job_id))

    @admin.display(description="model")
    def by_model(self, row: Spend) -> SafeString:
        by = "" if row.via == Via.LIVE else f" {row.get_via_display()}"
        return format_html('{} <span class="qo-muted">{}{}</span>', row.model or formatting.NOTHING, row.provider, by)

    @admin.display(description="tokens")
    def used(self, row: Spend) -> SafeString:
        cached = (
            format_html(' <span class="qo-muted">{} cached</span>', f"{row.cached_tokens:,}")
            if row.cached_tokens
            else ""
        )
        return format_html("{} in{}, {} out", _count(row.input_tokens), cached, _count(row.output_tokens))

    @admin.display(description="cost")
    def money_shown(self, row: Spend) -> SafeString:
        money = shown(row.money, settings.QUEUEOPS.currency)
        if row.money is None:
            return formatting.badge("amber", "warning", money)
        unsure = formatting.badge("amber", "help", "at most: not known") if row.kind == Spend.Kind.UNKNOWN else ""
        return format_html('<span class="qo-number">{}</span> {}', money, unsure)

    when = time_column("when", "at")


def _count(tokens: int | None) -> str:
    return formatting.NOTHING if tokens is None else f"{tokens:,}"
