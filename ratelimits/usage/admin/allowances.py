"""Allowances: what every user of a project may use in a month."""

from __future__ import annotations

from typing import Any

from django.contrib import admin, messages
from django.http import HttpRequest, HttpResponse
from django.urls import reverse
from django.utils.html import format_html
from django.utils.safestring import SafeString

from queueops.core.values.numbers import numbered
from queueops.screens import formatting
from queueops.screens.admin import ServiceFormAdmin
from queueops.screens.attribute import TypedAttribute
from queueops.screens.verbs import actor_of
from ratelimits.models import Allowance
from ratelimits.usage import allowances
from ratelimits.usage.reports import MAX_USERS_COUNTED, Users, users_of_allowances

from . import ledger_check
from .allowance_form import AllowanceForm
from .parts import amount, narrowed

_counted = TypedAttribute[Users]("counted")


@admin.register(Allowance)
class AllowanceAdmin(ServiceFormAdmin):
    form = AllowanceForm
    list_display = ("of_project", "quota_shown", "policy_shown", "zone", "users", "near", "over")
    sortable_by = ()
    list_display_links = ("of_project",)
    search_fields = ("project__id", "project__name")
    search_help_text = "A part of the project's id or name"
    change_form_before_template = "admin/ratelimits/allowance/before_form.html"
    change_form_outer_before_template = "admin/ratelimits/allowance/above_form.html"
    warn_unsaved_form = True
    fixed_fields = ("project",)
    is_deletable = False  # without an allowance its users' months would count nothing; a quota of 0 ends it
    empty_title = "No allowances yet."
    empty_hint = "With one, each user of a project may use so many requests or tokens a month, and no more is reserved."
    actions_list = ("check_ledger",)
    fieldsets = (
        ("For each user and month", {"fields": ("project", "unit", "quota", "time_zone")}),
        (
            "At the quota",
            {
                "fields": ("policy", "reservation_seconds"),
                "description": "Either way what was used is counted, also beyond the quota: the calls were made.",
            },
        ),
        ("Why", {"fields": ("reason",)}),
    )

    class Media:
        css = {"all": ("dashboards/limits.css",)}

    check_ledger = ledger_check.ACTION

    def audit_targets(self, row: Allowance) -> list[str]:
        return [f"allowance {row.project_id}"]

    def prepare_rows(self, rows: list[Allowance]) -> None:
        counted = users_of_allowances(rows)
        for row in rows:
            _counted.set(row, counted[row.pk])

    def get_urls(self) -> list[Any]:
        return [self.page_at("repair-ledger/", ledger_check.repair, "repair"), *super().get_urls()]

    def shown_of(self, request: HttpRequest, row: Allowance) -> dict[str, Any]:
        return _page_of(row)

    def render_change_form(self, request: HttpRequest, context: dict[str, Any], **kwargs: Any) -> HttpResponse:
        form = context["adminform"].form
        warnings = getattr(form, "warnings", []) if form.is_bound else []
        response: HttpResponse = super().render_change_form(request, {**context, "warnings": warnings}, **kwargs)
        return response

    def save_model(self, request: HttpRequest, obj: Allowance, form: AllowanceForm, change: bool) -> None:  # noqa: FBT001 - Django's signature
        saved = allowances.set_allowance(
            obj.pk, **form.figures(), actor=actor_of(request), reason=form.cleaned_data.get("reason", "")
        )
        if saved.months:
            one = saved.months == 1
            months = "1 month of a user has" if one else f"{saved.months:,} months of users have"
            messages.info(request, f"{months} another quota now.")

    @admin.display(description="for each user and month")
    def quota_shown(self, allowance: Allowance) -> str:
        return amount(allowance.quota, allowance.unit)

    @admin.display(description="at the quota")
    def policy_shown(self, allowance: Allowance) -> SafeString:
        if allowance.policy == Allowance.Policy.STRICT:
            return formatting.badge("green", "block", "strict")
        return formatting.badge("blue", "trending_up", "records overage")

    @admin.display(description="month")
    def zone(self, allowance: Allowance) -> SafeString:
        return format_html('{} <span class="qo-muted">{}</span>', _counted.of(allowance).month, allowance.time_zone)

    @admin.display(description="users")
    def users(self, allowance: Allowance) -> SafeString | str:
        counted = _counted.of(allowance)
        return _link(allowance, counted, users_in_words(counted)) if counted.users else formatting.NOTHING

    @admin.display(description="near the quota")
    def near(self, allowance: Allowance) -> SafeString | str:
        counted = _counted.of(allowance)
        return _link(allowance, counted, f"{counted.near:,}", level="near") if counted.near else formatting.NOTHING

    @admin.display(description="over it")
    def over(self, allowance: Allowance) -> SafeString | str:
        counted = _counted.of(allowance)
        return _link(allowance, counted, f"{counted.over:,}", level="over") if counted.over else formatting.NOTHING


def users_in_words(counted: Users) -> str:
    return f"more than {MAX_USERS_COUNTED:,}" if counted.users > MAX_USERS_COUNTED else f"{counted.users:,}"


def _link(allowance: Allowance, counted: Users, words: str, **filters: str) -> SafeString:
    href = narrowed("ratelimits_usagetracking", project=allowance.pk, month=counted.month, **filters)
    return format_html('<a class="qo-link" href="{}">{}</a>', href, words)


def _page_of(allowance: Allowance) -> dict[str, Any]:
    counted = users_of_allowances([allowance])[allowance.pk]
    overrides = allowance.project.allowance_overrides.count()
    return {
        "subtitle": f"{amount(allowance.quota, allowance.unit)} for each user and month",
        "allowance": allowance,
        "month": counted.month,
        "figures": [
            (label, _link(allowance, counted, words, **filters))
            for label, words, filters in (
                ("Users", users_in_words(counted), {}),
                ("Near the quota", f"{counted.near:,}", {"level": "near"}),
                ("Over it", f"{counted.over:,}", {"level": "over"}),
            )
        ],
        "overrides": numbered(overrides, "user"),
        "overrides_href": narrowed("ratelimits_allowanceoverride", project=allowance.pk),
        "top_href": f"{reverse('admin:ratelimits_usagetracking_top')}?project={allowance.pk}&month={counted.month}",
    }
