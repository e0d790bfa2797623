"""The limiter's records."""

from .alert import AlertRoute, QuotaAlert
from .limit import CallType, Counter, Limit, LimitOverride, Unit
from .usage import CallTally, Charge, CostEstimate, DecideAnswer

__all__ = [
    "AlertRoute",
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
]
