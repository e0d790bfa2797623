"""Gauges for screens: how full limits are, and who used them. Reads without locks."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from django.db.models import F, QuerySet, Sum, Window
from django.db.models.functions import RowNumber

from queueops.core.clock import Now, database_now, foretold
from ratelimits.alerts.alerts import WHOLE_CAP
from ratelimits.algorithms.measures import MICRO, cost_units, seconds
from ratelimits.costs import ENQUEUED_TOKENS
from ratelimits.limiter.counters import OpenCounter, counter_of, usage
from ratelimits.limiter.tallies import amount_of
from ratelimits.limits.catalogue import Rule, rules_of
from ratelimits.models import CallTally, Counter, Limit, LimitCallType
from ratelimits.subjects import NOBODY

MAX_GAUGES = 200  # of one limit: the counters that changed last
MAX_TALLIES_SUMMED = 100_000  # summed up for one list of users
MAX_USERS_GAUGED = 10


@dataclass(frozen=True, slots=True)
class CounterGauge:
    """
    The figures of one counter, in its limit's unit, by the database's clock.

    Attributes:
        capacity: The cap before pressure reduces it; for a bucket, what it lets through in a window.
        available: What may still go at this instant.
        percent: The used percentage of the cap; above 100 after a late charge or a lowered cap.
        share: The part of the cap that a ramp leaves open; 1: all.
        level: The highest threshold reached, in percent; 0: none.
        blocked_until: End of a cool-down; None: there is none.
        next_free_at: When one more call has room; None: now.
        proposed_capacity: The cap of this key as the provider states it; None: no proposal waits for an operator.
        per_second: The pace at which a queue behind the limit drains; None: the length of calls sets the pace.
        override_ends_at: When this key gets its earlier cap again; None: the key has no override that ends.
        opened: The counter from which these figures were read.
    """

    counter_id: str
    limit_id: int
    limit: str
    service: str
    key: str
    unit: str
    used: float
    available: float
    capacity: float
    percent: float
    level: int
    notice_percent: int
    warning_percent: int
    pressure: float
    share: float
    blocked_until: datetime | None
    blocked_reason: str
    next_free_at: datetime | None
    per_second: float | None
    shadow: bool
    shadow_denials: int
    updated_at: datetime
    opened: OpenCounter = field(repr=False)
    proposed_capacity: float | None = None
    proposed_at: datetime | None = None
    override_ends_at: datetime | None = None

    @property
    def holds_nothing(self) -> bool:
        """Whether the limit only watches, as a shadow limit does until its provider refuses."""
        return self.shadow and self.blocked_until is None


@dataclass(frozen=True, slots=True)
class Used:
    """The calls of one user or kind since a time, and what they took in the limit's unit."""

    name: str
    calls: int
    amount: float


@dataclass(frozen=True, slots=True)
class TopUsersOfLimit:
    """
    Attributes:
        users: `project / user` as the provider sees them, the most use first.
        kinds: The kinds of job, the most use first.
        partial: There were more than MAX_TALLIES_SUMMED tallies, and the oldest are left out.
    """

    users: tuple[Used, ...]
    kinds: tuple[Used, ...]
    partial: bool


def gauges(
    limit_ids: Collection[int] | None = None,
    *,
    limit: Limit | None = None,
    service: str | None = None,
    counter_ids: Collection[str] | None = None,
    most: int = MAX_GAUGES,
) -> list[CounterGauge]:
    """
    Return the gauges of counters, the fullest of each limit first.

    Args:
        limit_ids, service: Only counters of these limits.
        limit: Only counters of this limit, with the figures of this object, even if they are not stored.
        counter_ids: Only these counters.
        most: How many counters of each limit to read at most: those that changed last.
    """
    limits = Limit.objects.all()
    if limit is not None:
        limits = limits.filter(pk=limit.pk)
    if limit_ids is not None:
        limits = limits.filter(pk__in=limit_ids)
    if service is not None:
        limits = limits.filter(service=service)
    rules = {rule.id: rule for rule in rules_of([limit] if limit else list(limits))}
    rows = Counter.objects.filter(limit_id__in=rules)
    if counter_ids is not None:
        rows = rows.filter(pk__in=counter_ids)
    else:
        place = Window(RowNumber(), partition_by=F("limit_id"), order_by=[F("updated_at").desc(), F("pk")])
        rows = rows.filter(pk__in=_ids(rows.annotate(place=place).filter(place__lte=most)))
    found = list(rows)
    now = database_now() if found else 0.0
    read = [gauge_of(counter, rules[counter.limit_id], now) for counter in found]
    return sorted(read, key=lambda gauge: (gauge.limit, -gauge.percent, gauge.key))


def gauge_of(counter: Counter, rule: Rule, now: float) -> CounterGauge:
    """Return a counter's gauge at `now`, seconds since 1970."""
    opened = counter_of(rule, counter.key, counter, now)
    meter, factor, blocked = opened.meter, opened.pressure, opened.cooled_until
    used, cap = usage(rule, counter.key, counter.state, now, pressure=factor, share=opened.share)
    percent = 100 * used / cap if cap > 0 else 100.0
    one = cost_units(min(1.0, opened.algorithm.capacity))
    free_at = None if not one or meter.room_for(one) else opened.sooner(seconds(meter.line_up(one)))
    if blocked is not None and (free_at is None or free_at < blocked):
        free_at = blocked
    points = (rule.notice_percent, rule.warning_percent, WHOLE_CAP)
    return CounterGauge(
        counter_id=counter.pk,
        limit_id=rule.id,
        limit=rule.name,
        service=rule.service,
        key=counter.key,
        unit=rule.unit,
        used=max(0.0, used),
        available=max(0.0, meter.available() / MICRO),
        capacity=cap,
        percent=max(0.0, percent),
        level=max((point for point in points if percent >= point), default=0),
        notice_percent=rule.notice_percent,
        warning_percent=rule.warning_percent,
        pressure=factor,
        share=opened.share,
        blocked_until=_moment(blocked),
        blocked_reason=opened.blocked_reason,
        next_free_at=_moment(free_at),
        per_second=opened.algorithm.rate_per_second,
        shadow=rule.shadow,
        shadow_denials=counter.shadow_denials,
        updated_at=counter.updated_at,
        opened=opened,
        proposed_capacity=counter.proposed_capacity,
        proposed_at=counter.proposed_at,
        override_ends_at=own.ends_at if (own := rule.overrides.get(counter.key)) else None,
    )


def top_users(
    limit: Limit, key: str | None = None, *, since: timedelta = timedelta(hours=1), most: int = MAX_USERS_GAUGED
) -> TopUsersOfLimit:
    """
    Return the users who used most of a limit, in its unit. Only calls that were granted lately count, see `since`.

    Args:
        key: Only one counter's calls.
        since: How far to look back; at most a day, as tallies are kept no longer.
    """
    rows = tallies_of(limit, since=since)
    if limit.project:
        rows = rows.filter(project=limit.project)
    if key is not None:
        rows = rows.filter(**_conditions_of(key))
    newest = rows.order_by("-at").values("pk")[:MAX_TALLIES_SUMMED]
    looked_at = CallTally.objects.filter(pk__in=newest)
    by_user = _sums(looked_at, limit, ("project", "user"), most)
    by_kind = _sums(looked_at, limit, ("kind",), most)
    return TopUsersOfLimit(
        users=tuple(
            Used(" / ".join(part for part in (row["project"], row["user"]) if part) or NOBODY, row["n"], row["sum"])
            for row in by_user
        ),
        kinds=tuple(Used(row["kind"] or NOBODY, row["n"], row["sum"]) for row in by_kind),
        partial=rows.order_by()[MAX_TALLIES_SUMMED : MAX_TALLIES_SUMMED + 1].exists(),
    )


def tallies_of(limit: Limit, *, since: timedelta) -> QuerySet[CallTally]:
    """The tallies of the calls that a limit counts, and those of other projects, which a simulation compares."""
    rows = CallTally.objects.filter(at__gte=Now() - since)
    for name in ("service", "kind"):
        if getattr(limit, name):
            rows = rows.filter(**{name: getattr(limit, name)})
    if limit.call_type != LimitCallType.ANY:
        rows = rows.filter(call_type=limit.call_type)
    rows = rows.filter(amounts__enqueued_tokens__gt=0) if limit.unit == ENQUEUED_TOKENS else rows.filter(calls__gt=0)
    return rows.filter(model=limit.model) if limit.model else rows


def _ids(rows: QuerySet[Counter]) -> list[str]:
    return list(rows.values_list("pk", flat=True))


def _moment(at: float | None) -> datetime | None:
    return None if at is None else foretold(at)


def _sums(rows: QuerySet[CallTally], limit: Limit, names: tuple[str, ...], most: int) -> Sequence[dict[str, Any]]:
    taken = Sum(amount_of(limit.unit, counts_cached=limit.counts_cached))
    return list(rows.values(*names).annotate(n=Sum("calls"), sum=taken).order_by("-sum", "-n", *names)[:most])


def _conditions_of(key: str) -> dict[str, str]:
    """The conditions that a key such as `project:acme/user:u/model:m` sets for its calls."""
    named = dict(part.split(":", 1) for part in key.split("/") if ":" in part)
    conditions: dict[str, str] = {name: named[name] for name in ("project", "user", "model") if name in named}
    if conditions.get("user") == NOBODY:
        conditions["user"] = ""
    return conditions
