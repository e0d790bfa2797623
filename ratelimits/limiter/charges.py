"""Charges: the amounts that running calls hold until their end shows the real amounts."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from queueops.core.sql import plain_array, run_sql
from ratelimits.algorithms.measures import cost_units
from ratelimits.costs import NO_AMOUNTS, UNTIL_THE_END, Amounts, counted
from ratelimits.limits.catalogue import rule_of_ramp, rules

from .counters import OpenCounter, Place
from .provider_sync import Statement


class Settlement(NamedTuple):
    """
    The end of a call.

    Attributes:
        actual: Its real cost in tokens; None: unknown, the estimate stays charged.
        amounts: The real amounts by unit, as far as they are known.
        statement: Its provider's statement about its quotas; None: the provider made none.
    """

    holder: str
    actual: float | None = None
    amounts: Amounts = NO_AMOUNTS
    statement: Statement | None = None


class Entry(NamedTuple):
    """The charge to one counter, in millionths of its unit, and the time from which it counts, in microseconds."""

    counter: str
    unit: str
    units: int
    booked_at: int


Charged = tuple[str, list[Entry]]
"""A holder and its charges."""


def take_charges(holders: Sequence[str], *, expired: int = 0) -> list[Charged]:
    """
    Delete charges in the caller's transaction, so that nobody else can settle the returned charges.

    Args:
        holders: Holders whose calls have ended or crashed; the result leaves out holders without a charge.
        expired: How many charges of other holders, not settled in time, to take at most.
    """
    if not holders and not expired:
        return []
    rows = run_sql("ratelimits", "take_charges", {"holders": sorted(set(holders)), "expired": expired})
    return [(holder, [Entry(*entry) for entry in json.loads(entries)]) for holder, entries in rows]


def write_charges(held: Iterable[tuple[str, Sequence[Entry], float]]) -> None:
    """Store each holder's charges, and after how many seconds they are reclaimed."""
    held = [(holder, entries, seconds) for holder, entries, seconds in held if entries]
    if held:
        parameters = {
            "holders": [holder for holder, _, _ in held],
            "entries": [json.dumps(entries) for _, entries, _ in held],
            "holds": plain_array([seconds for _, _, seconds in held]),
        }
        run_sql("ratelimits", "insert_charges", parameters)


def charged_places(ended: Iterable[Charged]) -> Iterable[Place]:
    """Return the counters that were charged; a limit that was switched off meanwhile has nothing to settle."""
    ended = list(ended)
    of_ramp = rule_of_ramp() if ended else None
    by_id = {rule.id: rule for rule in (*rules(), *([of_ramp] if of_ramp else []))} if ended else {}
    for _, entries in ended:
        for entry in entries:
            limit, _, key = entry.counter.partition(":")
            if rule := by_id.get(int(limit)):
                yield rule, key


def settle_charges(
    ended: Iterable[Charged], counters: Mapping[str, OpenCounter], endings: Mapping[str, Settlement] | None
) -> None:
    """
    Correct locked counters by what calls really took.

    Args:
        endings: The end of each call, by holder. None: the holders crashed, and their estimates are given back.
    """
    for holder, entries in ended:
        for entry in entries:
            counter = counters.get(entry.counter)
            if counter is None:
                continue
            if entry.unit in UNTIL_THE_END or endings is None:
                counter.give_back(entry.units, entry.booked_at)
                continue
            ending = endings[holder]
            actual = counted(entry.unit, ending.actual, ending.amounts, counts_cached=counter.rule.counts_cached)
            if actual is not None:
                more = cost_units(actual) - entry.units
                if more > 0:
                    counter.take(more)
                elif not counter.rule.reserves_whole:
                    counter.give_back(-more, entry.booked_at)
