"""The limiter's records, and those of the allowances."""

from .alert import AlertRoute, AlertSilence, QuotaAlert
from .allowance import Allowance, AllowanceOverride, UsageEvent, UsageReservation, UsageTracking
from .budget import Budget, BudgetHold, BudgetPeriod
from .limit import Counter, Limit, LimitCallType, LimitOverride, Unit
from .money import Price, Spend, Via
from .ramp import ResumeRamp
from .usage import CallTally, Charge, CostEstimate, DecideAnswer

__all__ = [
    "AlertRoute",
    "AlertSilence",
    "Allowance",
    "AllowanceOverride",
    "Budget",
    "BudgetHold",
    "BudgetPeriod",
    "CallTally",
    "Charge",
    "CostEstimate",
    "Counter",
    "DecideAnswer",
    "Limit",
    "LimitCallType",
    "LimitOverride",
    "Price",
    "QuotaAlert",
    "ResumeRamp",
    "Spend",
    "Unit",
    "UsageEvent",
    "UsageReservation",
    "UsageTracking",
    "Via",
]
