"""Another capacity for one key of a limit."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

from django.db import transaction
from django.db.models import QuerySet

from queueops.audit import trail
from queueops.core.clock import Now, database_moment
from queueops.core.values.reasons import clean_reason
from ratelimits.models import Counter, Limit, LimitOverride

from .save_limit import SavedLimit, announce_change, find_limit, project_of, require_sound
from .validation import check_override

MAX_OVERRIDE = timedelta(days=31)
ENDED_AT_ONCE = 100
LASTING = ("capacity", "refill_per_second", "note")


@transaction.atomic
def set_override(
    limit_id: int,
    key: str,
    *,
    capacity: float,
    actor: str,
    refill_per_second: float | None = None,
    ends_at: datetime | None = None,
    note: str = "",
    reason: str = "",
) -> SavedLimit:
    """
    Give one key of a limit another capacity, or change that capacity. This settles a provider's proposal for the key.

    Args:
        key: The key as its counter shows it, such as `project:acme`.
        refill_per_second: The refill of a bucket; None: the limit's refill.
        ends_at: The time from which the key has its earlier figures again. Setting the override again with another
            end does not change the earlier figures. None: the override stays.

    Raises:
        UnknownLimit, InvalidLimit: Nothing was changed.
    """
    limit = find_limit(limit_id, lock=True)
    found = check_override(limit, key, capacity, refill_per_second)
    if ends_at is not None and (fault := fault_of_end(ends_at)):
        found.refuse("ends_at", fault)
    require_sound(found)
    figures = {"capacity": capacity, "refill_per_second": refill_per_second, "note": clean_reason(note)}
    stored = LimitOverride.objects.filter(limit=limit, key=key)
    before = next(iter(stored.values(*figures, "ends_at")), None)
    ended = {**figures, "ends_at": ends_at}
    if before != ended:
        then = None if ends_at is None else _lasting(stored)
        LimitOverride.objects.update_or_create(limit=limit, key=key, defaults={**ended, "comes_back_to": then})
        _record("set_override", limit, key, before=before, after=ended, actor=actor, reason=reason)
        announce_change()
    Counter.objects.filter(limit=limit, key=key).update(proposed_capacity=None, proposed_at=None)
    known = before or {"ends_at": None}
    changed = [name for name in ended if name not in known or known[name] != ended[name]]
    return SavedLimit(limit.pk, tuple(sorted(changed)), tuple(found.warnings))


def _lasting(stored: QuerySet[LimitOverride]) -> dict[str, Any] | None:
    """Return a key's lasting figures: its override without an end, or the figures that hold after its override ends."""
    row = stored.first()
    if row is None:
        return None
    return row.comes_back_to if row.ends_at else {name: getattr(row, name) for name in LASTING}


@transaction.atomic
def end_override(limit_id: int, key: str, *, actor: str, reason: str = "") -> bool:
    """
    End an override that has an end, before or after its time. Return whether there was such an override.

    Raises:
        UnknownLimit.
    """
    limit = find_limit(limit_id, lock=True)
    override = LimitOverride.objects.filter(limit=limit, key=key, ends_at__isnull=False).first()
    if override is None:
        return False
    before = {name: getattr(override, name) for name in (*LASTING, "ends_at")}
    if override.comes_back_to is None:
        override.delete()
    else:
        LimitOverride.objects.filter(pk=override.pk).update(ends_at=None, comes_back_to=None, **override.comes_back_to)
    _record("end_override", limit, key, before=before, after=override.comes_back_to, actor=actor, reason=reason)
    announce_change()
    return True


def end_due(*, actor: str) -> int:
    """Remove overrides that are over, for the audit trail and the lists. They have no effect any more."""
    due = LimitOverride.objects.filter(ends_at__lte=Now()).order_by("ends_at")
    found = list(due.values_list("limit_id", "key")[:ENDED_AT_ONCE])
    return sum(end_override(limit_id, key, actor=actor, reason="its time is over") for limit_id, key in found)


def fault_of_end(ends_at: datetime) -> str:
    """Say why an override cannot end at `ends_at`; empty: it can."""
    now = database_moment()
    if ends_at <= now:
        return f"{ends_at:%Y-%m-%d %H:%M %Z} is over: it is {now:%Y-%m-%d %H:%M %Z}."
    return "" if ends_at <= now + MAX_OVERRIDE else f"At most {MAX_OVERRIDE.days} days ahead; without an end it stays."


def _record(action: str, limit: Limit, key: str, *, before: Any, after: Any, actor: str, reason: str) -> None:
    told = [one and {"key": key, **one} for one in (before, after)]
    trail.record(
        actor=actor,
        action=action,
        target=f"limit {limit.name}",
        before=told[0],
        after=told[1],
        reason=clean_reason(reason),
        project_id=project_of(key),
    )


@transaction.atomic
def delete_override(limit_id: int, key: str, *, actor: str, reason: str = "") -> bool:
    """
    Let one key have the limit's own figures again. Returns whether it had others.

    Raises:
        UnknownLimit.
    """
    limit = find_limit(limit_id, lock=True)
    override = LimitOverride.objects.filter(limit=limit, key=key).first()
    if override is None:
        return False
    before = {name: getattr(override, name) for name in (*LASTING, "ends_at")}
    override.delete()
    _record("delete_override", limit, key, before=before, after=None, actor=actor, reason=reason)
    announce_change()
    return True
