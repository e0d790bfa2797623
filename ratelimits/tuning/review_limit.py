"""Checking a limit before it is stored: its figures, and what a change means for the use counted already."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django.core.exceptions import ValidationError

from queueops.tenancy.models import Project
from ratelimits.limiter.view.gauges import gauges
from ratelimits.limits.known_names import KnownName, unheard_of
from ratelimits.limits.save_limit import EDITABLE, figures_of, find_limit
from ratelimits.limits.validation import KINDS, NOUNS, Findings, check_limit, figure
from ratelimits.models import Limit

COUNTERS_LOOKED_AT = 200  # the counters of a limit whose use is compared with a new cap


def propose_limit(limit_id: int | None, changes: Mapping[str, Any]) -> tuple[Limit, Findings]:
    """
    Return a limit as it would be with these changes, not stored, and the findings about it.

    If only the provider's quota is given for a bucket, the bucket gets figures that keep this quota.

    Args:
        limit_id: None: a limit to be created.

    Raises:
        UnknownLimit.
    """
    limit = Limit() if limit_id is None else find_limit(limit_id)
    before = None if limit_id is None else figures_of(limit)
    return limit, put_changes(limit, before, changes)


def put_changes(limit: Limit, before: Mapping[str, Any] | None, changes: Mapping[str, Any]) -> Findings:
    """Put changes into a limit and check it. `before` None: it is a new limit."""
    unknown = sorted(set(changes) - EDITABLE)
    if unknown:
        return Findings(faults={name: ["A limit has no such figure."] for name in unknown})
    for name, value in changes.items():
        setattr(limit, name, value.strip() if isinstance(value, str) else value)
    _fill_in(limit)
    found = _field_faults(limit)
    if not found.faults:
        found = check_limit(limit)
    if not found.faults:
        found.warnings += _warnings_of_names(limit, before or {})
    if before is not None and not found.faults:
        found.warnings += _warnings_of_change(limit, before)
    return found


def _fill_in(limit: Limit) -> None:
    stated = {name for name in EDITABLE if getattr(limit, name) is not None}
    algorithm = KINDS.get(limit.algorithm)  # `_field_faults` reports an unknown algorithm
    for name, value in algorithm.missing(limit, stated).items() if algorithm else ():
        setattr(limit, name, value)


def _field_faults(limit: Limit) -> Findings:
    found = Findings()
    for name in EDITABLE:
        value = getattr(limit, name)
        if isinstance(value, str) and "\0" in value:
            found.refuse(name, "It holds a character that cannot be stored.")
    if limit.capacity is None:
        found.refuse("capacity", "Say how much: a window's cap, a bucket's burst, or calls in flight.")
    if limit.project and not Project.objects.filter(pk=limit.project).exists():
        found.refuse("project", "There is no such project.")
    for check in (limit.clean_fields, limit.validate_unique):
        try:
            check(exclude={"id", "updated_at", *found.faults})
        except ValidationError as error:
            for name, faults in error.message_dict.items():
                for fault in faults:
                    found.refuse(name, fault)
    return found


def _warnings_of_names(limit: Limit, before: Mapping[str, Any]) -> list[str]:
    """Warn of new names in the limit that nobody knows: a limit with such a name counts nothing."""
    return [
        f"{told} Until then this limit counts nothing."
        for name in (KnownName.SERVICE, KnownName.KIND, KnownName.MODEL)
        if before.get(name) != (given := getattr(limit, name))
        for told in unheard_of(name, given)
    ]


def _warnings_of_change(limit: Limit, before: Mapping[str, Any]) -> list[str]:
    warnings = []
    if before["enabled"] and not limit.enabled:
        warnings.append("Switched off, it holds nothing back any more.")
    if before["algorithm"] != limit.algorithm:
        warnings.append("Another algorithm begins to count anew: what was used of the current window is forgotten.")
    elif before["unit"] != limit.unit:
        warnings.append("What its counters hold is in the unit before; clear them, or wait until a window has passed.")
    elif before["scope"] != limit.scope or before["per_model"] != limit.per_model:
        warnings.append("Its counters are kept by other keys from now on and begin anew.")
    elif limit.enabled and (fullest := _fullest(limit)) is not None:
        warnings.append(fullest)
    return warnings


def _fullest(limit: Limit) -> str | None:
    """Say how much is already used beyond the new cap; None: nothing is."""
    over = [gauge for gauge in gauges(limit=limit, most=COUNTERS_LOOKED_AT) if gauge.used > gauge.capacity > 0]
    if not over:
        return None
    most = max(over, key=lambda gauge: gauge.percent)
    noun = NOUNS[most.unit]
    more = len(over) - 1
    others = "" if not more else ", and 1 more key is above it" if more == 1 else f", and {more} more keys are above it"
    return (
        f"{most.key} has used {figure(round(most.used, 1))} {noun} of the new cap of {figure(most.capacity)} already:"
        f" nothing more of it goes until there is room again{others}."
    )
