"""Tallies: who was granted how many calls, for screens and simulations."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Sequence

from queueops.core.sql import nullable, plain_array, run_sql
from ratelimits.subjects import Subject

from .calls import Call


def write_tallies(granted: Sequence[Call]) -> None:
    """Add one row for each subject and kind among the calls."""
    if not granted:
        return
    sums: dict[tuple[Subject, str], list[float]] = defaultdict(lambda: [0, 0.0, 0.0])
    stated: dict[tuple[Subject, str], dict[str, float]] = {}
    for call in granted:
        total = sums[call.subject, call.kind]
        total[0] += 1
        total[1] += call.cost
        total[2] += call.waited_seconds
        if call.amounts:
            by_unit = stated.setdefault((call.subject, call.kind), {})
            for unit, amount in call.amounts.items():
                by_unit[unit] = by_unit.get(unit, 0.0) + amount
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
        "amounts": nullable([json.dumps(stated[one]) if one in stated else None for one in sums]),
        "waits": plain_array([total[2] for total in sums.values()]),
    }
    run_sql("ratelimits", "insert_tallies", parameters)
