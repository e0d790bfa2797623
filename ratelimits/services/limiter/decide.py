"""The decision over every limit that applies: all scopes or none, for many calls at once."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from django.db import transaction

from ratelimits.services.limits.catalogue import Rule, rules_for

from .calls import Call
from .charges import Settlement, charged_places, settle_charges, take_charges, write_charges
from .counters import Place, lock_counters, write_counters
from .tallies import write_tallies
from .weigh import Binding, Decision, Kind, weigh, why_unfit

__all__ = [
    "Binding",
    "Call",
    "Decision",
    "Kind",
    "Settlement",
    "decide",
    "reclaim",
    "reclaim_expired",
    "settle",
    "unfit",
]


@transaction.atomic(savepoint=False)
def decide(calls: Sequence[Call], *, settlements: Sequence[Settlement] = ()) -> list[Decision]:
    """
    Decide which of these calls may go now and charge those, in the order given; settle others in the same step.

    Locks the charges settled, then the counters of all calls and settlements in the order of their ids.

    Returns:
        One decision a call, in order.
    """
    ended = take_charges([ending.holder for ending in settlements])
    applied = [rules_for(call.subject, queued=call.paced) for call in calls]
    counters = lock_counters([*_places(calls, applied), *charged_places(ended)])
    now = next((counter.now for counter in counters.values()), 0.0)
    settle_charges(ended, counters, {ending.holder: ending.actual for ending in settlements})
    decisions, charged = weigh(calls, applied, counters, now)
    write_counters(counters.values())
    write_charges([(call.holder, entries, call.hold_seconds) for call, entries in charged if call.holder])
    write_tallies([call for call, _ in charged])
    return decisions


def unfit(call: Call) -> tuple[str, str] | None:
    """Return the limit that can never admit a call, and why, without asking a counter; None: each can, some time."""
    for rule in rules_for(call.subject):
        if reason := why_unfit(call, rule):
            return rule.name, reason
    return None


def settle(settlements: Sequence[Settlement]) -> None:
    """Settle calls that have ended; one that was settled before changes nothing."""
    if settlements:
        decide((), settlements=settlements)


def reclaim_expired(most: int = 1000) -> int:
    """
    Take back what crashed holders held: estimates into their own window, places in flight at once.

    Returns:
        How many charges were reclaimed.
    """
    return _reclaim([], most)


def reclaim(holders: Sequence[str]) -> int:
    """Do what `reclaim_expired` does, for holders that are known to have crashed."""
    return _reclaim(holders, 0) if holders else 0


@transaction.atomic(savepoint=False)
def _reclaim(holders: Sequence[str], most: int) -> int:
    ended = take_charges(holders, expired=most)
    counters = lock_counters(charged_places(ended))
    settle_charges(ended, counters, None)
    write_counters(counters.values())
    return len(ended)


def _places(calls: Sequence[Call], applied: Sequence[tuple[Rule, ...]]) -> Iterable[Place]:
    seen = set()
    for call, applicable in zip(calls, applied, strict=True):
        if call.subject not in seen:
            seen.add(call.subject)
            yield from ((rule, rule.key(call.subject)) for rule in applicable)
