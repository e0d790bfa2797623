"""Screens that join limits with the jobs behind them; importing them registers them."""

from . import alert_routes, counters, credential_pools, limits

__all__ = ["alert_routes", "counters", "credential_pools", "limits"]
