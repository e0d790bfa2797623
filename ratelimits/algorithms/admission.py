"""
What every algorithm can be asked: whether a call may go now, and when it may.

An algorithm is a frozen record of a limit's figures. `open` reads a counter's state at one instant into
a meter, the working copy of one decision. A decision over several limits opens one meter each and makes
all its grants (`room_for` on every meter, then `take` on every meter) before it puts the denied calls in
line (`line_up`); see ratelimits/services/limiter/weigh.py.

A state is a JSON object that the caller stores as it is; `{}` is a counter never used. A state that
another algorithm wrote counts as unused: a limit whose algorithm is changed starts anew.
"""

from __future__ import annotations

from typing import Any, Protocol

from queueops.core.errors import QueueOpsError
from ratelimits.algorithms.measures import (
    MICRO,
    cost_units,
    require_amount,
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
        ValueError: Names the figure.
    """
    require_amount("capacity", algorithm.capacity, above_zero=False)
    if algorithm.ceiling is not None:
        require_amount("ceiling", algorithm.ceiling, above_zero=False)
