"""The calls about which the limiter is asked."""

from __future__ import annotations

from typing import NamedTuple

from ratelimits.costs import NO_AMOUNTS, Amounts
from ratelimits.limits.alternatives import Alternative
from ratelimits.subjects import Subject


class Call(NamedTuple):
    """
    One call that asks to go.

    Attributes:
        cost: Estimated tokens. Every call also takes one request and one place in flight.
        known_cost: The part of the cost that is no guess; None: all of it.
        holder: The name under which the call is settled when it ends; empty: it is never settled.
        kind: The kind of its job, for the tally of who used a limit.
        waited_seconds: How long the call has waited to go.
        hold_seconds: After this time its holder counts as crashed, and its charge is reclaimed.
        paced: It comes from a queue. A window that has been full lets such calls go in a steady stream, not in a burst.
        amounts: Its estimated amounts by unit, where they say more than its cost; see `ratelimits.costs`.
        crowded: More calls wait in its queue than a window admits, so even the first ones leave in a stream.
        alternatives: The members of a credential pool. The call counts against a member with room, not its `subject`.
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
