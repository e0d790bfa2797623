"""Tallies: who was granted how many calls, and what they took, for screens, forecasts and simulations."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Sequence

from django.db.models import F, FloatField, Value
from django.db.models.expressions import Combinable
from django.db.models.fields.json import KT
from django.db.models.functions import Cast, Coalesce, Greatest

from queueops.core.sql import nullable, plain_array, run_sql
from ratelimits.costs import CACHED_TOKENS, ENQUEUED_TOKENS, INPUT_TOKENS, PER_CALL, taken
from ratelimits.subjects import Subject

from .calls import Call


def write_tallies(granted: Sequence[Call], *, as_requests: bool = True) -> None:
    """
    Add one row for each subject and kind among the calls.

    Args:
        as_requests: False: count only the amounts of the calls, and no calls, such as for a batch that is enqueued.
    """
    if not granted:
        return
    alike: dict[tuple[Subject, str], list[Call]] = {}
    for call in granted:
        alike.setdefault((call.subject, call.kind), []).append(call)
    subjects = [subject for subject, _ in alike]
    amounts = [_amounts(calls) for calls in alike.values()]
    parameters = {
        "services": [subject.service for subject in subjects],
        "call_types": [subject.call_type for subject in subjects],
        "models": [subject.model for subject in subjects],
        "projects": [subject.project for subject in subjects],
        "users": [subject.user for subject in subjects],
        "kinds": [kind for _, kind in alike],
        "calls": plain_array([len(calls) if as_requests else 0 for calls in alike.values()]),
        "tokens": plain_array([sum(call.cost for call in calls) for calls in alike.values()]),
        "amounts": nullable([None if sums is None else json.dumps(sums) for sums in amounts]),
        "waits": plain_array([sum(call.waited_seconds for call in calls) for calls in alike.values()]),
    }
    run_sql("ratelimits", "insert_tallies", parameters)


def _amounts(calls: Sequence[Call]) -> dict[str, float] | None:
    """The sums of what calls take, by unit; None if the cost says everything about each call."""
    if not any(call.amounts or call.known_cost is not None for call in calls):
        return None
    sums: dict[str, float] = defaultdict(float)
    for call in calls:
        for unit, amount in taken(call.cost, call.known_cost, call.amounts).items():
            sums[unit] += amount
    return sums


def amount_of(unit: str, *, counts_cached: bool) -> Combinable:
    """Return the expression for what the calls of a tally took of a unit, as in sum_tallies.sql."""
    if unit in PER_CALL:
        return Cast("calls", FloatField())
    missing = Value(0.0) if unit == ENQUEUED_TOKENS else F("tokens")
    whole = Coalesce(Cast(KT(f"amounts__{unit}"), FloatField()), missing, output_field=FloatField())
    if counts_cached or unit != INPUT_TOKENS:
        return whole
    free = Coalesce(Cast(KT(f"amounts__{CACHED_TOKENS}"), FloatField()), Value(0.0))
    return Greatest(whole - free, Value(0.0), output_field=FloatField())
