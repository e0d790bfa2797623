"""The limiter's records, and those of the allowances."""

from .alert import AlertRoute, QuotaAlert
from .allowance import Allowance, AllowanceOverride, UsageEvent, UsageReservation, UsageTracking
from .limit import CallType, Counter, Limit, LimitOverride, Unit
from .usage import CallTally, Charge, CostEstimate, DecideAnswer

__all__ = [
    "AlertRoute",
    "Allowance",
    "AllowanceOverride",
    "CallTally",
    "CallType",
    "Charge",
    "CostEstimate",
    "Counter",
    "DecideAnswer",
    "Limit",
    "LimitOverride",
    "QuotaAlert",
    "Unit",
    "UsageEvent",
    "UsageReservation",
    "UsageTracking",
]
