"""Another capacity for one key of a limit."""

from __future__ import annotations

from django.db import transaction

from queueops.audit import trail
from queueops.core.values.reasons import clean_reason
from ratelimits.models import Counter, LimitOverride
from ratelimits.validation import check_override

from .save_limit import SavedLimit, announce_change, find_limit, project_of, require_sound


@transaction.atomic
def set_override(
    limit_id: int,
    key: str,
    *,
    capacity: float,
    actor: str,
    refill_per_second: float | None = None,
    note: str = "",
    reason: str = "",
) -> SavedLimit:
    """
    Give one key of a limit another capacity, or change the one it has. What its provider proposed for it is settled so.

    Args:
        key: As its counter shows it, `project:acme`.
        refill_per_second: Of a bucket; None: the limit's.

    Raises:
        UnknownLimit, InvalidLimit: Nothing was changed.
    """
    limit = find_limit(limit_id, lock=True)
    found = check_override(limit, key, capacity, refill_per_second)
    require_sound(found)
    figures = {"capacity": capacity, "refill_per_second": refill_per_second, "note": clean_reason(note)}
    before = LimitOverride.objects.filter(limit=limit, key=key).values(*figures).first()
    if before != figures:
        LimitOverride.objects.update_or_create(limit=limit, key=key, defaults=figures)
        target = f"limit {limit.name}"
        after = {"key": key, **figures}
        trail.record(
            actor=actor,
            action="set_override",
            target=target,
            before=before,
            after=after,
            reason=clean_reason(reason),
            project_id=project_of(key),
        )
        announce_change()
    Counter.objects.filter(limit=limit, key=key).update(proposed_capacity=None, proposed_at=None)
    changed = [name for name in figures if before is None or before[name] != figures[name]]
    return SavedLimit(limit.pk, tuple(sorted(changed)), tuple(found.warnings))


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
    before = {"key": key, "capacity": override.capacity, "refill_per_second": override.refill_per_second}
    override.delete()
    trail.record(
        actor=actor,
        action="delete_override",
        target=f"limit {limit.name}",
        before=before,
        reason=clean_reason(reason),
        project_id=project_of(key),
    )
    announce_change()
    return True
