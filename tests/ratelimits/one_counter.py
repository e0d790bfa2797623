"""
One counter without a database, asked and charged as production does it: `weigh` and `settle_charges` over one
`OpenCounter`. What the algorithms promise is stated over these functions of (state, now).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from ratelimits.algorithms.admission import Algorithm, State
from ratelimits.algorithms.leaky_bucket import LeakyBucket
from ratelimits.algorithms.measures import MICRO, cost_units, microseconds, seconds
from ratelimits.limiter.calls import Call
from ratelimits.limiter.charges import Entry, Settlement, settle_charges
from ratelimits.limiter.counters import OpenCounter, open_counter
from ratelimits.limiter.evaluate import weigh
from ratelimits.limits.catalogue import Rule, rule_of
from ratelimits.models import Limit, Unit
from ratelimits.subjects import Subject, counter_id

SUBJECT = Subject("svc", "write", "acme", "ada", "small")


class Verdict(NamedTuple):
    """
    What became of one call.

    `at`, seconds since 1970: when a granted call leaves (now, or later from a leaky bucket's queue); the earliest time
    for a denied one, behind the denied before it and if nothing else comes; None: never.
    """

    granted: bool
    at: float | None
    reason: str = ""

    @property
    def rejected(self) -> bool:
        return self.at is None


class Admission(NamedTuple):
    """
    A decision over one counter.

    `state` is the very object given when production would write nothing. `booked_at` is the time that the grants count
    from, for `refund`.
    """

    state: State
    verdicts: tuple[Verdict, ...]
    booked_at: float

    @property
    def granted(self) -> int:
        return sum(verdict.granted for verdict in self.verdicts)

    @property
    def retry_at(self) -> float | None:
        """The first denied call's time."""
        return next((one.at for one in self.verdicts if not one.granted and one.at is not None), None)


class Gauge(NamedTuple):
    """Figures in the limit's unit; `used` may pass the capacity after a late charge or a lowered cap."""

    used: float
    available: float
    capacity: float


class Noting:
    """A leaky bucket's meter that notes when each call leaves. No decision tells it: in production none waits there."""

    def __init__(self, meter: Any) -> None:
        self._meter = meter
        self.leaves: list[int] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._meter, name)

    def take(self, units: int) -> int:
        self.leaves.append(self._meter.take(units))
        return self.leaves[-1]


def admit(algorithm: Algorithm, state: State, now: float, costs: Sequence[Any]) -> Admission:
    """Let calls of these costs ask, in order, in one decision."""
    counter = opened(algorithm, state, now)
    noting = Noting(counter.meter)
    if isinstance(algorithm, LeakyBucket):
        counter.meter = noting
    calls = [Call(SUBJECT, cost=cost) for cost in costs]
    decisions, charged = weigh(
        calls, {(call.subject, call.paced): (counter.rule,) for call in calls}, {id_of(counter): counter}, now
    )
    assert [call for call, _ in charged] == [
        call for call, one in zip(calls, decisions, strict=True) if one.kind == "proceed"
    ]
    leaves = iter(noting.leaves)
    verdicts = []
    for one in decisions:
        at = one.retry_at
        if one.kind == "proceed":
            left = next(leaves, counter.meter.now)
            at = now if left == counter.meter.now else seconds(left)
        verdicts.append(Verdict(one.kind == "proceed", at, one.reason))
    booked_at = {entry.booked_at for _, entries in charged for entry in entries} or {counter.meter.now}
    assert booked_at == {counter.meter.now}
    return Admission(written(counter), tuple(verdicts), seconds(counter.meter.now))


def charge(algorithm: Algorithm, state: State, now: float, cost: Any) -> State:
    """Count what a call spent beyond its estimate of nothing."""
    return settled(opened(algorithm, state, now), units=0, booked_at=microseconds(now), actual=cost)


def refund(algorithm: Algorithm, state: State, now: float, cost: Any, *, granted_at: float) -> State:
    """Give back what was charged for a call that took nothing."""
    counter = opened(algorithm, state, now)
    return settled(counter, units=cost_units(cost), booked_at=microseconds(granted_at), actual=0)


def gauge(algorithm: Algorithm, state: State, now: float) -> Gauge:
    available = algorithm.open(state, now).available() / MICRO
    return Gauge(used=algorithm.capacity - available, available=max(available, 0.0), capacity=algorithm.capacity)


def opened(algorithm: Algorithm, state: State, now: float) -> OpenCounter:
    return open_counter(rule_for(algorithm), "*", state, now)


def rule_for(algorithm: Algorithm) -> Rule:
    """A limit on tokens, whose cost each call states, with this very algorithm."""
    limit = Limit(name="limit", service=SUBJECT.service, algorithm=algorithm.kind, scope="global", unit=Unit.TOKENS)
    return replace(rule_of(limit), _made={"": algorithm})


def id_of(counter: OpenCounter) -> str:
    return counter_id(counter.rule.id, counter.key)


def settled(counter: OpenCounter, *, units: int, booked_at: int, actual: Any) -> State:
    entry = Entry(id_of(counter), counter.rule.unit, units, booked_at)
    settle_charges([("call", [entry])], {id_of(counter): counter}, {"call": Settlement("call", actual)})
    return written(counter)


def written(counter: OpenCounter) -> State:
    """The state as `write_counters` leaves it."""
    return counter.state() if counter.changed or counter.meter.moved else counter.stored
