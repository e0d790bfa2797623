"""Overrides that end: an alert warns beforehand if work needs the override, which is removed once it is over."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

from queueops.core.clock import Now, database_now
from ratelimits.alerts.alerts import Opening, reconcile
from ratelimits.limiter.view.gauges import gauge_of
from ratelimits.limits.catalogue import Override, Rule, after_end, rules_of
from ratelimits.limits.overrides import end_due
from ratelimits.limits.validation import NOUNS, figure
from ratelimits.models import Counter, LimitOverride, QuotaAlert
from ratelimits.subjects import counter_id

TOLD_BEFORE = timedelta(minutes=15)
MAX_ENDING_WATCHED = 200
HOUSE_KEEPING = "system"
WHOLE = 100.0


def watch_overrides() -> None:
    """End overrides that are due. Warn of an override that ends soon if its key uses more than it may afterwards."""
    if not LimitOverride.objects.filter(ends_at__isnull=False).exists():
        reconcile(QuotaAlert.Kind.OVERRIDE, [])
        return
    end_due(actor=HOUSE_KEEPING)
    soon = LimitOverride.objects.filter(ends_at__lte=Now() + TOLD_BEFORE, limit__enabled=True, limit__shadow=False)
    found = [
        opening
        for row in soon.select_related("limit").order_by("ends_at")[:MAX_ENDING_WATCHED]
        if (opening := _of(row))
    ]
    reconcile(QuotaAlert.Kind.OVERRIDE, found)


def _of(row: LimitOverride) -> Opening | None:
    counter = Counter.objects.filter(pk=counter_id(row.limit_id, row.key)).first()
    if counter is None or row.ends_at is None:
        return None
    then = gauge_of(counter, _after(rules_of([row.limit])[0], row), database_now())
    if then.percent <= WHOLE:
        return None
    noun = NOUNS[then.unit]
    return Opening(
        QuotaAlert.Kind.OVERRIDE,
        counter.pk,
        QuotaAlert.Severity.WARNING,
        f"{row.limit}: the override of {row.key} ends at {row.ends_at:%H:%M} UTC, and {figure(round(then.used, 1))}"
        f" {noun} lean on it; {figure(then.capacity)} hold from then on",
        {"ends_at": str(row.ends_at), "capacity": row.capacity, "used": then.used, "capacity_then": then.capacity},
        limit_id=row.limit_id,
    )


def _after(rule: Rule, row: LimitOverride) -> Rule:
    """The rule as it will be after an override's end."""
    others = {key: own for key, own in rule.overrides.items() if key != row.key}
    if (then := after_end(row)) is not None:
        others[row.key] = Override(then.capacity, then.refill_per_second)
    return replace(rule, overrides=others, _made={})
