"""Caps that a provider states for one key: proposed to operators, or taken over."""

from __future__ import annotations

import math
from collections.abc import Sequence

from django.db import transaction
from django.db.models import QuerySet

from queueops.audit import trail
from queueops.core.clock import Now
from queueops.core.values.reasons import clean_reason, required_reason
from ratelimits import subjects
from ratelimits.alerts.alerts import resolve
from ratelimits.errors import InvalidLimit, NothingProposed
from ratelimits.limits.catalogue import Rule
from ratelimits.limits.overrides import set_override
from ratelimits.limits.save_limit import SavedLimit, find_limit, project_of
from ratelimits.limits.validation import figure, safe_figures
from ratelimits.models import Counter, Limit, LimitOverride, QuotaAlert

from .limits import update_limit

MAX_PROPOSALS_SHOWN = 200


def note_stated_cap(rule: Rule, key: str, cap: float, *, actor: str) -> bool:
    """
    Keep a cap that a provider stated for one key, in the caller's transaction, which has locked the key's counter.

    The cap becomes the counter's `proposed_capacity`. If the limit learns caps, the key gets the cap at once. A limit
    that counts everyone together takes the cap as its own figures. Otherwise the cap becomes an override of the key
    alone, as other keys may have other caps. A cap that the limit cannot keep, such as one too small for a bucket,
    stays a proposal.

    Locks: the limit, unless another transaction has locked it.

    Returns:
        Whether the cap was new.
    """
    if is_known_cap(rule, key, cap):
        return False
    if rule.learns_caps and _learn(rule, key, cap, actor=actor):
        return True
    counter = Counter.objects.filter(limit_id=rule.id, key=key).first()
    before = counter.proposed_capacity if counter else None
    if counter is None or (before is not None and math.isclose(before, cap)):
        return False
    Counter.objects.filter(pk=counter.pk).update(proposed_capacity=cap, proposed_at=Now())
    trail.record(
        actor=actor,
        action="propose_cap",
        target=f"counter {counter.pk}",
        before={"proposed_capacity": before},
        after={"proposed_capacity": cap},
        reason=_reason(rule.service, key),
        project_id=project_of(key),
    )
    return True


def is_known_cap(rule: Rule, key: str, cap: float) -> bool:
    """Whether a key already has the cap that is stated for it."""
    return math.isclose(cap, known_cap(rule, key))


@transaction.atomic
def accept_proposal(counter_id: str, *, actor: str, reason: str = "") -> SavedLimit:
    """
    Take over the cap that the provider stated for a counter's key.

    The cap becomes an override of the key, or the limit's own figures if the limit counts everyone together. A window
    takes this cap as its own; a bucket gets the figures that keep the cap.

    Raises:
        UnknownLimit, NothingProposed.
        InvalidLimit: The limit's algorithm cannot keep so small a cap; nothing was changed.
    """
    limit, counter, proposed = _proposal(counter_id)
    why = clean_reason(reason) or f"the provider states a cap of {figure(proposed)}"
    try:
        saved = _take_over(limit, counter.key, proposed, actor=actor, reason=why)
    except ValueError as error:
        raise InvalidLimit(str(error), fields={"algorithm": [f"{error}; take a sliding window."]}) from None
    _forget(limit.pk, counter.key)
    return saved


@transaction.atomic
def decline_proposal(counter_id: str, *, actor: str, reason: str) -> None:
    """
    Keep a counter's cap, and delete the cap that the provider stated for its key. The provider may state one again.

    Raises:
        UnknownLimit, NothingProposed, ReasonRequired: Nothing was changed.
    """
    reason = required_reason(reason)
    limit, counter, proposed = _proposal(counter_id)
    _forget(limit.pk, counter.key)
    trail.record(
        actor=actor,
        action="decline_proposal",
        target=f"counter {counter.pk}",
        before={"proposed_capacity": proposed},
        reason=reason,
        project_id=project_of(counter.key),
    )


def proposals_of(limits: Sequence[Limit]) -> dict[int, list[Counter]]:
    """Return, by limit, the counters with a stated cap that waits for an operator."""
    found: dict[int, list[Counter]] = {}
    rows = Counter.objects.filter(limit__in=limits, proposed_capacity__isnull=False).order_by("-proposed_at")
    for counter in rows[:MAX_PROPOSALS_SHOWN]:
        found.setdefault(counter.limit_id, []).append(counter)
    return found


def told_of_cap(counter: str) -> QuerySet[QuotaAlert]:
    """The open alert that says that the provider states another cap for a counter."""
    alerts = QuotaAlert.objects.filter(kind=QuotaAlert.Kind.EXCEEDED, subject=counter, resolved_at=None)
    return alerts.filter(severity=QuotaAlert.Severity.WARNING)


def _proposal(counter_id: str) -> tuple[Limit, Counter, float]:
    """Return a proposal. Locks the limit, then the counter, in the usual order."""
    named = Counter.objects.filter(pk=counter_id).first()
    if named is None:
        raise NothingProposed
    limit = find_limit(named.limit_id, lock=True)
    counter = Counter.objects.select_for_update().filter(pk=counter_id).first()
    if counter is None or counter.proposed_capacity is None:
        raise NothingProposed
    return limit, counter, counter.proposed_capacity


def _forget(limit_id: int, key: str) -> None:
    """Delete a proposal and resolve its alert, once somebody has accepted or declined it."""
    resolve(told_of_cap(subjects.counter_id(limit_id, key)))
    Counter.objects.filter(limit_id=limit_id, key=key).update(proposed_capacity=None, proposed_at=None)


def known_cap(rule: Rule, key: str) -> float:
    """A key's cap, as its provider would state it."""
    own = rule.overrides.get(key)
    is_bucket = rule.algorithm(key).is_bucket
    if own is not None and not is_bucket:
        return own.capacity
    if rule.provider_quota is not None and own is None:
        return rule.provider_quota
    if not is_bucket:
        return rule.capacity
    capacity = rule.capacity if own is None else own.capacity
    refill = (own.refill_per_second if own else None) or rule.refill_per_second or 0.0
    return capacity + refill * (rule.window_seconds or 60)


def _learn(rule: Rule, key: str, cap: float, *, actor: str) -> bool:
    # The counter is locked already, but elsewhere a limit is locked before its counters. Waiting for a locked limit
    # could deadlock, so it is skipped: the provider will state its cap again.
    limit = Limit.objects.select_for_update(skip_locked=True, no_key=True).filter(pk=rule.id, learns_caps=True).first()
    if limit is None:
        return False
    try:
        _take_over(limit, key, cap, actor=actor, reason=_reason(rule.service, key))
    except (ValueError, InvalidLimit):
        return False
    _forget(rule.id, key)
    return True


def _take_over(limit: Limit, key: str, cap: float, *, actor: str, reason: str) -> SavedLimit:
    """
    Raises:
        ValueError: The limit's algorithm cannot keep so small a cap.
        InvalidLimit
    """
    figures = safe_figures(limit, cap)
    if limit.scope == Limit.Scope.GLOBAL and not limit.per_model:
        return update_limit(limit.pk, figures, actor=actor, reason=reason)
    own = LimitOverride.objects.filter(limit=limit, key=key).first()
    return set_override(
        limit.pk,
        key,
        capacity=figures.get("capacity", own.capacity if own else limit.capacity),
        refill_per_second=figures.get("refill_per_second"),
        note=own.note if own else reason,
        actor=actor,
        reason=reason,
    )


def _reason(service: str, key: str) -> str:
    return f"stated by {service} for {key}"
