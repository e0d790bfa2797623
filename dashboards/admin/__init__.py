"""Admin screens that join limits with jobs; importing them registers them."""

from . import (
    alert_routes,
    alerts,
    allowance_overrides,
    allowances,
    counters,
    limits,
    usage_events,
    usage_months,
    usage_reservations,
)

__all__ = [
    "alert_routes",
    "alerts",
    "allowance_overrides",
    "allowances",
    "counters",
    "limits",
    "usage_events",
    "usage_months",
    "usage_reservations",
]
