"""Screens that show limits together with the jobs that wait for them. Importing the modules registers the screens."""

from . import alert_routes, counters, credential_pools, limits

__all__ = ["alert_routes", "counters", "credential_pools", "limits"]
