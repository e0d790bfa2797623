"""The operators' dashboard: the page, and the data it pulls."""

from __future__ import annotations

from functools import partial

from django.http import HttpRequest, HttpResponse, JsonResponse
from django.shortcuts import render
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_safe

from dashboards.live.events import EventFilter
from dashboards.services.charts import SPAN_WORDS, SPANS, charts
from dashboards.services.feed import newest_events
from dashboards.services.ops import ops_snapshot
from dashboards.services.shared.wire import shown_states
from dashboards.services.top_users import users_of_limits
from jobs.services.explain.event_log import log_cursor
from queueops.core.errors import error_body
from queueops.core.web.read_your_writes import reader_for

from .access import may, operators_data, operators_page

STEERING = (
    "jobs.pause_work",
    "jobs.cancel_job",
    "ratelimits.acknowledge_alert",
    "ratelimits.change_limit",
)


@never_cache
@require_safe
@operators_page
def dashboard(request: HttpRequest) -> HttpResponse:
    """Return the page without data. Its scripts fill it, first from /live/ops.json."""
    return render(
        request,
        "dashboards/ops.html",
        {"may": may(request, *STEERING), "states": shown_states(), "spans": SPAN_WORDS},
    )


@never_cache
@require_safe
@operators_data()
def ops_data(request: HttpRequest) -> HttpResponse:
    """Return what `/ws/v1/ops` sends, for people whose socket fails: the snapshot with its cursor."""
    cursor = log_cursor()
    data = ops_snapshot()
    return JsonResponse({"type": "snapshot", **cursor.answer(), "at": data["at"], "data": data})


@never_cache
@require_safe
@operators_data()
def charts_data(request: HttpRequest) -> HttpResponse:
    span = request.GET.get("span", "")
    if span not in SPANS:
        known = ", ".join(SPANS)
        return JsonResponse(error_body("unknown_span", f"Charts go over one of: {known}."), status=400)
    return JsonResponse(reader_for(request)(partial(charts, span)))


@never_cache
@require_safe
@operators_data()
def users_data(request: HttpRequest) -> HttpResponse:
    return JsonResponse({"limits": users_of_limits()})


@never_cache
@require_safe
@operators_data()
def feed_data(request: HttpRequest) -> HttpResponse:
    """Return the newest events that fit `project`, `service` and `state`."""
    try:
        wanted = EventFilter.of(request.GET.dict())
    except ValueError as wrong:
        return JsonResponse(error_body("invalid_filter", str(wrong)), status=400)
    return JsonResponse({"feed": newest_events(project=wanted.project, service=wanted.service, state=wanted.state)})
