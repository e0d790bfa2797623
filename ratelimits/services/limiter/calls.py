"""What the limiter is asked."""

from __future__ import annotations

from typing import NamedTuple

from ratelimits.costs import NO_AMOUNTS, Amounts
from ratelimits.services.limits.alternatives import Alternative
from ratelimits.subjects import Subject


class Call(NamedTuple):
    """
    One call that asks to go.

    Attributes:
        cost: Tokens, estimated. Of requests and of places in flight every call takes one.
        known_cost: The part of the cost that is no guess; None: all of it.
        holder: Under which name it settles what it holds; empty: it never will.
        kind: For the tally of who used a limit.
        waited_seconds: Since it wanted to go.
        hold_seconds: After which what it holds is reclaimed, because its holder has crashed.
        paced: It comes from a queue: a window that has been full lets it go in a steady stream, not in a burst.
        amounts: What it is estimated to take by unit, where that says more than its cost; see `ratelimits.costs`.
        crowded: More calls wait in that queue than a window admits: it goes in a stream from the first on.
        alternatives: Of a pool's call: it is counted against one of them instead, whichever has room.
    """

    subject: Subject
    cost: float = 1
    known_cost: float | None = None
    holder: str = ""
    kind: str = ""
    waited_seconds: float = 0.0
    hold_seconds: float = 600.0
    paced: bool = False
    crowded: bool = False
    amounts: Amounts = NO_AMOUNTS
    alternatives: tuple[Alternative, ...] = ()
