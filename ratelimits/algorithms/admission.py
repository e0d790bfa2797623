"""
The interface of every algorithm: whether a call may go now, and when it may.

An algorithm is a frozen record of a limit's figures. `open` reads a counter's state at one instant into
a meter, the working copy of one decision. A decision over several limits opens one meter for each. It makes
all its grants first: `room_for` on every meter, then `take` on every meter. Only then does it put the denied
calls in line (`line_up`). See ratelimits/limiter/evaluate.py.

A state is a JSON object that the caller stores as it is; `{}` is a counter never used. A state that
another algorithm wrote counts as unused: a limit whose algorithm is changed starts anew.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Set as AbstractSet
from typing import Any, ClassVar, Protocol, Self

from queueops.core.errors import QueueOpsError
from ratelimits.algorithms.figures import Figures, Findings, cap_a_window, check_cap
from ratelimits.algorithms.measures import MICRO, cost_units, require_amount

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

    `moved`: the clock went back for good. The state must then be written even after a denial. Otherwise the next
    decision would move the state again and no time would ever pass.
    """

    now: int
    moved: bool

    def room_for(self, units: int) -> bool:
        """Say whether a call may be granted; a call above the capacity needs an unused counter."""

    def take(self, units: int) -> int:
        """Count a call, whether or not there is room, and return when it leaves."""

    def line_up(self, units: int) -> int:
        """Return when a call fits, behind the calls lined up before it, if nothing else comes."""

    def give_back(self, units: int, granted_at: int) -> None:
        """Uncount part of a call that was granted at `granted_at`; do nothing where it no longer counts."""

    def available(self) -> int:
        """Return the room left; below zero after a late charge."""

    def state(self) -> State:
        """Return the counter's new state."""


class Algorithm(ABC):
    """
    The figures of one limit, and all behaviour and wording that depend on the kind of algorithm.

    `capacity` is what the limit admits (after headroom and pressure). A cost above `ceiling` (default:
    the capacity) can never fit. A cost between the two passes when nothing else is counted. A limit that is slowed for
    a while thus rejects no call that its full size would admit.

    Attributes:
        kind: Its name in limits and in the states of counters.
        reads: The figures that it reads, or against which its other figures are checked.
        optional: The figures among `reads` that may be left out.
        is_bucket: Whether it has no window, so that only its pace says how much it lets through.
        counts_in_flight: Whether it counts the calls that run, instead of calls by time.
    """

    __slots__ = ()

    kind: ClassVar[str]
    reads: ClassVar[frozenset[str]]
    optional: ClassVar[frozenset[str]] = frozenset({"slack_seconds", "provider_quota", "reset_zone"})
    is_bucket: ClassVar[bool] = False
    counts_in_flight: ClassVar[bool] = False

    capacity: float
    ceiling: float | None

    @classmethod
    @abstractmethod
    def of(cls, figures: Figures, capacity: float, rate: float, pressure: float) -> Self:
        """
        Make the algorithm from a limit's figures.

        Args:
            capacity: What one key may have, after headroom.
            rate: Its refill a second, after headroom; 0: none is stated.
            pressure: The part of the cap in use since the provider pushed back, above 0 to 1.
        """

    @abstractmethod
    def open(self, state: State, now: float) -> Meter:
        """Read a counter's state at `now`, seconds since 1970."""

    @property
    def rate_per_second(self) -> float | None:
        """
        The pace, in the limit's unit, at which a queue behind the limit drains; None: the length of calls sets the
        pace.
        """
        return None

    @property
    def late_seconds(self) -> float:
        """How many seconds later than other calls a call may reach its provider without exceeding the quota."""
        return 0.0

    @property
    def recovers_by_day(self) -> bool:
        """Whether room comes back only at a daily reset."""
        return False

    def reset_after(self, time: int) -> int | None:
        """
        Return when, after `time`, all room comes back at once; both in microseconds since 1970.

        None: it comes back bit by bit.
        """
        return None

    @classmethod
    def in_words(cls, figures: Figures) -> str:
        """Return the cap as people say it: `300 calls a minute`."""
        return cap_a_window(figures)

    @classmethod
    def check(cls, figures: Figures, found: Findings) -> None:
        """Refuse figures that do not go together, and warn of what they mean. Each figure by itself is sound."""
        if "provider_quota" in cls.reads:
            check_cap(figures, found)

    @classmethod
    def bound_in_words(cls, figures: Figures, capacity: float, rate: float) -> str | None:
        """Say how much may pass in one window of the provider; None: no more than the capacity."""
        return None

    @classmethod
    def safe(cls, figures: Figures, quota: float) -> dict[str, float | None]:
        """
        Return the figures with which this algorithm keeps a provider's quota in every window of the provider.

        Raises:
            ValueError: No figures can keep so small a quota.
        """
        return {"capacity": quota, "provider_quota": None if figures.provider_quota is None else quota}

    @classmethod
    def missing(cls, figures: Figures, stated: AbstractSet[str]) -> dict[str, float | None]:
        """Return the figures that were left out and follow from the `stated` ones."""
        return {}


def never_fits(algorithm: Algorithm, units: int) -> str | None:
    """Return why no wait will help a cost of so many millionths, or None."""
    if algorithm.capacity <= 0:
        return "the limit's capacity is 0"
    ceiling = algorithm.capacity if algorithm.ceiling is None else max(algorithm.ceiling, algorithm.capacity)
    if units > cost_units(ceiling):
        return f"the cost of {units / MICRO:g} is above the limit's capacity of {ceiling:g}"
    return None


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
        ValueError: A figure is not a sound number; the message names it.
    """
    require_amount("capacity", algorithm.capacity, above_zero=False)
    if algorithm.ceiling is not None:
        require_amount("ceiling", algorithm.ceiling, above_zero=False)
