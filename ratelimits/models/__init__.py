"""The records of the limiter, of allowances and of money."""

from .alert import AlertRoute, AlertSilence, QuotaAlert
from .allowance import (
    Allowance,
    AllowanceOverride,
    AllowancePolicy,
    AllowanceUnit,
    UsageEvent,
    UsageReservation,
    UsageTracking,
)
from .budget import Budget, BudgetHold, BudgetPeriod, BudgetScope
from .feedback import CounterFeedback
from .limit import Counter, Limit, LimitCallType, LimitOverride, LimitScope, Unit
from .money import Price, Spend, Via
from .ramp import ResumeRamp
from .usage import CallTally, Charge, CostEstimate, DecideAnswer

__all__ = [
    "AlertRoute",
    "AlertSilence",
    "Allowance",
    "AllowanceOverride",
    "AllowancePolicy",
    "AllowanceUnit",
    "Budget",
    "BudgetHold",
    "BudgetPeriod",
    "BudgetScope",
    "CallTally",
    "Charge",
    "CostEstimate",
    "Counter",
    "CounterFeedback",
    "DecideAnswer",
    "Limit",
    "LimitCallType",
    "LimitOverride",
    "LimitScope",
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
