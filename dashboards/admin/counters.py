"""Counters: each is one key of a limit; how full it is, who used it, and which jobs wait for it."""

from __future__ import annotations

from typing import Any

from django.contrib import admin
from django.db.models import QuerySet
from django.http import HttpRequest
from django.utils.html import format_html
from django.utils.safestring import SafeString

from jobs.services.explain.queues import clears_at, queue_of, queues_behind
from queueops.screens import formatting
from queueops.screens.admin import PageAdmin
from queueops.screens.attribute import TypedAttribute
from queueops.screens.columns import column, time_column
from queueops.screens.filters import Choice
from queueops.screens.formatting import list_of
from queueops.screens.one_page import OnePage
from queueops.screens.verbs import ReadOnlyMixin, on_one, on_selected
from ratelimits.limiter.view.gauges import CounterGauge, gauges
from ratelimits.limits.catalogue import rules_of
from ratelimits.limits.validation import figure
from ratelimits.models import Counter, CounterFeedback, Limit
from ratelimits.subjects import counter_id

from .gauge_parts import cap_in_words, gauge_bar, marks
from .limit_page import users_of
from .limit_verbs import ACCEPT, CLEAR, COOL_DOWN, DECLINE, END_OVERRIDE, OVERRIDE

MAX_REFUSALS_SHOWN = 20
_gauge = TypedAttribute[CounterGauge]("gauge")


class LimitFilter(Choice):
    title = "limit"
    parameter_name = "limit"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        return [(str(pk), name) for pk, name in Limit.objects.values_list("pk", "name")]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Counter]) -> QuerySet[Counter]:
        chosen = self.value() or ""
        return queryset.filter(limit_id=int(chosen)) if chosen.isdecimal() and len(chosen) < 10 else queryset  # noqa: PLR2004 - an integer's digits


@admin.register(Counter)
class CounterAdmin(ReadOnlyMixin, PageAdmin):
    list_display = ("named", "of_limit", "gauge", "unusual", "changed")
    sortable_by = ()
    list_display_links = ("named",)
    list_filter = (LimitFilter,)
    list_filter_submit = True
    search_fields = ("key",)
    search_help_text = "A key or a part of one, such as project:acme"
    empty_title = "Nothing is counted yet."
    empty_hint = "A counter appears with the first call that a limit counts, and goes when it has been idle for long."
    actions = ("clear_selected", "cool_down_selected")
    actions_detail = ("accept", "decline", "override", "end_override", "clear", "cool_down")

    class Media:
        css = {"all": ("dashboards/limits.css",)}

    clear_selected, clear = on_selected(CLEAR), on_one(CLEAR)
    cool_down_selected, cool_down = on_selected(COOL_DOWN), on_one(COOL_DOWN)
    accept, decline = on_one(ACCEPT), on_one(DECLINE)
    override, end_override = on_one(OVERRIDE), on_one(END_OVERRIDE)

    def get_changelist(self, request: HttpRequest, **kwargs: Any) -> type[OnePage]:
        return OnePage

    def prepare_rows(self, rows: list[Counter]) -> None:
        read = {gauge.counter_id: gauge for gauge in gauges(counter_ids=[one.pk for one in rows])}
        for counter in rows:
            _gauge.set(counter, read[counter.pk])

    def get_queryset(self, request: HttpRequest) -> QuerySet[Counter]:
        # The join leaves out counters that decisions under way stored after their limit was deleted.
        return Counter.objects.select_related("limit").order_by("pk")

    def get_search_results(
        self, request: HttpRequest, queryset: QuerySet[Counter], search_term: str
    ) -> tuple[QuerySet[Counter], bool]:
        term = search_term.strip().replace("\0", "")
        if not term:
            return queryset, False
        exact = queryset.filter(
            pk__in=[term, *(counter_id(pk, term) for pk in Limit.objects.values_list("pk", flat=True))]
        )
        return (exact if exact.exists() else queryset.filter(key__icontains=term)), False

    def shown_of(self, request: HttpRequest, row: Counter) -> dict[str, Any]:
        return _page_of(row)

    named = column("key", lambda counter: counter.key)

    @admin.display(description="limit")
    def of_limit(self, counter: Counter) -> SafeString:
        return formatting.link("ratelimits_limit", counter.limit_id, counter.limit.name)

    @admin.display(description="used")
    def gauge(self, counter: Counter) -> SafeString:
        return gauge_bar(_gauge.of(counter))

    @admin.display(description="")
    def unusual(self, counter: Counter) -> SafeString:
        return marks(_gauge.of(counter))

    changed = time_column("changed", "updated_at")


def _proposed(gauge: CounterGauge) -> SafeString | None:
    if gauge.proposed_capacity is None:
        return None
    return format_html("{}, read from a refusal {}", figure(gauge.proposed_capacity), formatting.ago(gauge.proposed_at))


def _own_cap(gauge: CounterGauge, limit: Limit) -> SafeString | str | None:
    cap = figure(gauge.capacity)
    if gauge.override_ends_at is None:
        return cap if gauge.capacity != limit.capacity else None
    end = f"{gauge.override_ends_at:%Y-%m-%d %H:%M} UTC"
    return format_html("{} until {}, and then what it was before; {}", cap, end, formatting.ago(gauge.override_ends_at))


def _page_of(counter: Counter) -> dict[str, Any]:
    limit = counter.limit
    rule = rules_of([limit])[0]
    [gauge] = gauges(counter_ids=[counter.pk])
    queue = queue_of(gauge, queues_behind([rule])[rule.id])
    return {
        "title": counter.key,
        "subtitle": limit.name,
        "gauge": gauge_bar(gauge),
        "marks": marks(gauge),
        "facts": list_of(
            (
                ("Limit", formatting.link("ratelimits_limit", limit.pk, limit.name)),
                ("The limit's cap", cap_in_words(limit)),
                ("Its own cap", _own_cap(gauge, limit)),
                ("The provider says its cap is", _proposed(gauge)),
                ("May go now", figure(round(gauge.available, 3))),
                ("Cooled down because", gauge.blocked_reason),
                ("Slowed to", f"{gauge.pressure:.0%} of the cap" if gauge.pressure < 1 else None),
                ("Paced by the ramp", f"{gauge.share:.0%} of the cap" if gauge.share < 1 else None),
                ("Would have held, were it no shadow", f"{gauge.shadow_denials:,}" if gauge.shadow else None),
                ("Last changed", formatting.ago(gauge.updated_at)),
            )
        ),
        "queue": queue,
        "refusals": [
            (formatting.ago(one.at), one.reason, one.call, f"{one.pressure:.0%}", formatting.ago(one.blocked_until))
            for one in CounterFeedback.objects.filter(counter=counter.pk).order_by("-pk")[:MAX_REFUSALS_SHOWN]
        ],
        "clears": formatting.ago(clears_at(queue, gauge)),
        **users_of(limit, counter.key),
    }
