"""The addresses of the limiter's API, below /api/v1/."""

from django.urls import URLPattern, path

from .views import decide, limits

urlpatterns: list[URLPattern] = [
    path("ratelimits/decide/", decide.DecideCalls.as_view()),
    # Also without the slash: a redirect would lose the body. Left out of the OpenAPI document.
    path("ratelimits/decide", decide.DecideCalls.as_view(schema=None)),
    path("ratelimits/settle/", decide.SettleCall.as_view()),
    path("ratelimits/settle", decide.SettleCall.as_view(schema=None)),
    path("limits/", limits.LimitList.as_view()),
    path("limits/<int:pk>/", limits.LimitDetail.as_view()),
    path("limits/<int:pk>/counters/", limits.LimitCounters.as_view()),
    path("limits/<int:pk>/overrides/", limits.LimitOverrides.as_view()),
    path("limits/<int:pk>/simulate/", limits.SimulateLimit.as_view()),
]
