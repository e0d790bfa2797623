"""When a cap is reached at the pace of the last minutes."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import NamedTuple

from django.db.models import Min, Q, Sum

from ratelimits.algorithms.fixed_window import FixedWindow
from ratelimits.algorithms.measures import microseconds, seconds
from ratelimits.models import CallTally, Unit
from ratelimits.subjects import Subject

from .catalogue import Rule

SHARE_OF_WINDOW = 0.25  # of a window is looked at for the pace: 15 s of a minute
SHORTEST_SPAN, LONGEST_SPAN = 5.0, 900.0
SHORTEST_HISTORY = 1.0  # seconds of calls below which nobody can speak of a pace


class Pace(NamedTuple):
    """In the limit's unit a second: what comes in, and what leaves the window because it came in a window ago."""

    arriving: float
    leaving: float


def reaches_cap_at(
    pace: Pace, *, used: float, capacity: float, now: float, resets_at: float | None = None
) -> float | None:
    """
    Return when the use reaches the capacity if the pace stays, seconds since 1970.

    None: not at this pace, or not before `resets_at`, when counting begins anew.
    """
    growth = pace.arriving - pace.leaving
    if used >= capacity:
        return now
    if growth <= 0:
        return None
    at = now + (capacity - used) / growth
    return None if resets_at is not None and at >= resets_at else at


def forecast(rule: Rule, key: str, *, used: float, capacity: float, now: float, fresh: float = 0.0) -> float | None:
    """
    Return when a counter reaches its cap at the pace of its last calls; None: not at this pace, or no telling.

    A window whose whole length of this pace fits into the cap never reaches it. Reads the tallies of granted calls.

    Args:
        fresh: Granted in this transaction, and not in the tallies yet.
    """
    if rule.unit == Unit.IN_FLIGHT:
        return None  # it depends on how long calls take
    algorithm = rule.algorithm(key)
    resets_at = None
    if isinstance(algorithm, FixedWindow):
        resets_at = seconds(algorithm.reset_after(microseconds(now)))
    window = rule.window_seconds or 60.0
    pace = pace_of(rule, key, now=now, fresh=fresh, window_seconds=None if resets_at else window)
    if pace is None or (resets_at is None and pace.arriving * window <= capacity):
        return None
    return reaches_cap_at(pace, used=used, capacity=capacity, now=now, resets_at=resets_at)


def pace_of(rule: Rule, key: str, *, now: float, fresh: float, window_seconds: float | None) -> Pace | None:
    """
    Measure a counter's pace from its calls of the last quarter of a window; None: they began a moment ago.

    Args:
        window_seconds: None: nothing leaves before the reset.
    """
    span = min(LONGEST_SPAN, max(SHORTEST_SPAN, (window_seconds or LONGEST_SPAN / SHARE_OF_WINDOW) * SHARE_OF_WINDOW))
    recent = Q(at__gt=_moment(now - span))
    old = Q(at__lte=_moment(now - (window_seconds or 0.0) + span))
    since = _moment(now - (window_seconds or span))
    amount = "tokens" if rule.unit == Unit.TOKENS else "calls"
    rows = (
        CallTally.objects.filter(service=rule.service, at__gt=since)
        .values("call_type", "project", "user", "model")
        .annotate(
            came=Sum(amount, filter=recent, default=0),
            leaves=Sum(amount, filter=old, default=0),
            first=Min("at", filter=recent),
        )
    )
    came, leaves, first = fresh, 0.0, now
    for row in rows:
        subject = Subject(rule.service, row["call_type"], row["project"], row["user"], row["model"])
        if rule.applies_to(subject) and rule.key(subject) == key:
            came += row["came"]
            leaves += row["leaves"] if window_seconds else 0.0
            first = min(first, row["first"].timestamp() if row["first"] else now)
    if now - first < SHORTEST_HISTORY:
        return None
    return Pace(came / min(span, now - first), leaves / span)


def _moment(at: float) -> datetime:
    return datetime.fromtimestamp(0, UTC) + timedelta(seconds=at)
