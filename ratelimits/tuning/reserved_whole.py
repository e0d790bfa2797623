"""
Finds and proposes limits whose provider counts all the output that a call may bring, not only the real output.

No header of such a provider says so. The only sign is that the provider keeps refusing while our count shows room.
"""

from __future__ import annotations

from dataclasses import replace

from queueops.audit import trail
from ratelimits.costs import OUTPUT_TOKENS, TOKENS
from ratelimits.limiter.call_units import Costly, needed
from ratelimits.limiter.counters import OpenCounter, usage
from ratelimits.limits.catalogue import Rule
from ratelimits.models import Limit

REFUSALS_THAT_TELL = 3  # each after a pause: the refusals of one burst count as one


def speaks_for_whole(counter: OpenCounter, call: Costly, *, much_room: float) -> bool:
    """
    Whether a refusal contradicts our own count, but is right if its provider counts all that calls may bring.

    Earlier calls are assumed to be like the refused call, because only their use is known.

    Args:
        much_room: A part of the limit; if more is free, the refusal contradicts our count.
    """
    rule, key = counter.rule, counter.key
    if rule.shadow or rule.reserves_whole or rule.unit not in {TOKENS, OUTPUT_TOKENS}:
        return False
    own, whole = needed(rule, key, call), needed(replace(rule, reserves=Limit.Reserves.MAX), key, call)
    used, capacity = usage(rule, key, counter.stored, counter.now)
    return 0 < own < whole and capacity - used > much_room * capacity and used * whole / own > capacity


def propose_whole(rule: Rule, *, actor: str) -> bool:
    """Propose to count calls whole, in the caller's transaction. Returns whether the proposal is new."""
    # The counters are locked already, but elsewhere a limit is locked before its counters. Waiting for a locked limit
    # could deadlock, so it is skipped: another refusal will come.
    wanted = Limit.objects.filter(pk=rule.id, reserves=Limit.Reserves.USED, proposed_reserves="")
    limit = wanted.select_for_update(skip_locked=True, no_key=True).first()
    if limit is None:
        return False
    Limit.objects.filter(pk=limit.pk).update(proposed_reserves=Limit.Reserves.MAX)
    trail.record(
        actor=actor,
        action="propose_reserves",
        target=f"limit {limit.name}",
        before={"reserves": limit.reserves},
        after={"reserves": Limit.Reserves.MAX.value},
        reason=f"{limit.service} refused {REFUSALS_THAT_TELL} times while there was room by what calls use",
        project_id=limit.project,
    )
    return True
