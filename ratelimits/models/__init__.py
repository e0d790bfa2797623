"""The limiter's records, and those of the allowances."""

from .alert import AlertRoute, AlertSilence, QuotaAlert
from .allowance import Allowance, AllowanceOverride, UsageEvent, UsageReservation, UsageTracking
from .limit import Counter, Limit, LimitCallType, LimitOverride, Unit
from .ramp import ResumeRamp
from .usage import CallTally, Charge, CostEstimate, DecideAnswer

__all__ = [
    "AlertRoute",
    "AlertSilence",
    "Allowance",
    "AllowanceOverride",
    "CallTally",
    "Charge",
    "CostEstimate",
    "Counter",
    "DecideAnswer",
    "Limit",
    "LimitCallType",
    "LimitOverride",
    "QuotaAlert",
    "ResumeRamp",
    "Unit",
    "UsageEvent",
    "UsageReservation",
    "UsageTracking",
]
