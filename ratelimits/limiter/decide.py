"""The decision over every limit that applies: all scopes or none, for many calls at once."""

from __future__ import annotations

from collections.abc import Sequence

from django.db import transaction

from ratelimits.costs import REQUESTS
from ratelimits.limits.alternatives import counted_as
from ratelimits.limits.catalogue import rules_for

from .calls import Call
from .charges import Settlement, charged_places, settle_charges, take_charges, write_charges
from .counters import lock_counters, write_counters
from .evaluate import Binding, Decision, Kind, Limits, weigh, why_unfit
from .provider_sync import Statement, places_stated, take_drift
from .tallies import write_tallies

__all__ = [
    "Binding",
    "Call",
    "Decision",
    "Kind",
    "Settlement",
    "Statement",
    "decide",
    "reclaim",
    "reclaim_expired",
    "settle",
    "unfit",
]


@transaction.atomic(savepoint=False)
def decide(
    calls: Sequence[Call], *, settlements: Sequence[Settlement] = (), units: frozenset[str] | None = None
) -> list[Decision]:
    """
    Decide which of these calls may go now, and charge them, in the order given; settle ended calls in the same step.

    Also corrects counters by what the providers of settled calls state about their quotas; see `provider_sync`.

    Locks the charges to be settled, then the counters of all calls and settlements in the order of their ids.

    Args:
        units: Ask only the limits of these units; None: all.

    Returns:
        One decision for each call, in order.
    """
    endings = {ending.holder: ending for ending in settlements}
    ended = take_charges(list(endings)) if endings else []
    limits = _limits(calls, units)
    places = [(rule, rule.key(subject)) for (subject, _), rules in limits.items() for rule in rules]
    statements = [ending.statement for ending in settlements if ending.statement is not None]
    counters = lock_counters([*places, *charged_places(ended), *places_stated(statements)] if endings else places)
    now = next((counter.now for counter in counters.values()), 0.0)
    if endings:
        settle_charges(ended, counters, endings)
        take_drift(statements, counters)
    decisions, charged = weigh(calls, limits, counters, now)
    write_counters(counters.values())
    write_charges([(call.holder, entries, call.hold_seconds) for call, entries in charged if call.holder])
    write_tallies([call for call, _ in charged], as_requests=units is None or REQUESTS in units)
    return decisions


def unfit(call: Call) -> tuple[str, str] | None:
    """Return the limit that can never admit a call, and why, without asking a counter; None: every limit can."""
    why: tuple[str, str] | None = None
    for subject in counted_as(call.subject):
        reasons = ((rule.name, why_unfit(call._replace(subject=subject), rule)) for rule in rules_for(subject))
        why = next(((name, reason) for name, reason in reasons if reason), None)
        if why is None:
            return None
    return why


def settle(settlements: Sequence[Settlement]) -> None:
    """Settle calls that have ended; a call that was settled before changes nothing."""
    if settlements:
        decide((), settlements=settlements)


def reclaim_expired(most: int = 1000) -> int:
    """
    Undo the charges of crashed holders: their calls in flight no longer count, nor do their estimates in any window.

    Returns:
        How many charges were reclaimed.
    """
    return reclaim([], expired=most)


@transaction.atomic(savepoint=False)
def reclaim(holders: Sequence[str], *, expired: int = 0) -> int:
    """Do what `reclaim_expired` does, for holders that are known to have crashed and for so many expired ones."""
    ended = take_charges(holders, expired=expired)
    counters = lock_counters(charged_places(ended))
    settle_charges(ended, counters, None)
    write_counters(counters.values())
    return len(ended)


def _limits(calls: Sequence[Call], units: frozenset[str] | None) -> Limits:
    """Read the limits of calls only once; otherwise a limit that appears between two reads would have no counter."""
    asked = {(call.subject, call.paced) for call in calls if not call.alternatives}
    for alternatives, paced in {(call.alternatives, call.paced) for call in calls if call.alternatives}:
        asked |= {(one.subject, paced) for one in alternatives}
    found = {(subject, paced): rules_for(subject, queued=paced) for subject, paced in asked}
    if units is None:
        return found
    return {place: tuple(rule for rule in rules if rule.unit in units) for place, rules in found.items()}
