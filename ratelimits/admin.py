"""Imports the screens of alerts, allowances, usage and money, which registers them."""

from ratelimits.alerts.admin import alerts
from ratelimits.money.admin import budgets, ledger, prices
from ratelimits.usage.admin import allowance_overrides, allowances, events, months, reservations

__all__ = [
    "alerts",
    "allowance_overrides",
    "allowances",
    "budgets",
    "events",
    "ledger",
    "months",
    "prices",
    "reservations",
]
