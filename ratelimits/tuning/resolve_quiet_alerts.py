"""Resolves alerts of counters that nobody uses any more: no decision comes that would resolve them."""

from __future__ import annotations

from collections.abc import Sequence

from django.db import transaction

from queueops.core.clock import database_now
from ratelimits.alerts import alerts
from ratelimits.alerts.alerts import HYSTERESIS_POINTS, WHOLE_CAP, Kind, level_of
from ratelimits.limiter.counters import counter_of, usage
from ratelimits.limits.catalogue import Rule, rules
from ratelimits.models import Counter, QuotaAlert

OF_COUNTERS = (Kind.USAGE, Kind.EXCEEDED, Kind.UNLIMITED)


def resolve_quiet_alerts(most: int = 500) -> int:
    """
    Resolve usage and exceeded alerts if their counter has fallen 10 points below the threshold, or was deleted.

    Also resolves alerts of calls that no limit in force counted, once a limit does.

    Reads only the open alerts and their counters, `most` in a transaction, until all were looked at. A counter that a
    decision has locked is left to that decision or to the next round. An exceeded alert also waits until the cool-down
    is over and the pressure has recovered.

    Returns:
        How many alerts were resolved.
    """
    by_id = {rule.id: rule for rule in rules()}
    resolved, after = 0, 0
    while True:
        opened = QuotaAlert.objects.filter(kind__in=OF_COUNTERS, resolved_at=None, pk__gt=after)
        chunk = list(opened.order_by("pk")[:most])
        if not chunk:
            return resolved
        resolved += _resolve_some(chunk, by_id)
        after = chunk[-1].pk


@transaction.atomic
def _resolve_some(opened: Sequence[QuotaAlert], by_id: dict[int, Rule]) -> int:
    # Lock in the order in which decisions lock, and without waiting for a lock.
    locked = (
        Counter.objects.filter(pk__in={alert.subject for alert in opened})
        .order_by("pk")
        .select_for_update(skip_locked=True, no_key=True)
    )
    counters = {counter.pk: counter for counter in locked}
    missing = {alert.subject for alert in opened} - counters.keys()
    busy = set(Counter.objects.filter(pk__in=missing).values_list("pk", flat=True)) if missing else set()
    now = database_now()
    over: list[int] = []
    for alert in opened:
        rule = by_id.get(alert.limit_id or 0)
        counter = counters.get(alert.subject)
        is_gone = rule is None or (counter is None and alert.subject not in busy)
        if is_gone or (rule and counter and _is_over(alert, rule, counter, now)):
            over.append(alert.pk)
    for counter in counters.values():
        rule = by_id.get(counter.limit_id)
        watched = rule if rule and not rule.shadow else None
        level = level_of(watched, _percent(watched, counter, now), counter.alert_level) if watched else 0
        if level < counter.alert_level:
            Counter.objects.filter(pk=counter.pk).update(alert_level=level)
    return alerts.resolve(QuotaAlert.objects.filter(pk__in=over)) if over else 0


def _is_over(alert: QuotaAlert, rule: Rule, counter: Counter, now: float) -> bool:
    if alert.kind == Kind.UNLIMITED:
        return not rule.shadow
    percent = _percent(rule, counter, now)
    if alert.kind == Kind.USAGE:
        return rule.shadow or level_of(rule, percent, alert.threshold) < alert.threshold
    has_room = rule.shadow or percent <= WHOLE_CAP - HYSTERESIS_POINTS
    return has_room and not counter_of(rule, counter.key, counter, now).is_slowed


def _percent(rule: Rule, counter: Counter, now: float) -> float:
    used, capacity = usage(rule, counter.key, counter.state, now)
    return 100 * used / capacity if capacity > 0 else 0.0
