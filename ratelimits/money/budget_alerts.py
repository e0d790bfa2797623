"""Alerts about budgets that are nearly spent, or spent."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from django.conf import settings
from django.db import transaction
from django.db.models import BigIntegerField, Case, ExpressionWrapper, F, Q, QuerySet, When

from queueops.core.clock import database_now
from ratelimits.alerts.alerts import Opening, open_all, resolve
from ratelimits.models import Budget, BudgetPeriod, QuotaAlert
from ratelimits.usage.allowance_alerts import SEVERITIES
from ratelimits.usage.models import LEVELS

from .amounts import shown
from .holds import end_of, recount_periods

PERIODS_AT_ONCE = 1_000
LONGEST = {Budget.Period.DAY: timedelta(days=1, hours=2), Budget.Period.MONTH: timedelta(days=32)}  # with clock changes
YOUNG = timedelta(minutes=2)  # a young period's sum may lack calls that were under way when the period began


@transaction.atomic
def _tell(after: int, now: datetime) -> tuple[int, int | None]:
    """Report some periods with ids above `after`. Return how many have another level now, and the last period's id."""
    untold = _untold(now).filter(pk__gt=after).select_related("budget").select_for_update(of=("self",))
    periods = list(untold.order_by("pk")[:PERIODS_AT_ONCE])
    openings, past, told = [], [], []
    for period in periods:
        end = end_of(period)
        level = 0 if end is not None and end <= now else level_of(period)
        if level < period.alerted_level:
            past.append(_subject(period))
        if level != period.alerted_level:
            period.alerted_level = level
            told.append(period)
            if level:
                openings.append(_opening(period, level))
    if past:
        resolve(QuotaAlert.objects.filter(kind=QuotaAlert.Kind.BUDGET, subject__in=past))
    if openings:
        open_all(openings)
    BudgetPeriod.objects.bulk_update(told, ["alerted_level"])
    return len(told), periods[-1].pk if periods else None


def _untold(now: datetime) -> QuerySet[BudgetPeriod]:
    """Select the periods whose level differs from the last reported level; a period that ended long ago has level 0."""
    hundredfold = ExpressionWrapper(F("spent") * 100, output_field=BigIntegerField())
    reached = Case(
        *(When(spent__gt=0, hundredfold__gte=F("budget__amount") * level, then=level) for level in reversed(LEVELS)),
        default=0,
    )
    goes_on = Q(budget__period=Budget.Period.TOTAL)
    for name, longest in LONGEST.items():
        goes_on |= Q(budget__period=name, starts_at__gt=now - longest)
    periods = BudgetPeriod.objects.annotate(hundredfold=hundredfold).annotate(reached=reached)
    return periods.filter((goes_on & ~Q(alerted_level=F("reached"))) | Q(~goes_on, alerted_level__gt=0))


def tend_budget_alerts() -> int:
    """
    Open, raise and resolve the alerts of budgets; each period has one alert, whose severity rises at 60, 80 and 100 %.

    Not to be called inside a transaction.

    Returns:
        How many periods have another level now.
    """
    if not BudgetPeriod.objects.exists():
        return 0
    now = datetime.fromtimestamp(database_now(), UTC)
    recount_periods(since=now - YOUNG)
    changed, last = _tell(0, now)
    while last is not None:
        more, last = _tell(last, now)
        changed += more
    return changed


def level_of(period: BudgetPeriod) -> int:
    """The highest of 60, 80 and 100 percent that the period's spend has reached; 0: none."""
    amount = period.budget.amount
    return max((level for level in LEVELS if period.spent and 100 * period.spent >= level * amount), default=0)


def subject_of(project_id: str, period_id: int) -> str:
    return f"{project_id}/budget/{period_id}"


def _subject(period: BudgetPeriod) -> str:
    return subject_of(period.project_id, period.pk)


def _opening(period: BudgetPeriod, level: int) -> Opening:
    budget, currency = period.budget, settings.QUEUEOPS.currency
    whose = f", user {period.key}" if period.key else ""
    percent = f"{100 * period.spent // budget.amount} %" if budget.amount else "all"
    message = (
        f"{period.project_id}: {percent} of budget {budget.name}{whose} are spent: {shown(period.spent, currency)} of "
        f"{shown(budget.amount, currency)}"
    )
    figures = {
        "project": period.project_id,
        "budget": budget.name,
        "user": period.key,
        "spent": period.spent,
        "held": period.held,
        "amount": budget.amount,
        "currency": currency,
    }
    return Opening(QuotaAlert.Kind.BUDGET, _subject(period), SEVERITIES[level], message, figures)
