"""
One signature over every algorithm: which of these calls may go now, and when the others may.

An algorithm is a frozen record of a limit's figures. `open` reads a counter's state at one instant into
a meter, the working copy of one decision; `admit`, `charge`, `refund` and `gauge` are pure functions over
(state, now). A decision over several limits opens one meter each and makes all its grants (`room_for` on
every meter, then `take` on every meter) before it puts the denied calls in line (`line_up`).

A state is a JSON object that the caller stores as it is; `{}` is a counter never used. A state that
another algorithm wrote counts as unused: a limit whose algorithm is changed starts anew.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

from queueops.core.errors import QueueOpsError
from ratelimits.algorithms.measures import (
    MICRO,
    MalformedCost,
    cost_units,
    microseconds,
    require_amount,
    seconds,
)

STATE_VERSION = 1

State = dict[str, Any]


class UnreadableState(QueueOpsError):
    """A newer version of the program wrote this counter's state."""

    code = "unreadable_state"
    status = 500
    detail_fields = ("version",)


class Meter(Protocol):
    """
    A counter at one instant; amounts in millionths of the limit's unit, times in microseconds.

    `moved`: the clock went back for good. The state must be written even after a denial, or the next
    decision would move it again and no time would ever pass.
    """

    now: int
    moved: bool

    def room_for(self, units: int) -> bool:
        """Say whether a call may be granted; one above the capacity needs an unused counter."""

    def take(self, units: int) -> int:
        """Count a call, room or not, and return when it leaves."""

    def line_up(self, units: int) -> int:
        """Return when a call fits, behind those lined up before it, if nothing else comes."""

    def give_back(self, units: int, granted_at: int) -> None:
        """Uncount part of a call granted then; nothing where that no longer counts."""

    def available(self) -> int:
        """Return the room left; below zero after a late charge."""

    def state(self) -> State:
        """Return the counter's new state."""


class Algorithm(Protocol):
    """
    The figures of one limit.

    `capacity` is what the limit admits (after headroom and pressure). A cost above `ceiling` (default:
    the capacity) can never fit; one between the two passes when nothing else is counted, so that a
    limit slowed for a while doesn't end a call that its full size would admit.
    """

    @property
    def capacity(self) -> float: ...

    @property
    def ceiling(self) -> float | None: ...

    def open(self, state: State, now: float) -> Meter:
        """Read a counter's state at `now`, seconds since 1970."""


class Verdict(NamedTuple):
    """
    What becomes of one call.

    `at`, seconds since 1970: when a granted call leaves (now, or later from a leaky bucket's queue); the
    earliest time for a denied one, behind the denied before it and if nothing else comes; None: never.
    """

    granted: bool
    at: float | None
    reason: str = ""

    @property
    def rejected(self) -> bool:
        """No wait will help: the cost is malformed or above the limit's ceiling."""
        return self.at is None


class Admission(NamedTuple):
    """
    A decision over one counter.

    `state` is the very object given when there is nothing to write: nothing was granted. `retry_at` is
    the first denied call's time. `booked_at` is the time the grants count from, for `refund`.
    """

    state: State
    verdicts: tuple[Verdict, ...]
    retry_at: float | None
    booked_at: float

    @property
    def granted(self) -> int:
        """How many may go."""
        return sum(verdict.granted for verdict in self.verdicts)


class Gauge(NamedTuple):
    """Figures for screens and reasons, in the limit's unit; `available` is never below zero."""

    used: float
    available: float
    capacity: float


def never_fits(algorithm: Algorithm, units: int) -> str | None:
    """Return why no wait will help a cost of so many millionths, or None."""
    if algorithm.capacity <= 0:
        return "the limit's capacity is 0"
    ceiling = algorithm.capacity if algorithm.ceiling is None else max(algorithm.ceiling, algorithm.capacity)
    if units > cost_units(ceiling):
        return f"the cost of {units / MICRO:g} is above the limit's capacity of {ceiling:g}"
    return None


def admit(algorithm: Algorithm, state: State, now: float, costs: Sequence[Any]) -> Admission:
    """
    Grant the first calls that fit, in order; a small call doesn't overtake a large one that waits.

    A rejected call holds nobody up.

    Args:
        now: Seconds since 1970 by the database's clock.
        costs: One a call, in the limit's unit.
    """
    meter = algorithm.open(state, now)
    verdicts: list[Verdict] = []
    retry_at: float | None = None
    granted = False
    for cost in costs:
        try:
            units = cost_units(cost)
        except MalformedCost as error:
            verdicts.append(Verdict(granted=False, at=None, reason=error.message))
            continue
        if reason := never_fits(algorithm, units):
            verdicts.append(Verdict(granted=False, at=None, reason=reason))
        elif retry_at is None and meter.room_for(units):
            leaves = meter.take(units)
            granted = True
            verdicts.append(Verdict(granted=True, at=now if leaves == meter.now else seconds(leaves)))
        else:
            at = seconds(meter.line_up(units))
            retry_at = at if retry_at is None else retry_at
            verdicts.append(Verdict(granted=False, at=at))
    return Admission(meter.state() if granted or meter.moved else state, tuple(verdicts), retry_at, seconds(meter.now))


def charge(algorithm: Algorithm, state: State, now: float, cost: Any) -> State:
    """
    Count what was already spent, though it may pass the capacity; nothing is granted until it has room.

    Raises:
        MalformedCost: The state is as it was.
    """
    units = cost_units(cost)
    meter = algorithm.open(state, now)
    meter.take(units)
    return meter.state()


def refund(algorithm: Algorithm, state: State, now: float, cost: Any, *, granted_at: float) -> State:
    """
    Give back what a call didn't use, to the period it was granted in and to no later one.

    Refunding one call twice is the caller's to prevent.

    Args:
        granted_at: The `booked_at` of the call's admission.

    Raises:
        MalformedCost: The state is as it was.
    """
    units = cost_units(cost)
    meter = algorithm.open(state, now)
    meter.give_back(units, microseconds(granted_at))
    return meter.state()


def gauge(algorithm: Algorithm, state: State, now: float) -> Gauge:
    """Return a counter's figures at `now`; `used` may pass the capacity after a late charge or a lowered cap."""
    available = algorithm.open(state, now).available() / MICRO
    return Gauge(used=algorithm.capacity - available, available=max(available, 0.0), capacity=algorithm.capacity)


def stored(state: State, kind: str) -> State | None:
    """
    Return the state if this kind of algorithm wrote it, None where the counter counts as unused.

    Raises:
        UnreadableState: A newer version wrote it; guessing could grant too much.
    """
    if not state or state.get("kind") != kind:
        return None
    if state["v"] != STATE_VERSION:
        raise UnreadableState(f"A limit's state has version {state['v']!r}, not {STATE_VERSION}.", version=state["v"])
    return state


def require_sizes(algorithm: Algorithm) -> None:
    """
    Check the figures that every algorithm has.

    Raises:
        ValueError: Names the figure.
    """
    require_amount("capacity", algorithm.capacity, above_zero=False)
    if algorithm.ceiling is not None:
        require_amount("ceiling", algorithm.ceiling, above_zero=False)
