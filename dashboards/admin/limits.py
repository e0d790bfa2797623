"""Limits: how full each is, which jobs wait for it, and its figures to edit."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from django.contrib import admin
from django.http import HttpRequest, HttpResponse
from django.utils.html import format_html
from django.utils.safestring import SafeString

from queueops.core.values.numbers import numbered
from queueops.screens import formatting
from queueops.screens.admin import QueueInline, ServiceFormAdmin, without
from queueops.screens.attribute import TypedAttribute
from queueops.screens.columns import column
from queueops.screens.filters import Choice
from queueops.screens.verbs import actor_of, on_one
from ratelimits.limits import overrides
from ratelimits.limits.validation import KINDS, figure, key_example
from ratelimits.models import Counter, Limit, LimitOverride
from ratelimits.tuning import limits
from ratelimits.tuning.stated_caps import proposals_of

from .gauge_parts import (
    LimitStanding,
    cap_in_words,
    counted_in_words,
    counter_rows,
    gauge_bar,
    marks,
    standings,
    state_badge,
)
from .limit_form import LimitForm, OverrideForm
from .limit_page import simulation_rows, users_of
from .limit_verbs import DELETE

FIGURES: frozenset[str] = frozenset().union(*(algorithm.reads for algorithm in KINDS.values()))
COUNTERS_SHOWN = 20
MAX_OVERRIDES = 100
_standing = TypedAttribute[LimitStanding]("standing")
_proposals = TypedAttribute[list[Counter]]("proposals")


class LimitServiceFilter(Choice):
    title = "service"
    parameter_name = "service"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        services = Limit.objects.order_by("service").values_list("service", flat=True).distinct()
        return [(service, service) for service in services]


class OverrideInline(QueueInline):
    model = LimitOverride
    form = OverrideForm
    fields = ("key", "capacity", "refill_per_second", "ends_at", "note")
    max_num = MAX_OVERRIDES
    verbose_name_plural = "Other caps for single keys"

    def get_formset(self, request: HttpRequest, obj: Limit | None = None, **kwargs: Any) -> Any:
        formset = super().get_formset(request, obj, **kwargs)
        if obj is not None and "key" in formset.form.base_fields:
            formset.form.base_fields["key"].help_text = f"As the counter shows it, such as {key_example(obj)}."
        return formset


def _read_by(name: str) -> str:
    """
    Return the condition, in JavaScript, under which the chosen algorithm reads a figure. It is also true on a page
    where no algorithm can be chosen.
    """
    chosen = (f"algorithm == '{algorithm}'" for algorithm, made in KINDS.items() if name in made.reads)
    return " || ".join(("typeof algorithm == 'undefined'", *chosen))


@admin.register(Limit)
class LimitAdmin(ServiceFormAdmin):
    form = LimitForm
    inlines = (OverrideInline,)
    list_display = ("called", "counts", "cap", "fullest", "waiting", "clears", "unusual")
    sortable_by = ()
    list_display_links = ("called",)
    list_filter = (LimitServiceFilter,)
    list_filter_submit = True
    search_fields = ("name", "service")
    search_help_text = "A part of its name or service"
    change_form_before_template = "admin/ratelimits/limit/before_form.html"
    change_form_outer_before_template = "admin/ratelimits/limit/above_form.html"
    change_form_outer_after_template = "admin/ratelimits/limit/below_form.html"
    warn_unsaved_form = True
    is_deletable = False  # only the action DELETE deletes limits: it requires a reason, and locks the counters in order
    empty_title = "No limits yet."
    empty_hint = "Without one, calls go as fast as the workers can. Load the defaults of a service, or add your own."
    actions_detail = ("remove",)
    fieldsets = (
        (
            "What it counts",
            {
                "fields": (
                    ("name", "service"),
                    ("call_type", "scope"),
                    ("unit", "counts_cached"),
                    "reserves",
                    ("model", "per_model"),
                    ("project", "kind"),
                    ("enabled", "shadow"),
                )
            },
        ),
        (
            "How much",
            {
                "fields": (
                    ("algorithm", "provider_quota"),
                    ("capacity", "refill_per_second"),
                    ("window_seconds", "slack_seconds"),
                    ("reset_zone", "guard_seconds"),
                    "lease_seconds",
                    "headroom_percent",
                ),
                "description": "Only the figures that the algorithm reads are shown. Of a token bucket it is enough to"
                " state the provider's quota: empty figures are filled in so that every window keeps it.",
            },
        ),
        (
            "When the provider refuses, or the database is out of reach",
            {"fields": (("learns_caps", "fail_open"),), "classes": ("collapse",)},
        ),
        (
            "Alerts",
            {
                "fields": (
                    ("notice_percent", "warning_percent"),
                    "clears_late_seconds",
                ),
                "classes": ("collapse",),
            },
        ),
        ("Why", {"fields": ("note", "reason")}),
    )
    conditional_fields = {name: _read_by(name) for name in sorted(FIGURES)}

    class Media:
        css = {"all": ("dashboards/limits.css",)}

    remove = on_one(DELETE)

    def audit_targets(self, row: Limit) -> list[str]:
        return [f"limit {row.name}"]

    def prepare_rows(self, rows: list[Limit]) -> None:
        stands, proposals = standings(rows), proposals_of(rows)
        for limit in rows:
            _standing.set(limit, stands[limit.pk])
            _proposals.set(limit, proposals.get(limit.pk, []))

    def get_fieldsets(self, request: HttpRequest, obj: Limit | None = None) -> Sequence[Any]:
        parts = super().get_fieldsets(request, obj)
        if obj is None or self.may_save(request, obj):
            return parts
        return without(parts, FIGURES - KINDS[obj.algorithm].reads)

    def shown_of(self, request: HttpRequest, row: Limit) -> dict[str, Any]:
        return _page_of(row)

    def render_change_form(self, request: HttpRequest, context: dict[str, Any], **kwargs: Any) -> HttpResponse:
        form = context["adminform"].form
        simulation = getattr(form, "simulation", None)
        response: HttpResponse = super().render_change_form(
            request,
            {
                **context,
                "warnings": getattr(form, "warnings", []) if form.is_bound else [],
                "simulation": simulation,
                "simulation_calls": numbered(simulation.calls, "call was", "calls were") if simulation else "",
                "simulation_rows": simulation_rows(simulation) if simulation else [],
            },
            **kwargs,
        )
        return response

    def save_model(self, request: HttpRequest, obj: Limit, form: LimitForm, change: bool) -> None:  # noqa: FBT001 - Django's signature
        reason = form.cleaned_data.get("reason", "")
        if change:
            seen_at = form.stored.updated_at if form.stored and form.seen else None
            limits.update_limit(obj.pk, form.figures(), actor=actor_of(request), reason=reason, seen_at=seen_at)
        else:
            obj.pk = limits.create_limit(form.figures(), actor=actor_of(request), reason=reason).limit_id

    def save_formset(self, request: HttpRequest, form: LimitForm, formset: Any, change: bool) -> None:  # noqa: FBT001
        changed = formset.save(commit=False)
        actor, reason = actor_of(request), form.cleaned_data.get("reason", "")
        renamed = {one.instance.pk: one.initial["key"] for one in formset.initial_forms if "key" in one.changed_data}
        for gone in formset.deleted_objects:
            overrides.delete_override(gone.limit_id, renamed.get(gone.pk, gone.key), actor=actor, reason=reason)
        for one in changed:
            if one.pk in renamed:
                overrides.delete_override(form.instance.pk, renamed[one.pk], actor=actor, reason=reason)
            overrides.set_override(
                form.instance.pk,
                one.key,
                capacity=one.capacity,
                refill_per_second=one.refill_per_second,
                ends_at=one.ends_at,
                note=one.note,
                actor=actor,
                reason=reason,
            )

    @admin.display(description="limit")
    def called(self, limit: Limit) -> SafeString:
        state = "" if limit.enabled and not limit.shadow else state_badge(limit)
        return format_html(
            '<span class="qo-pile"><span>{} {}</span><span class="qo-muted">{}</span></span>',
            limit.name,
            state,
            limit.service or "any service",
        )

    counts = column("counts", counted_in_words)
    cap = column("cap", cap_in_words)

    @admin.display(description="fullest counter")
    def fullest(self, limit: Limit) -> SafeString | str:
        gauge = _standing.of(limit).fullest
        if gauge is None:
            return format_html('<span class="qo-muted">{}</span>', "nothing counted yet")
        key = "" if gauge.key == "*" else formatting.link("ratelimits_counter", gauge.counter_id, gauge.key)
        return format_html('<span class="qo-pile">{}{}</span>', gauge_bar(gauge), key)

    @admin.display(description="waiting")
    def waiting(self, limit: Limit) -> SafeString | str:
        standing = _standing.of(limit)
        if not standing.waiting:
            return formatting.NOTHING
        words = f"more than {standing.waiting:,}" if standing.more else f"{standing.waiting:,}"
        return format_html('<span><span class="qo-number">{}</span> jobs</span>', words)

    @admin.display(description="clears")
    def clears(self, limit: Limit) -> SafeString | str:
        return _standing.of(limit).clears

    @admin.display(description="")
    def unusual(self, limit: Limit) -> SafeString | str:
        gauge = _standing.of(limit).fullest
        found = marks(gauge) if gauge else SafeString("")
        proposals = _proposals.of(limit)
        if limit.proposed_reserves:
            found = format_html("{} {}", found, formatting.badge("blue", "lightbulb", "counted whole?"))
        if not proposals:
            return found
        said = figure(proposals[0].proposed_capacity or 0) if len(proposals) == 1 else f"{len(proposals)} other caps"
        return format_html("{} {}", found, formatting.badge("blue", "lightbulb", f"provider says {said}"))


def _page_of(limit: Limit) -> dict[str, Any]:
    counters = counter_rows(limit, most=COUNTERS_SHOWN)
    return {
        "subtitle": f"{cap_in_words(limit)}, {counted_in_words(limit)}",
        "limit": limit,
        "limit_badge": state_badge(limit),
        "counters": counters,
        "counters_are_many": len(counters) == COUNTERS_SHOWN,
        "proposals": [
            {
                "cap": figure(counter.proposed_capacity or 0),
                "counter": formatting.link("ratelimits_counter", counter.pk, counter.key),
                "at": formatting.ago(counter.proposed_at),
            }
            for counter in proposals_of([limit]).get(limit.pk, [])
        ],
        "prepared_at": formatting.ago(limit.proposed_at) if limit.proposed_at and limit.shadow else None,
        **users_of(limit),
    }
