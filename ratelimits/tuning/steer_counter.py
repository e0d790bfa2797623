"""Clearing counters and cooling them down by hand."""

from __future__ import annotations

from datetime import timedelta

from django.db import transaction

from queueops.audit import trail
from queueops.core.clock import Now, database_now
from queueops.core.values.reasons import required_reason
from ratelimits.alerts import alerts
from ratelimits.errors import InvalidCoolDown, UnknownCounter
from ratelimits.limiter.view.gauges import gauge_of
from ratelimits.limits.catalogue import rules_of
from ratelimits.limits.save_limit import announce_change, project_of
from ratelimits.models import Counter, Limit

MAX_COOL_DOWN_SECONDS = 31 * 86_400
MAX_OF_A_REASON = 200


@transaction.atomic
def clear_counter(counter_id: str, *, actor: str, reason: str) -> None:
    """
    Let a counter begin anew: nothing used, no cool-down, no pressure. Its alerts of use are resolved.

    The counter also forgets what calls in flight hold, so that the end of these calls gives nothing back a second time.

    Raises:
        UnknownCounter, ReasonRequired: Nothing was changed.
    """
    reason = required_reason(reason)
    counter, limit = _locked(counter_id)
    before = _kept(counter, limit)
    alerts.resolve_above(counter.pk, 0)
    counter.state, counter.alert_level = {}, 0
    counter.blocked_until, counter.blocked_reason = None, ""
    counter.pressure, counter.pressure_changed_at, counter.pressure_before = 1.0, None, 1.0
    counter.updated_at = Now()
    counter.save()
    _record("clear_counter", counter, before, actor=actor, reason=reason)


@transaction.atomic
def cool_down_counter(counter_id: str, seconds: float, *, actor: str, reason: str) -> None:
    """
    Stop the calls that this counter counts, for `seconds`; 0 ends a cool-down. Calls in flight go on.

    Args:
        seconds: At most 31 days, by the database's clock from now on.

    Raises:
        UnknownCounter, InvalidCoolDown, ReasonRequired: Nothing was changed.
    """
    reason = required_reason(reason)
    if isinstance(seconds, bool) or not 0 <= seconds <= MAX_COOL_DOWN_SECONDS:
        raise InvalidCoolDown(
            f"From 0 to {MAX_COOL_DOWN_SECONDS:,} seconds.",
            fields={"seconds": [f"from 0 to {MAX_COOL_DOWN_SECONDS:,}"]},
        )
    counter, limit = _locked(counter_id)
    before = _kept(counter, limit)
    counter.blocked_until = Now() + timedelta(seconds=seconds) if seconds else None
    counter.state = {name: value for name, value in counter.state.items() if name != "held"}
    counter.blocked_reason = f"by hand: {reason}"[:MAX_OF_A_REASON] if seconds else ""
    counter.updated_at = Now()
    counter.save(update_fields=["state", "blocked_until", "blocked_reason", "updated_at"])
    _record("cool_down_counter", counter, before, actor=actor, reason=reason)


def _locked(counter_id: str) -> tuple[Counter, Limit]:
    counter = Counter.objects.select_for_update().filter(pk=counter_id).first()
    limit = Limit.objects.filter(pk=counter.limit_id).first() if counter else None
    if counter is None or limit is None:
        raise UnknownCounter(counter_id=counter_id)
    return counter, limit


def _kept(counter: Counter, limit: Limit) -> dict[str, object]:
    gauge = gauge_of(counter, rules_of([limit])[0], database_now())
    return {
        "used": round(gauge.used, 3),
        "capacity": gauge.capacity,
        "pressure": gauge.pressure,
        "blocked_until": gauge.blocked_until.isoformat() if gauge.blocked_until else None,
    }


def _record(action: str, counter: Counter, before: dict[str, object], *, actor: str, reason: str) -> None:
    counter.refresh_from_db()
    after = {
        "blocked_until": counter.blocked_until.isoformat() if counter.blocked_until else None,
        "pressure": counter.pressure,
    }
    trail.record(
        actor=actor,
        action=action,
        target=f"counter {counter.pk}",
        before=before,
        after=after,
        reason=reason,
        project_id=project_of(counter.key),
    )
    announce_change()
