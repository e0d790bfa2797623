"""Caps that a provider states in its refusals: proposed to operators, or taken over."""

from __future__ import annotations

import math

from django.db.models.functions import Now

from ratelimits import trail
from ratelimits.models import Limit, LimitOverride
from ratelimits.validation import safe_figures

from .catalogue import Rule
from .counters import PACED
from .errors import InvalidLimit
from .limits import update_limit
from .overrides import set_override
from .saving import project_of


def note_stated_cap(rule: Rule, key: str, cap: float, *, actor: str) -> bool:
    """
    Keep a cap that a provider stated for one key, in the caller's transaction.

    It becomes `proposed_capacity`, or the limit's figures where it learns caps (those of the key's override, where
    one holds), by the services that operators use. A cap that the limit cannot keep, such as one too small for a
    bucket, stays a proposal.

    Locks: the limit, unless somebody else has.

    Returns:
        Whether it was news.
    """
    if math.isclose(cap, _known_cap(rule, key)):
        return False
    # Elsewhere a limit is locked before its counters. Whoever has it now wins: the provider will state its cap again.
    limit = Limit.objects.select_for_update(skip_locked=True, no_key=True).filter(pk=rule.id).first()
    if limit is None:
        return False
    if limit.learns_caps and _take_over(limit, key, cap, actor=actor):
        return True
    if limit.proposed_capacity is not None and math.isclose(limit.proposed_capacity, cap):
        return False
    before = {"proposed_capacity": limit.proposed_capacity}
    Limit.objects.filter(pk=limit.pk).update(proposed_capacity=cap, proposed_at=Now())
    trail.record(
        actor=actor,
        action="propose_cap",
        target=f"limit {limit.name}",
        before=before,
        after={"proposed_capacity": cap},
        reason=f"stated by {limit.service} for {key}",
        project_id=project_of(key),
    )
    return True


def _known_cap(rule: Rule, key: str) -> float:
    own = rule.overrides.get(key)
    if own is not None and rule.algorithm_name not in PACED:
        return own.capacity
    if rule.provider_quota is not None and own is None:
        return rule.provider_quota
    if rule.algorithm_name not in PACED:
        return rule.capacity
    capacity = rule.capacity if own is None else own.capacity
    refill = (own.refill_per_second if own else None) or rule.refill_per_second or 0.0
    return capacity + refill * (rule.window_seconds or 60)


def _take_over(limit: Limit, key: str, cap: float, *, actor: str) -> bool:
    reason = f"stated by {limit.service} for {key}"
    try:
        figures = safe_figures(limit, cap)
        own = LimitOverride.objects.filter(limit=limit, key=key).first()
        if own is not None:
            set_override(
                limit.pk,
                key,
                capacity=figures.get("capacity", own.capacity),
                refill_per_second=figures.get("refill_per_second"),
                note=own.note,
                actor=actor,
                reason=reason,
            )
        else:
            update_limit(limit.pk, figures, actor=actor, reason=reason)
    except (ValueError, InvalidLimit):
        return False
    Limit.objects.filter(pk=limit.pk).update(proposed_capacity=None, proposed_at=None)
    return True
