"""The addresses of the limiter's API: below /api/v1/, and their aliases below /functions/."""

from django.urls import URLPattern, path

from queueops.rest.views import CallerView
from ratelimits.limiter.api import decide
from ratelimits.limits.api import limits
from ratelimits.money.api import budgets, spend
from ratelimits.usage.api import allowances, usage


def also_without_slash(address: str, view: type[CallerView]) -> list[URLPattern]:
    """Serve both spellings, as a redirect would lose the body. The OpenAPI document leaves out the second."""
    return [path(address, view.as_view()), path(address.removesuffix("/"), view.as_view(schema=None))]


urlpatterns: list[URLPattern] = [
    *also_without_slash("ratelimits/decide/", decide.DecideCalls),
    *also_without_slash("ratelimits/settle/", decide.SettleCall),
    *also_without_slash("usage/reserve/", usage.ReserveUsageView),
    *also_without_slash("usage/ingest/", usage.IngestUsageView),
    *also_without_slash("usage/cancel/", usage.CancelReservationView),
    *also_without_slash("usage/me/", usage.UserStanding),
    *also_without_slash("usage/events/", usage.UserEvents),
    *also_without_slash("usage/", usage.UserMonths),
    path("allowances/", allowances.AllowanceList.as_view()),
    path("allowances/<str:pk>/", allowances.AllowanceDetail.as_view()),
    path("spend/", spend.SpendReport.as_view()),
    path("budgets/", budgets.BudgetList.as_view()),
    path("budgets/<int:pk>/", budgets.BudgetDetail.as_view()),
    path("limits/", limits.LimitList.as_view()),
    path("limits/<int:pk>/", limits.LimitDetail.as_view()),
    path("limits/<int:pk>/counters/", limits.LimitCounters.as_view()),
    path("limits/<int:pk>/overrides/", limits.LimitOverrides.as_view()),
    path("limits/<int:pk>/simulate/", limits.SimulateLimit.as_view()),
]

ALIASES = {
    "reserve-usage": usage.ReserveUsageView,
    "ingest-usage": usage.IngestUsageView,
    "cancel-reservation": usage.CancelReservationView,
}
functions: list[URLPattern] = [
    path(f"{name}{end}", view.as_view(schema=None)) for name, view in ALIASES.items() for end in ("", "/")
]
