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
        as_requests: False: they only take amounts, as a batch does that is enqueued, and are no calls.
    """
    if not granted:
        return
    sums: dict[tuple[Subject, str], list[float]] = defaultdict(lambda: [0, 0.0, 0.0])
    amounts: dict[tuple[Subject, str], dict[str, float]] = defaultdict(lambda: defaultdict(float))
    stated: set[tuple[Subject, str]] = set()  # of all others the cost says everything
    for call in granted:
        total = sums[call.subject, call.kind]
        total[0] += as_requests
        total[1] += call.cost
        total[2] += call.waited_seconds
        by_unit = amounts[call.subject, call.kind]
        for unit, amount in taken(call.cost, call.known_cost, call.amounts).items():
            by_unit[unit] += amount
        if call.amounts or call.known_cost is not None:
            stated.add((call.subject, call.kind))
    subjects = [subject for subject, _ in sums]
    parameters = {
        "services": [subject.service for subject in subjects],
        "call_types": [subject.call_type for subject in subjects],
        "models": [subject.model for subject in subjects],
        "projects": [subject.project for subject in subjects],
        "users": [subject.user for subject in subjects],
        "kinds": [kind for _, kind in sums],
        "calls": plain_array([int(total[0]) for total in sums.values()]),
        "tokens": plain_array([total[1] for total in sums.values()]),
        "amounts": nullable([json.dumps(amounts[one]) if one in stated else None for one in sums]),
        "waits": plain_array([total[2] for total in sums.values()]),
    }
    run_sql("ratelimits", "insert_tallies", parameters)


def amount_of(unit: str, *, counts_cached: bool) -> Combinable:
    """Return the expression of what the calls of a tally took of a unit, as sum_tallies.sql has it."""
    if unit in PER_CALL:
        return Cast("calls", FloatField())
    missing = Value(0.0) if unit == ENQUEUED_TOKENS else F("tokens")
    whole = Coalesce(Cast(KT(f"amounts__{unit}"), FloatField()), missing, output_field=FloatField())
    if counts_cached or unit != INPUT_TOKENS:
        return whole
    free = Coalesce(Cast(KT(f"amounts__{CACHED_TOKENS}"), FloatField()), Value(0.0))
    return Greatest(whole - free, Value(0.0), output_field=FloatField())
