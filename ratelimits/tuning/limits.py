"""Changing limits: checked, audited, in force at once."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from django.db import transaction
from django.db.models.functions import Collate

from queueops.audit import trail
from queueops.core.clock import Now
from queueops.core.values.reasons import clean_reason, required_reason
from ratelimits.errors import LimitChanged
from ratelimits.limits.save_limit import SavedLimit, announce_change, figures_of, find_limit, require_sound
from ratelimits.models import Counter

from .review_limit import propose_limit, put_changes


@transaction.atomic
def create_limit(figures: Mapping[str, Any], *, actor: str, reason: str = "") -> SavedLimit:
    """
    Create a limit.

    Args:
        figures: Values by the names of `Limit`'s fields; fields that are left out take the model's defaults.

    Raises:
        InvalidLimit: The error's `fields` say what is wrong with each field; nothing was created.
        ProjectMoving, ProjectMoved: Of the limit's own project. Nothing was created.
    """
    limit, found = propose_limit(None, figures)
    require_sound(found)
    limit.updated_at = Now()
    limit.save()
    kept = figures_of(limit)
    trail.record(
        actor=actor,
        action="create_limit",
        target=f"limit {limit.name}",
        after=kept,
        reason=clean_reason(reason),
        project_id=limit.project,
    )
    announce_change()
    return SavedLimit(limit.pk, tuple(sorted(kept)), tuple(found.warnings))


@transaction.atomic
def update_limit(
    limit_id: int, changes: Mapping[str, Any], *, actor: str, reason: str = "", seen_at: datetime | None = None
) -> SavedLimit:
    """
    Change a limit. Calls are decided by the new figures within a second, in every process.

    Args:
        changes: New values by the names of `Limit`'s fields.
        seen_at: The `updated_at` of the limit that the caller saw; None: change it as it is stored now.

    Raises:
        UnknownLimit, LimitChanged, InvalidLimit, ProjectMoving, ProjectMoved: Nothing was changed.
    """
    limit = find_limit(limit_id, lock=True)
    if seen_at is not None and seen_at != limit.updated_at:
        raise LimitChanged
    before = figures_of(limit)
    found = put_changes(limit, before, changes)
    require_sound(found)
    after = figures_of(limit)
    changed = sorted(name for name in after if after[name] != before[name])
    if changed:
        limit.updated_at, limit.proposed_at, limit.proposed_reserves = Now(), None, ""
        limit.save(update_fields=[*changed, "updated_at", "proposed_at", "proposed_reserves"])
        trail.record(
            actor=actor,
            action="update_limit",
            target=f"limit {limit.name}",
            before={name: before[name] for name in changed},
            after={name: after[name] for name in changed},
            reason=clean_reason(reason),
            project_id={before["project"], after["project"]} - {""},
        )
        announce_change()
    return SavedLimit(limit.pk, tuple(changed), tuple(found.warnings))


@transaction.atomic
def delete_limit(limit_id: int, *, actor: str, reason: str) -> None:
    """
    Delete a limit with its overrides, counters and alerts. Calls that it held back may go at once.

    Locks the limit, then its counters in the order of their ids.

    Raises:
        UnknownLimit, ReasonRequired, ProjectMoving, ProjectMoved: Nothing was deleted.
    """
    reason = required_reason(reason)
    limit = find_limit(limit_id, lock=True)
    before = {**figures_of(limit), "overrides": list(limit.overrides.values("key", "capacity", "refill_per_second"))}
    # Decisions lock counters in this order, whatever the database's collation. A DELETE alone would lock them as they
    # are stored, and could deadlock.
    list(Counter.objects.filter(limit=limit).order_by(Collate("pk", "C")).select_for_update().values_list("pk"))
    limit.delete()
    trail.record(
        actor=actor,
        action="delete_limit",
        target=f"limit {before['name']}",
        before=before,
        reason=reason,
        project_id=before["project"],
    )
    announce_change()
