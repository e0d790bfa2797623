"""Admin screens that join limits with jobs; importing them registers them."""

from . import alert_routes, alerts, counters, limits

__all__ = ["alert_routes", "alerts", "counters", "limits"]
