"""Admin screens that join limits with jobs; importing them registers them."""

from . import alert_routes, alerts

__all__ = ["alert_routes", "alerts"]
