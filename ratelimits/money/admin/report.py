"""A report of the spend of some days, by project, user, model, batch or day; as a page and as a file."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date, timedelta
from typing import Any, cast

from django import forms
from django.conf import settings
from django.core.exceptions import PermissionDenied
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse, StreamingHttpResponse
from django.urls import reverse
from django.utils import timezone
from django.utils.dateparse import parse_date
from django.utils.http import urlencode

from queueops.audit import trail
from queueops.core.values.csv_lines import csv_line
from queueops.core.values.numbers import numbered
from queueops.core.web import downloads
from queueops.screens.forms import ProjectField, search_projects
from queueops.screens.verbs import actor_of, show_page
from queueops.tenancy.user_labels import in_words
from ratelimits.models import Spend, Via
from ratelimits.money.amounts import MICRO, shown
from ratelimits.money.reports import (
    GROUPINGS,
    MAX_GROUPS,
    MAX_REPORT_DAYS,
    OTHERS,
    Grouping,
    SpendGroup,
    SpendSum,
    grouped,
    spent_between,
    total,
)
from ratelimits.usage.admin.charts import chart_of_spend

EXPORT = "ratelimits.export_spend"
DAYS_AT_FIRST = 30
YEARS = (1970, 9998)  # days can be added to and subtracted from dates in these years
EXPLAINS = {
    "key": "Who submitted the jobs: a key, a person or a user's token.",
    "credential": "What the jobs showed their provider last. A pool's jobs have the credential that they used.",
}
COLUMNS = (
    "project", "provider", "model", "way", "calls", "money", "currency", "calls_without_price", "calls_not_known",
    "input_tokens", "cached_tokens", "output_tokens",
)  # fmt: skip


class SpendReportForm(forms.Form):
    project = ProjectField(required=False, empty_label="all")

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        search_projects(self)


@dataclass(frozen=True, slots=True)
class _Asked:
    first: date
    last: date
    by: str
    project: str

    @property
    def query(self) -> str:
        return urlencode({"from": str(self.first), "to": str(self.last), "by": self.by, "project": self.project})

    def rows(self) -> QuerySet[Spend]:
        rows = spent_between(self.first, self.last)
        return rows.filter(project_id=self.project) if self.project else rows


def page(model_admin: Any, request: HttpRequest) -> HttpResponse:
    if not model_admin.has_view_permission(request):
        raise PermissionDenied
    asked = _asked(request)
    rows = asked.rows()
    looked_at, days, whole = _groups(rows, asked.by), grouped(rows, "day"), total(rows)
    groups = looked_at or []
    called = in_words([one.key for one in groups], project_id=asked.project) if asked.by == "user" else {}
    dearest = max((one.sum.money for one in groups), default=0) or 1
    context = {
        "title": "What was spent",
        "asked": asked,
        "choose": SpendReportForm(initial={"project": asked.project}),
        "groupings": (*GROUPINGS, *OTHERS),
        "too_many": looked_at is None,
        "explains": EXPLAINS.get(asked.by, ""),
        "sum": _money(whole.money),
        "calls": numbered(whole.calls, "call"),
        "unpriced": numbered(whole.unpriced, "call") if whole.unpriced else "",
        "unknown": f"{numbered(whole.unknown, 'call')} ({_money(whole.unknown_money)})" if whole.unknown else "",
        "unpriced_href": f"{reverse('admin:ratelimits_spend_changelist')}?marked=unpriced",
        "chart": chart_of_spend(_every_day(days, asked), _money) if days else None,
        "groups": [
            {
                "name": called.get(one.key, one.key) or "none",
                "way": Via(one.via).label if one.via not in ("", Via.LIVE) else "",
                "money": "no price" if one.sum.unpriced == one.sum.calls else _money(one.sum.money),
                "calls": numbered(one.sum.calls, "call"),
                "percent": 100 * one.sum.money / dearest,
            }
            for one in groups
        ],
        "partial": len(groups) == MAX_GROUPS,
        "most_groups": f"{MAX_GROUPS:,}",
        "list_href": reverse("admin:ratelimits_spend_changelist"),
        "export_href": f"{reverse('admin:ratelimits_spend_export')}?{asked.query}",
        "may_export": request.user.has_perm(EXPORT),
    }
    return show_page(model_admin, request, "admin/ratelimits/spend/report.html", context)


def export(model_admin: Any, request: HttpRequest) -> StreamingHttpResponse:
    """Export the same days as CSV, by day and model; the audit trail records it."""
    if not (model_admin.has_view_permission(request) and request.user.has_perm(EXPORT)):
        raise PermissionDenied
    asked = _asked(request)
    trail.record(
        actor=actor_of(request),
        action="export_spend",
        target="spend as csv",
        after={"filter": asked.query},
        moved=0,
        project_id=asked.project,
    )
    name = f"spend-{asked.first}-{asked.last}.csv"
    return downloads.export(request, _lines(asked), "text/csv; charset=utf-8", name)


def _lines(asked: _Asked) -> Iterator[str]:
    """Yield a header, then a line for each day, project and model."""
    yield csv_line(("day", *COLUMNS))
    day = asked.first
    while day <= asked.last:
        of_day = spent_between(day, day)
        projects = [asked.project] if asked.project else [one.key for one in grouped(of_day, "project")]
        for project in projects:
            for one in grouped(of_day.filter(project_id=project), "model"):
                yield csv_line(
                    (
                        day, project, one.provider, one.model, one.via, one.sum.calls, f"{one.sum.money / MICRO:.6f}",
                        settings.QUEUEOPS.currency, one.sum.unpriced, one.sum.unknown, one.sum.input_tokens,
                        one.sum.cached_tokens, one.sum.output_tokens,
                    )
                )  # fmt: skip
        day += timedelta(days=1)


def _asked(request: HttpRequest) -> _Asked:
    """Read the parameters of the address; a wrong parameter counts as left out."""
    last = _day(request.GET.get("to", "")) or timezone.now().date()
    first = _day(request.GET.get("from", "")) or last - timedelta(days=DAYS_AT_FIRST - 1)
    first = max(min(first, last), last - timedelta(days=MAX_REPORT_DAYS))
    by = request.GET.get("by", "model")
    return _Asked(first, last, by if by in (*GROUPINGS, *OTHERS) else "model", request.GET.get("project", ""))


def _groups(rows: QuerySet[Spend], by: str) -> list[SpendGroup] | None:
    return OTHERS[by](rows) if by in OTHERS else grouped(rows, cast("Grouping", by))


def _day(text: str) -> date | None:
    try:
        day = parse_date(text)
    except ValueError:
        return None
    return day if day is not None and YEARS[0] <= day.year <= YEARS[1] else None


def _every_day(days: list[SpendGroup], asked: _Asked) -> list[SpendGroup]:
    found = {one.key: one for one in days}
    count = (asked.last - asked.first).days + 1
    names = [str(asked.first + timedelta(days=place)) for place in range(count)]
    return [found.get(name, SpendGroup(name, SpendSum())) for name in names]


def _money(micro: int) -> str:
    return shown(micro, settings.QUEUEOPS.currency)
