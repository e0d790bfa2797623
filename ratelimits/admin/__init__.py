"""Alerts, allowances and usage; importing them registers their screens."""

from . import alerts, allowance_overrides, allowances
from .usage import events, months, reservations

__all__ = ["alerts", "allowance_overrides", "allowances", "events", "months", "reservations"]
