"""Alerts, allowances, usage and money; importing them registers their screens."""

from . import alerts, allowance_overrides, allowances
from .money import budgets, ledger, prices
from .usage import events, months, reservations

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
