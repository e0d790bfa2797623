"""Simulating a limit: the calls of its last hours are replayed with other figures."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, timedelta
from typing import Any, NamedTuple

from django.db.models import F, Sum
from django.db.models.functions import Extract, Floor

from queueops.core.clock import database_now
from ratelimits.costs import INPUT_TOKENS, PER_CALL, TOKENS, UNTIL_THE_END
from ratelimits.errors import InvalidLimit, NotSimulable
from ratelimits.limiter.tallies import amount_of
from ratelimits.limiter.view.gauges import tallies_of
from ratelimits.limits.catalogue import Override, overrides_of, rule_of
from ratelimits.models import Limit, LimitCallType
from ratelimits.subjects import Subject

from .replay import Ask, Replay, replay
from .review_limit import propose_limit

MAX_HOURS_PLAYED = 24  # tallies are kept no longer
MAX_ROWS_READ = 50_000  # sums of calls by the second; the newest are read
MAX_CALLS_PLAYED = 20_000  # one by one; more calls are played in groups of equal size
MAX_GROUPS_PLAYED = 30_000  # in all, if the cap is too small for large groups: about 2 s for both sets of figures
MIN_SHARE = 0.02  # the largest group, as a part of a cap; a larger one would wait where single calls would go


class Measure(NamedTuple):
    """The measure by which a limit counts a call: a unit, and whether it includes input from a cache."""

    unit: str
    cached: bool


class Tallied(NamedTuple):
    """
    Calls of one subject that asked in the same second.

    Attributes:
        asked_at: Whole seconds since 1970.
        costs: The cost of one call, by measure.
        waited_seconds: Summed over the calls.
    """

    subject: Subject
    asked_at: int
    costs: Mapping[Measure, float]
    calls: int
    waited_seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class SimulatedOutcome:
    """
    The outcome of the calls under one set of figures.

    Attributes:
        delayed: Calls that waited for this limit.
        total_wait_seconds: Summed over the calls.
        p95_wait_seconds: The 95th percentile over all calls, including calls that did not wait.
        longest_wait_seconds: The longest wait of one call.
        rejected: Calls that could never fit.
        utilisation_percent: The share of the limit's pace that the busiest key used; None: the limit has no pace.
        busiest_key: Empty where nothing was counted.
        unfinished: Calls that would have gone after the end of the time played.
    """

    delayed: int
    total_wait_seconds: float
    p95_wait_seconds: float
    longest_wait_seconds: float
    rejected: int
    utilisation_percent: float | None
    busiest_key: str
    unfinished: int


HOLDS_NOTHING_BACK = SimulatedOutcome(0, 0.0, 0.0, 0.0, 0, None, "", 0)


@dataclass(frozen=True, slots=True)
class Simulation:
    """
    The same calls under today's figures and under the proposed ones.

    Both sets of figures are played from an empty counter, as if only this limit held calls back, to be comparable.
    Calls are played in the order in which they asked. A wait is exact only to the second, because a tally keeps the
    mean of its calls.

    Attributes:
        calls: Calls that went out in the time played.
        waited_seconds: How long they really waited, for all limits and executors together.
        played_in_groups_of: 1: each call by itself.
        cut: There were more calls than are played at once; the oldest are left out.
        warnings: What the proposed figures mean.
    """

    hours: float
    calls: int
    keys: int
    waited_seconds: float
    today: SimulatedOutcome
    proposed: SimulatedOutcome
    played_in_groups_of: int
    cut: bool
    warnings: tuple[str, ...]


def simulate(limit_id: int, changes: Mapping[str, Any], *, hours: float = 1) -> Simulation:
    """
    Play the calls of the last hours through a limit's figures as they are and as they would be.

    Args:
        changes: The changes, as `update_limit` takes them. Empty: today's figures are compared with themselves.
        hours: How far back, at most 24.

    Raises:
        UnknownLimit.
        InvalidLimit: The changed figures cannot be a limit's.
        NotSimulable: The limit counts calls in flight, and tallies don't keep how long a call took.
    """
    proposed, found = propose_limit(limit_id, changes)
    if found.faults:
        raise InvalidLimit(fields=found.faults)
    today = Limit.objects.get(pk=limit_id)
    if UNTIL_THE_END & {today.unit, proposed.unit}:
        raise NotSimulable
    since = timedelta(hours=min(max(hours, 0.01), MAX_HOURS_PLAYED))
    # Read calls once for both sets of figures; otherwise a call in only one of them would look like their effect.
    rows = _read(today, proposed, since)
    group = _group_size(rows, (today, proposed))
    kept = _newest(rows[:MAX_ROWS_READ], calls=MAX_GROUPS_PLAYED * group)
    cut, rows = len(kept) < len(rows), kept
    overrides = overrides_of([today.pk]).get(today.pk, {})
    end = database_now()
    return Simulation(
        hours=since.total_seconds() / 3600,
        calls=sum(row.calls for row in rows),
        keys=len({rule_of(proposed).key(row.subject) for row in rows}),
        waited_seconds=sum(row.waited_seconds for row in rows),
        today=_play(today, overrides, rows, group=group, end=end),
        proposed=_play(proposed, overrides, rows, group=group, end=end),
        played_in_groups_of=group,
        cut=cut,
        warnings=tuple(found.warnings),
    )


def asks_of(rows: Iterable[Tallied], limit: Limit, *, group: int = 1) -> dict[str, list[Ask]]:
    """
    Return what each key of a limit was asked for, in whole seconds and in the order of asking.

    Args:
        group: How many calls are asked for together; the rest of a second makes a smaller group.
    """
    rule = rule_of(limit)
    seconds: dict[str, dict[tuple[int, float], int]] = defaultdict(lambda: defaultdict(int))
    for row in rows:
        if rule.applies_to(row.subject):
            cost = 1.0 if rule.per_call else row.costs[_counted_by(limit)]
            if not cost and limit.unit != TOKENS:
                continue  # the limiter skips such a call, too: the call takes nothing of this unit
            seconds[rule.key(row.subject)][row.asked_at, cost] += row.calls
    return {
        key: [
            Ask(at=float(at), cost=cost, calls=size)
            for (at, cost), calls in sorted(by_second.items())
            for size in [group] * (calls // group) + ([calls % group] if calls % group else [])
        ]
        for key, by_second in seconds.items()
    }


def _read(today: Limit, proposed: Limit, since: timedelta) -> list[Tallied]:
    """Sum tallies by whole second of asking, newest first, and by subject as far as a limit tells calls apart."""
    both = (today, proposed)
    names = [name for name in ("project", "user") if any(name in limit.scope for limit in both)]
    if "project" not in names and any(limit.project for limit in both):
        names.append("project")
    names += [name for name in ("call_type", "model") if any(_tells_apart(limit, name) for limit in both)]
    counted = {f"each_{place}": one for place, one in enumerate(sorted({_counted_by(limit) for limit in both}))}
    rows = (
        tallies_of(proposed, since=since)
        .annotate(
            asked_at=Floor(Extract("at", "epoch", tzinfo=UTC) - F("waited_seconds") / F("calls")),
            **{name: amount_of(one.unit, counts_cached=one.cached) / F("calls") for name, one in counted.items()},
        )
        .values(*names, "asked_at", *counted)
        .annotate(number=Sum("calls"), waited=Sum("waited_seconds"))
        .order_by("-asked_at", *names, *counted)[: MAX_ROWS_READ + 1]
    )
    return [
        Tallied(
            Subject(
                proposed.service,
                row.get("call_type", proposed.call_type),
                row.get("project", ""),
                row.get("user", ""),
                row.get("model", ""),
                owner=row.get("project", ""),
            ),
            int(row["asked_at"]),
            {one: float(row[name]) for name, one in counted.items()},
            row["number"],
            row["waited"],
        )
        for row in rows
    ]


def _counted_by(limit: Limit) -> Measure:
    return Measure(limit.unit, limit.counts_cached or limit.unit != INPUT_TOKENS)


def _tells_apart(limit: Limit, name: str) -> bool:
    return limit.call_type != LimitCallType.ANY if name == "call_type" else bool(limit.per_model or limit.model)


def _play(
    limit: Limit, overrides: Mapping[str, Override], rows: Sequence[Tallied], *, group: int, end: float
) -> SimulatedOutcome:
    rule = rule_of(limit, overrides)
    if limit.shadow or not limit.enabled:
        return HOLDS_NOTHING_BACK
    played = {key: replay(rule.algorithm(key), asks) for key, asks in asks_of(rows, limit, group=group).items()}
    waits = sorted((wait, calls) for one in played.values() for wait, calls in one.waits)
    busiest = max(played, key=lambda key: played[key].cost, default="")
    return SimulatedOutcome(
        delayed=sum(calls for wait, calls in waits if wait > 0),
        total_wait_seconds=sum(wait * calls for wait, calls in waits),
        p95_wait_seconds=_percentile(waits, 0.95),
        longest_wait_seconds=waits[-1][0] if waits else 0.0,
        rejected=sum(one.rejected for one in played.values()),
        utilisation_percent=_utilisation(played[busiest], rule.rate_per_second(busiest)) if busiest else None,
        busiest_key=busiest,
        unfinished=sum(one.after(end) for one in played.values()),
    )


def _utilisation(played: Replay, per_second: float | None) -> float | None:
    """The percentage of its pace that a key used from its first call to its last; at most 100, even after a burst."""
    if not per_second or not played.departures:
        return None
    elapsed = max(played.departures[-1][0] - played.departures[0][0], 60.0)
    return min(100.0, 100 * played.cost / (per_second * elapsed))


def _percentile(waits: Sequence[tuple[float, int]], share: float) -> float:
    """The wait that this share of the calls did not exceed."""
    wanted = share * sum(calls for _, calls in waits)
    counted = 0
    for wait, calls in waits:
        counted += calls
        if counted >= wanted:
            return wait
    return 0.0


def _newest(rows: Sequence[Tallied], *, calls: int) -> list[Tallied]:
    """The first rows, newest first, that add up to at most `calls` calls; at least one row."""
    kept: list[Tallied] = []
    for row in rows:
        calls -= row.calls
        if calls < 0 and kept:
            break
        kept.append(row)
    return kept


def _group_size(rows: Sequence[Tallied], limits: Sequence[Limit]) -> int:
    calls = sum(row.calls for row in rows)
    fits = min(_share_of_cap(rows, limit, calls) for limit in limits)
    return max(1, min(-(-calls // MAX_CALLS_PLAYED), fits))


def _share_of_cap(rows: Sequence[Tallied], limit: Limit, calls: int) -> int:
    """How many calls of mean cost make up MIN_SHARE of a limit's cap."""
    cost = sum(row.costs[_counted_by(limit)] * row.calls for row in rows)
    each = cost / calls if calls and limit.unit not in PER_CALL else 1.0
    return int(limit.capacity * (100 - limit.headroom_percent) / 100 * MIN_SHARE / max(each, 1e-6))
