"""`At most N at once`: a project's own caps of calls in flight, each an ordinary limit of algorithm `concurrency`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from django.db import transaction
from django.db.models import QuerySet
from django.utils.text import slugify

from queueops.tenancy.models import Project
from ratelimits.errors import InvalidLimit, UnknownLimit
from ratelimits.limiter.view.gauges import gauges
from ratelimits.limits.save_limit import SavedLimit
from ratelimits.models import Limit, Unit

from .limits import create_limit, delete_limit, update_limit

MAX_CALLS_AT_ONCE = 1_000_000
LEASE_SECONDS = 86_400.0  # longer than any job runs; the job's own lease gives back what a dead worker held


@dataclass(frozen=True, slots=True)
class AtOnce:
    """
    One cap and its present use.

    Attributes:
        kind, service: What the cap counts; empty: every kind, or every service.
        each_user: Each user of the project may have so many; otherwise all users together.
        used: Calls in flight now; if the cap is for each user, the calls of the user with the most.
    """

    limit_id: int
    name: str
    kind: str
    service: str
    each_user: bool
    at_most: float
    used: float
    enforced: bool


def at_once_of(project_id: str) -> list[AtOnce]:
    """Return the caps of a project, the oldest first."""
    limits = list(_caps_of(project_id))
    used: dict[int, float] = {}
    for gauge in gauges([limit.pk for limit in limits]) if limits else ():
        used[gauge.limit_id] = max(used.get(gauge.limit_id, 0.0), gauge.used)
    return [
        AtOnce(
            limit_id=limit.pk,
            name=limit.name,
            kind=limit.kind,
            service=limit.service,
            each_user=limit.scope == Limit.Scope.USER,
            at_most=limit.capacity,
            used=used.get(limit.pk, 0.0),
            enforced=limit.enabled and not limit.shadow,
        )
        for limit in limits
    ]


@transaction.atomic
def set_at_once(
    project_id: str,
    at_most: int,
    *,
    actor: str,
    kind: str = "",
    service: str = "",
    each_user: bool = False,
    reason: str = "",
) -> SavedLimit:
    """
    Let at most so many calls of a project be in flight, or change how many. Calls in flight already are not stopped.

    Locks the project, so that two people who set the same cap make one limit.

    Args:
        kind, service: Only these calls; both empty: all calls of the project.
        each_user: Each user may have so many calls; otherwise all users together.

    Raises:
        InvalidLimit: Nothing was changed.
    """
    if isinstance(at_most, bool) or not 1 <= at_most <= MAX_CALLS_AT_ONCE:
        raise InvalidLimit(fields={"at_most": [f"From 1 to {MAX_CALLS_AT_ONCE:,}. To let none go, pause the work."]})
    if not Project.objects.select_for_update(no_key=True).filter(pk=project_id).exists():
        raise InvalidLimit(fields={"project": ["There is no such project."]})
    scope = Limit.Scope.USER if each_user else Limit.Scope.GLOBAL
    found = _caps_of(project_id).filter(kind=kind.strip(), service=service.strip(), scope=scope).first()
    in_force: Mapping[str, Any] = {"capacity": float(at_most), "enabled": True, "shadow": False}
    if found is not None:
        return update_limit(found.pk, in_force, actor=actor, reason=reason)
    figures = {
        "name": _free_name(project_id, kind, service, "each-user" if each_user else ""),
        "project": project_id,
        "kind": kind,
        "service": service,
        "scope": scope,
        "unit": Unit.IN_FLIGHT,
        "algorithm": Limit.Algorithm.CONCURRENCY,
        "lease_seconds": LEASE_SECONDS,
        **in_force,
    }
    return create_limit(figures, actor=actor, reason=reason)


def remove_at_once(project_id: str, limit_id: int, *, actor: str, reason: str) -> None:
    """
    Remove a cap: calls that it held back may go at once.

    Raises:
        UnknownLimit: The project has no such cap.
        ReasonRequired: Nothing was removed.
    """
    if not _caps_of(project_id).filter(pk=limit_id).exists():
        raise UnknownLimit(limit_id=limit_id)
    delete_limit(limit_id, actor=actor, reason=reason)


def _caps_of(project_id: str) -> QuerySet[Limit]:
    return Limit.objects.filter(
        project=project_id,
        unit=Unit.IN_FLIGHT,
        call_type="any",
        model="",
        scope__in=(Limit.Scope.GLOBAL, Limit.Scope.USER),
    ).order_by("pk")


def _free_name(*parts: str) -> str:
    longest = 80
    wished = slugify(" ".join([*parts, "at once"]).replace(".", "-").replace(":", "-"))[:longest]
    taken = set(Limit.objects.filter(name__startswith=wished).values_list("name", flat=True))
    numbered = (f"{wished}-{number}" for number in range(2, len(taken) + 3))
    return wished if wished not in taken else next(name for name in numbered if name not in taken)
