"""The records of the limiter, of allowances and of money."""

from ratelimits.alerts.models import AlertRoute, AlertSilence, QuotaAlert
from ratelimits.limiter.models import CallTally, Charge, CostEstimate, DecideAnswer
from ratelimits.limits.models import Counter, Limit, LimitCallType, LimitOverride, LimitScope, Unit
from ratelimits.limits.resume_ramp import ResumeRamp
from ratelimits.money.models import Budget, BudgetHold, BudgetPeriod, BudgetScope, Price, Spend, Via
from ratelimits.tuning.models import CounterFeedback
from ratelimits.usage.models import (
    Allowance,
    AllowanceOverride,
    AllowancePolicy,
    AllowanceUnit,
    UsageEvent,
    UsageReservation,
    UsageTracking,
)

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
