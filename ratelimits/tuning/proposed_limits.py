"""Prepares limits after refusals: if no limit counts a refused call, a limit is prepared for an operator to look at."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import timedelta
from hashlib import blake2b
from typing import Any

from django.db.models import Count, Q, QuerySet

from queueops.audit import trail
from queueops.core.clock import Now
from ratelimits.feedback import PushBack
from ratelimits.limits.catalogue import Rule
from ratelimits.limits.save_limit import announce_change
from ratelimits.models import Limit, Unit
from ratelimits.subjects import Subject

from .limits import delete_limit

# The most prepared limits of a project. Services come from payloads: producers could make up any number of names.
MAX_PROPOSED = 100
KEEP_PROPOSED = timedelta(days=7)
MAX_OF_A_NAME = 80

Accepted = Callable[[Subject], int]
"""How many calls such as this one a provider has accepted in the last minute."""


def propose_limits(refused: Iterable[tuple[Subject, PushBack]], *, accepted: Accepted, actor: str) -> bool:
    """
    Prepare a limit, in shadow, for each kind of refused call that no limit counts, in the caller's transaction.

    The limit belongs to the project whose calls were refused. It counts only this project, and only this project may
    see it: its service may be an address that nobody else may know. It lets everything go, but its counters cool down
    after a refusal as all counters do. Calls then wait in lanes and spend no attempts. Its figures are those that the
    provider stated, or else what the provider accepted in the minute before. An operator puts it in force. Unless an
    operator changes it, it is deleted after KEEP_PROPOSED without a refusal.

    Returns:
        Whether there is a new limit. No limit is added beyond MAX_PROPOSED of a project, or if an operator has
        switched the prepared limit off.
    """
    wanted = {_name(subject): (subject, found) for subject, found in refused}
    known = set(Limit.objects.filter(name__in=wanted).values_list("name", flat=True))
    fresh = _with_room({name: wanted[name][0].owner for name in sorted(wanted.keys() - known)})
    added = [name for name in fresh if _add(name, wanted[name][0], _figures(*wanted[name], accepted), actor=actor)]
    if added:
        announce_change()
    return bool(added)


def heed_accepted(rule: Rule, subject: Subject, accepted: Accepted) -> float:
    """Renew a prepared limit after a refusal: raise it to what the provider accepted before; return its capacity."""
    # The counters are locked already, but elsewhere a limit is locked before its counters. Waiting for a locked limit
    # could deadlock, so it is skipped: another refusal will come.
    row = _prepared().select_for_update(skip_locked=True, no_key=True).filter(pk=rule.id).first()
    if row is None:
        return rule.capacity
    is_stated = row.provider_quota is not None
    seen = row.capacity if is_stated else max(row.capacity, float(accepted(subject)))
    Limit.objects.filter(pk=row.pk).update(capacity=seen, proposed_at=Now())
    if seen != row.capacity:
        announce_change()
    return seen


def forget_proposed() -> int:
    """
    Delete prepared limits that nobody put in force and that no refusal asked for again. Returns how many.

    Prepared limits without a project, which earlier versions made, are deleted too: the next refusal prepares a
    project's own.
    """
    is_old = Q(proposed_at__lt=Now() - KEEP_PROPOSED) | Q(project="")
    old = list(_prepared().filter(is_old).values_list("pk", flat=True))
    for pk in old:
        delete_limit(pk, actor="system", reason="prepared after refusals; nobody put it in force, and none came again")
    return len(old)


def _with_room(owners: Mapping[str, str]) -> Iterator[str]:
    """Yield the names, in order, whose projects have room for another prepared limit. `owners`: project by name."""
    projects = set(owners.values())
    counted = _prepared().filter(project__in=projects).order_by().values_list("project").annotate(Count("pk"))
    taken = Counter(dict(counted))
    for name, owner in owners.items():
        if taken[owner] < MAX_PROPOSED:
            taken[owner] += 1
            yield name


def _prepared() -> QuerySet[Limit]:
    """Limits that refusals prepared and nobody has put in force since."""
    return Limit.objects.filter(proposed_at__isnull=False, shadow=True)


def _add(name: str, subject: Subject, figures: Mapping[str, Any], *, actor: str) -> bool:
    limit, is_new = Limit.objects.get_or_create(
        name=name,
        defaults={
            **figures,
            "service": subject.service,
            "project": subject.owner,
            "call_type": subject.call_type,
            "per_model": bool(subject.model),
            "scope": Limit.Scope.PROJECT_USER if subject.user else Limit.Scope.PROJECT,
            "shadow": True,
            "proposed_at": Now(),
        },
    )
    if is_new:
        trail.record(
            actor=actor,
            action="propose_limit",
            target=f"limit {name}",
            after={"service": limit.service, "capacity": limit.capacity, "unit": limit.unit, "shadow": True},
            reason=f"{subject.service} refused a call that no limit counts",
            project_id=subject.owner,
        )
    return is_new


def _figures(subject: Subject, found: PushBack, accepted: Accepted) -> dict[str, Any]:
    stated = next((one for one in found.violations if one.stated_cap is not None), None)
    note = "Prepared after a refusal that no limit counted. The figure is what the provider"
    if stated is None:
        capacity = max(1.0, float(accepted(subject)))
        return {"capacity": capacity, "note": f"{note} accepted in the minute before."}
    return {
        "capacity": stated.stated_cap,
        "provider_quota": stated.stated_cap,
        "unit": Unit(stated.unit) if stated.unit else Unit.REQUESTS,
        "window_seconds": 86_400.0 if stated.per_day else stated.window_seconds,
        "note": f"{note} states.",
    }


def _name(subject: Subject) -> str:
    """The limit's name: the same for all calls that it counts, legible, and a slug whatever the service is called."""
    scope = "user" if subject.user else "project"
    parts = (subject.owner, subject.service, subject.call_type, scope, "model" if subject.model else "")
    legible = re.sub(r"[^a-z0-9]+", "-", "-".join(parts).lower()).strip("-")
    digest = blake2b("/".join(parts).encode(errors="replace"), digest_size=3).hexdigest()
    return f"{legible[:MAX_OF_A_NAME]}-{digest}"
