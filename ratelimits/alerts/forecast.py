"""Forecasts of when a cap is reached at the pace of the last minutes."""

from __future__ import annotations

from typing import NamedTuple

from queueops.core.sql import run_sql
from ratelimits.algorithms.measures import microseconds, seconds
from ratelimits.costs import INPUT_TOKENS, UNTIL_THE_END
from ratelimits.limits.catalogue import Rule
from ratelimits.subjects import Subject

SHARE_OF_WINDOW = 0.25  # the last part of a window, whose calls give the pace: 15 s of a minute
MIN_SPAN, MAX_SPAN = 5.0, 900.0
MIN_HISTORY = 1.0  # seconds; calls of a shorter time give no pace
MAX_TALLIES_FORECAST = 2000  # tallies read for one forecast


class CounterFlow(NamedTuple):
    """The use that enters the window, and the earlier use that leaves it, each in the limit's unit a second."""

    arriving: float
    leaving: float


def reaches_cap_at(
    pace: CounterFlow, *, used: float, capacity: float, now: float, resets_at: float | None = None
) -> float | None:
    """
    Return when the use reaches the capacity if the pace stays, seconds since 1970.

    None: the use does not reach it at this pace, or not before `resets_at`, when counting begins anew.
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
    Return when a counter reaches its cap at the pace of its last calls; None: not at this pace, or nobody can tell.

    A window never reaches its cap if the use of a whole window at this pace fits. Reads tallies of granted calls.

    Args:
        fresh: The use granted just now, whose tallies are later than `now`.
    """
    if rule.unit in UNTIL_THE_END:
        return None  # when it is full depends on how long calls take
    algorithm = rule.algorithm(key)
    reset = algorithm.reset_after(microseconds(now))
    resets_at = None if reset is None else seconds(reset)
    window = rule.window_seconds or 60.0
    pace = pace_of(rule, key, now=now, fresh=fresh, window_seconds=None if resets_at else window)
    if pace is None or (resets_at is None and pace.arriving * window <= capacity):
        return None
    return reaches_cap_at(pace, used=used, capacity=capacity, now=now, resets_at=resets_at)


def pace_of(rule: Rule, key: str, *, now: float, fresh: float, window_seconds: float | None) -> CounterFlow | None:
    """
    Measure a counter's pace by its calls in the last quarter of a window; None: the first call came less than
    MIN_HISTORY ago.

    If the service has more tallies than MAX_TALLIES_FORECAST in that time, only the newest count.

    Args:
        window_seconds: The window's length; None: no use leaves the window before the reset.
    """
    span = min(MAX_SPAN, max(MIN_SPAN, (window_seconds or MAX_SPAN / SHARE_OF_WINDOW) * SHARE_OF_WINDOW))
    came = _seen(rule, key, after=now - span, until=now)
    seconds_seen = now - max(came.after, came.first or now)
    if seconds_seen < MIN_HISTORY:
        return None
    leaving = 0.0
    if window_seconds:
        old = _seen(rule, key, after=now - window_seconds, until=now - window_seconds + span)
        leaving = old.amount / (now - window_seconds + span - old.after)
    return CounterFlow((came.amount + fresh) / seconds_seen, leaving)


class _Seen(NamedTuple):
    """A counter's tallies from `after` on; `first` is the time of the oldest tally. Times in seconds since 1970."""

    amount: float
    after: float
    first: float | None


def _seen(rule: Rule, key: str, *, after: float, until: float) -> _Seen:
    wanted = {
        "service": rule.service,
        "after": after,
        "until": until,
        "most": MAX_TALLIES_FORECAST,
        "unit": rule.unit,
        "free": rule.unit == INPUT_TOKENS and not rule.counts_cached,
    }
    rows = run_sql("ratelimits", "sum_tallies", wanted)
    if sum(row[-1] for row in rows) == MAX_TALLIES_FORECAST:
        after = min(row[-2] for row in rows)
    amount, first = 0.0, None
    for call_type, project, user, model, calls, taken, oldest, _ in rows:
        subject = Subject(rule.service, call_type, project, user, model, owner=project)
        if rule.applies_to(subject) and rule.key(subject) == key:
            amount += calls if rule.per_call else taken
            first = oldest if first is None else min(first, oldest)
    return _Seen(amount, after, first)
