"""Opens an alert once when a cap is nearly reached, holds work back, or was passed."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import timedelta
from typing import Any, NamedTuple

from django.db import transaction
from django.db.models import Case, F, Q, QuerySet, Value, When
from django.db.models.functions import Concat

from queueops.audit import trail
from queueops.core.clock import Now, foretold
from queueops.core.sql import run_sql
from queueops.tenancy.moves import projects_away
from ratelimits.costs import UNTIL_THE_END
from ratelimits.limits.catalogue import Rule
from ratelimits.models import QuotaAlert
from ratelimits.subjects import counter_id

from .forecast import forecast

Kind, Severity = QuotaAlert.Kind, QuotaAlert.Severity

HYSTERESIS_POINTS = 10  # percentage points below its threshold at which an alert is resolved
COMES_BACK = timedelta(minutes=5)  # a cause that comes back sooner reopens its alert, which is not sent again
WHOLE_CAP = 100  # the threshold of an exceeded cap
HOUR, DAY = 3600, 86_400
MINUTES_FROM, HOURS_FROM = 120, 7200  # seconds; longer spans are shown in minutes, or in hours
COMING_AND_GOING = frozenset({Kind.USAGE, Kind.SATURATED})


class Fullness(NamedTuple):
    """
    A counter before and after one write, in its limit's unit.

    Attributes:
        capacity: The cap before pressure reduces it.
        level: The highest threshold whose alert is open, in percent; 0: none.
        now: Seconds since 1970, by the database's clock.
    """

    rule: Rule
    key: str
    used_before: float
    used: float
    capacity: float
    level: int
    now: float

    @property
    def percent(self) -> float:
        return 100 * self.used / self.capacity if self.capacity > 0 else 0.0

    @property
    def subject(self) -> str:
        return counter_id(self.rule.id, self.key)


@dataclass(frozen=True, slots=True)
class Opening:
    """An alert to open. `forecast_at`: seconds since 1970."""

    kind: str
    subject: str
    severity: str
    message: str
    figures: Mapping[str, Any] = field(default_factory=dict)
    threshold: int = 0
    limit_id: int | None = None
    forecast_at: float | None = None

    @property
    def projects(self) -> frozenset[str]:
        """See `QuotaAlert.projects`."""
        return QuotaAlert(
            kind=self.kind, subject=self.subject, limit_id=self.limit_id, figures=dict(self.figures)
        ).projects


def watch(usages: Sequence[Fullness]) -> dict[str, int]:
    """
    Open and resolve the alerts of the thresholds that these writes cross, in the transaction that writes the counters.

    Makes no query if nothing is crossed, because every decision calls this. A jump over both thresholds opens two
    alerts. Their forecasts are added after the commit, as a forecast reads tallies, and other decisions wait for the
    counters.

    Returns:
        The new `alert_level` by counter id, where it changed.
    """
    levels: dict[str, int] = {}
    openings: list[Opening] = []
    risen: list[Fullness] = []
    for usage in usages:
        if usage.capacity <= 0:
            continue
        is_in_flight = usage.rule.unit in UNTIL_THE_END  # a cap on running calls is full whenever there is work for it
        level = 0 if is_in_flight or usage.rule.shadow else level_of(usage.rule, usage.percent, usage.level)
        if level != usage.level:
            levels[usage.subject] = level
        if level > usage.level:
            openings += _usage_openings(usage, level)
            risen.append(usage)
        elif level < usage.level:
            resolve_above(usage.subject, level)
        if usage.used_before <= usage.capacity < usage.used and not usage.rule.shadow and not is_in_flight:
            openings.append(_passed(usage))
    if openings:
        open_all(_without_saturated(openings))
    if risen:
        transaction.on_commit(lambda: _foretell(risen), robust=True)
    return levels


def _without_saturated(openings: Sequence[Opening]) -> list[Opening]:
    """Leave out usage alerts of counters that have an open alert about waiting work."""
    subjects = {one.subject for one in openings if one.kind == Kind.USAGE}
    saturated = QuotaAlert.objects.filter(kind=Kind.SATURATED, subject__in=subjects, resolved_at=None)
    known = set(saturated.values_list("subject", flat=True)) if subjects else set()
    return [one for one in openings if one.kind != Kind.USAGE or one.subject not in known]


def level_of(rule: Rule, percent: float, level: int) -> int:
    """Return the highest threshold that use has reached, or reached before without falling 10 points below it since."""
    thresholds = [point for point in (rule.notice_percent, rule.warning_percent) if point]
    reached = max((point for point in thresholds if percent >= point), default=0)
    kept = max((point for point in thresholds if point <= level and percent > point - HYSTERESIS_POINTS), default=0)
    return max(reached, kept)


def open_alert(
    kind: str,
    subject: str,
    *,
    severity: str,
    message: str,
    figures: Mapping[str, Any],
    threshold: int = 0,
    limit_id: int | None = None,
    forecast_at: float | None = None,
) -> QuotaAlert | None:
    """
    Open an alert; if one of this kind, subject and threshold is open, give that alert the new figures.

    While an alert is open, its severity only rises, and each rise sends it again. `forecast_at`: seconds since 1970.

    Returns:
        The alert; None when it was open already.
    """
    opened = open_all([Opening(kind, subject, severity, message, figures, threshold, limit_id, forecast_at)])
    return QuotaAlert.objects.get(pk=opened[0]) if opened else None


def open_all(openings: Sequence[Opening]) -> list[int]:
    """
    Open several alerts; returns the ids of those that are new.

    An alert about a limit's use, or about work that waits for the limit, may end and come back often. If it was
    resolved less than COMES_BACK ago, it is opened again, and no new one is made.
    """
    returning = [asdict(one) for one in openings if one.kind in COMING_AND_GOING]
    if returning:
        run_sql("ratelimits", "reopen_alerts", {"alerts": json.dumps(returning), "seconds": COMES_BACK.total_seconds()})
    rows = run_sql("ratelimits", "open_alerts", {"alerts": json.dumps([asdict(one) for one in openings])})
    return [alert_id for alert_id, opened in rows if opened]


def resolve_above(subject: str, level: int) -> int:
    """Resolve a counter's usage alerts whose threshold is above `level`, in percent."""
    return resolve(QuotaAlert.objects.filter(kind=Kind.USAGE, subject=subject, threshold__gt=level))


def resolve(alerts: QuerySet[QuotaAlert]) -> int:
    """Resolve these alerts if they are open. Their end is sent to the routes that ask for ends."""
    of_user = Q(kind__in=[Kind.ALLOWANCE, Kind.OVERAGE]) & ~Q(severity=Severity.CRITICAL)
    told = Case(When(of_user, then=F("notified_at")), default=Value(None))
    return alerts.filter(resolved_at=None).update(resolved_at=Now(), notified_at=told)


@transaction.atomic
def acknowledge_alerts(ids: Collection[int], *, actor: str, reason: str = "") -> int:
    """
    Record that somebody looks after these alerts. They stay open until their cause has ended.

    Returns:
        How many alerts it acknowledged; alerts that were resolved or acknowledged before are left alone.
    """
    rows = QuotaAlert.objects.filter(pk__in=ids, acknowledged_at=None, resolved_at=None)
    locked = dict(rows.order_by("pk").select_for_update().values_list("pk", "message"))
    QuotaAlert.objects.filter(pk__in=locked).update(acknowledged_at=Now(), acknowledged_by=actor)
    for pk, message in locked.items():
        after = {"message": message}
        trail.record(actor=actor, action="acknowledge_alert", target=f"alert {pk}", after=after, reason=reason)
    return len(locked)


def tell_exceeded(
    rule: Rule, key: str, *, message: str, figures: Mapping[str, Any], severity: str = Severity.CRITICAL
) -> None:
    """Open the alert of a counter whose provider pushed back or whose cap was passed."""
    open_alert(
        Kind.EXCEEDED,
        counter_id(rule.id, key),
        severity=severity,
        message=message,
        figures=figures,
        threshold=WHOLE_CAP,
        limit_id=rule.id,
    )


def tell_unlimited(rule: Rule, key: str, *, capacity: float, reason: str, figures: Mapping[str, Any]) -> None:
    """Open the alert of refused calls that no limit in force counts; `capacity`: the proposed one."""
    amount = f"{capacity:,.0f} {per_window(rule)}"
    open_alert(
        Kind.UNLIMITED,
        counter_id(rule.id, key),
        severity=Severity.WARNING,
        message=f"{reason} ({key}), and no limit in force counts it. {rule.name} is prepared with {amount}: look at it"
        " and switch shadow off",
        figures={**figures, "service": rule.service, "key": key, "proposed_capacity": capacity, "unit": rule.unit},
        limit_id=rule.id,
    )


def saturation(
    rule: Rule, key: str, *, waiting: int, clears_at: float | None, now: float, more: bool = False
) -> Opening:
    """
    Return an alert that says how many jobs wait for a cap, and how long. It is a warning if they wait longer than the
    limit allows.

    Args:
        waiting: How many jobs wait.
        clears_at: Seconds since 1970; None: nobody can tell.
        more: More jobs wait than `waiting`, so they clear later than `clears_at`.
    """
    late = clears_at is not None and clears_at - now > rule.clears_late_seconds
    count = f"more than {waiting:,}" if more else f"{waiting:,}"
    jobs = "job waits" if count == "1" else "jobs wait"
    clears = "" if clears_at is None else f"; clears {'after' if more else 'at about'} {clock(clears_at, now)}"
    return Opening(
        Kind.SATURATED,
        counter_id(rule.id, key),
        Severity.WARNING if late else Severity.NOTICE,
        f"{named(rule, key)}: {count} {jobs} beyond the cap{clears}",
        {"waiting": waiting, "more": more},
        limit_id=rule.id,
        forecast_at=clears_at,
    )


def reconcile(kind: str, found: Sequence[Opening], *, keep: Collection[str] = ()) -> None:
    """
    Make `found` the open alerts of a kind: open or update them, and resolve the others.

    Alerts that are only about projects that live in another installation are left out. The remains of these projects
    would alarm for ever, and nobody here could do anything about it.

    Args:
        keep: Subjects whose alert stays open, though it would not be opened now.
    """
    away = projects_away()
    here = [one for one in found if not _is_away(one.projects, away)]
    if here:
        open_all(here)
    standing = {*keep, *(one.subject for one in here)}
    known = QuotaAlert.objects.filter(kind=kind, resolved_at=None)
    over = [one.pk for one in known if one.subject not in standing or _is_away(one.projects, away)]
    if over:
        resolve(QuotaAlert.objects.filter(pk__in=over))


def _is_away(projects: Collection[str], away: Collection[str]) -> bool:
    return bool(projects) and all(project in away for project in projects)


def named(rule: Rule, key: str) -> str:
    return rule.name if key == "*" else f"{rule.name}, {key}"


def whom(key: str) -> str:
    """`robot of demo`, `demo`, `robot, model small`, from a counter's key; empty: everybody."""
    parts = dict(part.partition(":")[::2] for part in re.split(r"/(?=user:|model:)", key)) if key != "*" else {}
    who = " of ".join(parts[one] for one in ("user", "project", "service") if one in parts)
    return ", ".join(filter(None, (who, f"model {parts['model']}" if "model" in parts else "")))


def lasting(seconds: float) -> str:
    """`40 s`, `9 min`, `8 h`: a span for texts that people may read after the time has passed."""
    if seconds < MINUTES_FROM:
        return f"{math.ceil(seconds)} s"
    return f"{seconds / 60:.0f} min" if seconds < HOURS_FROM else f"{seconds / HOUR:.0f} h"


def per_window(rule: Rule) -> str:
    """`requests a minute`, `tokens a day`, `calls in flight`."""
    if rule.unit in UNTIL_THE_END:
        return "calls in flight"
    if rule.hard_reset:
        return f"{rule.unit} a day"
    window = rule.window_seconds or 60
    words = {60: "a minute", HOUR: "an hour"}
    return f"{rule.unit} {words.get(int(window), f'in {window:g} s')}"


def clock(at: float, now: float) -> str:
    """`14:40`; with seconds when it is near, with the date when it is far. UTC."""
    moment = foretold(at)
    shape = "%H:%M:%S" if at - now < HOUR else "%H:%M" if at - now < DAY else "%Y-%m-%d %H:%M"
    return f"{moment:{shape}} UTC"


def _usage_openings(usage: Fullness, level: int) -> list[Opening]:
    rule = usage.rule
    severities = {rule.notice_percent: Severity.NOTICE, rule.warning_percent: Severity.WARNING}
    message = f"{_used(usage)}, {usage.percent:.0f} %"
    return [
        Opening(Kind.USAGE, usage.subject, severity, message, _figures(usage), threshold, rule.id)
        for threshold, severity in severities.items()
        if usage.level < threshold <= level
    ]


def _foretell(usages: Sequence[Fullness]) -> None:
    """Add to alerts that were just opened when their counters reach the cap."""
    for usage in usages:
        fresh = max(0.0, usage.used - usage.used_before)  # its tallies are later than `usage.now`
        at = forecast(usage.rule, usage.key, used=usage.used, capacity=usage.capacity, now=usage.now, fresh=fresh)
        if at is None:
            continue
        ahead = Value(f"; reaches the cap at {clock(at, usage.now)} at this pace")
        alerts = QuotaAlert.objects.filter(kind=Kind.USAGE, subject=usage.subject, resolved_at=None, forecast_at=None)
        for threshold in (usage.rule.notice_percent, usage.rule.warning_percent):
            if usage.level < threshold:  # row by row: transactions that open alerts lock them in this order
                alerts.filter(threshold=threshold).update(forecast_at=foretold(at), message=Concat("message", ahead))


def _passed(usage: Fullness) -> Opening:
    message = f"{_used(usage)}: the cap was passed"
    return Opening(Kind.EXCEEDED, usage.subject, Severity.CRITICAL, message, _figures(usage), WHOLE_CAP, usage.rule.id)


def _used(usage: Fullness) -> str:
    return f"{named(usage.rule, usage.key)}: {usage.used:,.0f} of {usage.capacity:,.0f} {per_window(usage.rule)} used"


def _figures(usage: Fullness) -> dict[str, Any]:
    return {
        "used": round(usage.used, 3),
        "capacity": usage.capacity,
        "percent": round(usage.percent, 1),
        "unit": usage.rule.unit,
    }
