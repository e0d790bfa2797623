"""Giving projects allowances, and users quotas of their own."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any
from uuid import UUID

from django.core.exceptions import ValidationError
from django.db import transaction
from django.forms.models import model_to_dict

from queueops.audit import trail
from queueops.core.clock import Now
from queueops.core.postgres.zones import is_zone
from queueops.core.sql import run_sql
from queueops.core.values.reasons import clean_reason
from queueops.tenancy.models import Project
from queueops.tenancy.moves import hold_projects
from ratelimits.errors import AllowanceExists, AllowanceInUse, InvalidAllowance, NoAllowance, OperatorsAllowance
from ratelimits.models import Allowance, AllowanceOverride

from .reports import MAX_USERS_COUNTED, current_month, users_beyond, was_used

FIGURES = ("unit", "quota", "policy", "time_zone", "reservation_seconds")


@dataclass(frozen=True, slots=True)
class SavedAllowance:
    """
    Attributes:
        changed: The names of the figures that have another value now.
        months: How many users' months, current or later, have another quota now.
        warnings: What the change means, if that may surprise.
    """

    changed: tuple[str, ...]
    months: int
    warnings: tuple[str, ...] = ()


@transaction.atomic
def set_allowance(
    project_id: str,
    *,
    unit: str,
    quota: int,
    policy: str,
    time_zone: str,
    reservation_seconds: int,
    actor: str,
    reason: str = "",
    by_operator: bool = True,
) -> SavedAllowance:
    """
    Give a project's users an allowance, or change it; from now on, also for the current month.

    Args:
        quota: What each user may use in a month, in the unit.
        time_zone: IANA name of the zone in which months begin.
        reservation_seconds: How long reservations made from now on last.
        by_operator: An operator sets the allowance, and no key of the project may change it from then on.

    Raises:
        InvalidAllowance, OperatorsAllowance: Nothing was changed.
    """
    allowance = _locked(project_id, by_operator=by_operator)
    before = None if allowance is None else model_to_dict(allowance, FIGURES)
    allowance = allowance or Allowance(project_id=project_id)
    allowance.unit, allowance.quota, allowance.policy = unit, quota, policy
    allowance.time_zone, allowance.reservation_seconds = time_zone, reservation_seconds
    _require_sound(allowance)
    # A zone that was taken before must not keep other figures from being changed.
    if before is None or before["time_zone"] != time_zone:
        _require_zone(time_zone)
    after = model_to_dict(allowance, FIGURES)
    changed = _changed(before, after)
    if not changed:
        return SavedAllowance((), 0)
    warnings = changes_that_bite(Allowance(project_id=project_id, **before), after) if before else ()
    allowance.set_by_operator, allowance.updated_at = by_operator, Now()
    allowance.save()
    _record("set_allowance", project_id, actor, reason, before=before, after=after)
    return SavedAllowance(changed, _set_quotas(project_id), tuple(warnings))


@transaction.atomic
def create_allowance(project_id: str, figures: dict[str, Any], *, actor: str, **by: Any) -> SavedAllowance:
    """
    Do what `set_allowance` does, for a project without an allowance; figures left out take the model's defaults.

    Args:
        by: The arguments `reason` and `by_operator` of `set_allowance`.

    Raises:
        AllowanceExists, InvalidAllowance, ProjectMoving, ProjectMoved: Nothing was made.
    """
    hold_projects([project_id], actor)
    _lock(project_id)
    if Allowance.objects.filter(pk=project_id).exists():
        raise AllowanceExists
    return set_allowance(project_id, **{**model_to_dict(Allowance(), FIGURES), **figures}, actor=actor, **by)


@transaction.atomic
def change_allowance(project_id: str, figures: dict[str, Any], **by: Any) -> SavedAllowance:
    """
    Do what `set_allowance` does, for a project with an allowance; figures left out stay as they are.

    Args:
        by: The arguments `actor`, `reason` and `by_operator` of `set_allowance`.

    Raises:
        NoAllowance, InvalidAllowance, OperatorsAllowance: Nothing was changed.
    """
    allowance = _locked(project_id)
    if allowance is None:
        raise NoAllowance
    return set_allowance(project_id, **{**model_to_dict(allowance, FIGURES), **figures}, **by)


@transaction.atomic
def delete_allowance(project_id: str, *, actor: str, reason: str = "", by_operator: bool = True) -> None:
    """
    Delete a project's allowance. Earlier months stay, and also single users' quotas, which its next allowance uses.

    Raises:
        NoAllowance, OperatorsAllowance, AllowanceInUse, ProjectMoving, ProjectMoved: Nothing was deleted.
    """
    hold_projects([project_id], actor)
    allowance = _locked(project_id, by_operator=by_operator)
    if allowance is None:
        raise NoAllowance
    if was_used(project_id, current_month(allowance.time_zone)):
        raise AllowanceInUse
    before = model_to_dict(allowance, FIGURES)
    allowance.delete()
    _record("delete_allowance", project_id, actor, reason, before=before)


@transaction.atomic
def set_override(
    project_id: str, user_id: UUID, *, quota: int, note: str = "", actor: str, reason: str = ""
) -> SavedAllowance:
    """
    Give one user a quota of their own; from now on, also for the current month.

    Raises:
        NoAllowance, InvalidAllowance: Nothing was changed.
    """
    _lock(project_id)
    if not Allowance.objects.filter(pk=project_id).exists():
        raise NoAllowance
    override = AllowanceOverride.objects.filter(project_id=project_id, user_id=user_id).first()
    before = model_to_dict(override, ("quota", "note")) if override else None
    override = override or AllowanceOverride(project_id=project_id, user_id=user_id)
    override.quota, override.note = quota, clean_reason(note)
    _require_sound(override)
    after = model_to_dict(override, ("quota", "note"))
    changed = _changed(before, after)
    if not changed:
        return SavedAllowance((), 0)
    override.save()
    user = {"user_id": str(user_id)}
    _record("set_allowance_override", project_id, actor, reason, before=before, after=user | after)
    return SavedAllowance(changed, _set_quotas(project_id))


@transaction.atomic
def remove_override(project_id: str, user_id: UUID, *, actor: str, reason: str = "") -> bool:
    """Let one user have the project's quota again, also in the current month. Returns whether they had their own."""
    _lock(project_id)
    override = AllowanceOverride.objects.filter(project_id=project_id, user_id=user_id).first()
    if override is None:
        return False
    before = {"user_id": str(user_id), "quota": override.quota, "note": override.note}
    override.delete()
    _record("remove_allowance_override", project_id, actor, reason, before=before)
    _set_quotas(project_id)
    return True


def changes_that_bite(before: Allowance, after: dict[str, Any]) -> list[str]:
    """Return warnings that a person must read before these figures take effect."""
    found = []
    month = current_month(before.time_zone)
    used = was_used(before.pk, month)
    if after["unit"] != before.unit and used:
        found.append(
            f"What was used in {month} was counted in {before.unit} and is not converted: from now on the same numbers"
            f" are {after['unit']}. Reservations that are active keep their amounts too. Change the unit at the"
            " beginning of a month, or correct the users afterwards."
        )
    if after["quota"] < before.quota and (beyond := users_beyond(before.pk, month, after["quota"])):
        words = f"More than {MAX_USERS_COUNTED:,}" if beyond > MAX_USERS_COUNTED else f"{beyond:,}"
        found.append(
            f"{words} of the users without a quota of their own have used or reserved more than"
            f" {after['quota']:,} {after['unit']} in {month} already: nothing more can be reserved for them."
        )
    if after["policy"] != before.policy:
        found.append(
            "From now on nothing is reserved beyond the quota: calls may be refused that went through until now."
            if after["policy"] == Allowance.Policy.STRICT
            else "From now on reservations pass the quota. Use beyond it is recorded as overage, and nothing stops it."
        )
    if after["time_zone"] != before.time_zone and used:
        found.append(
            "Months begin at another instant: near the edge of a month a user's next use may count in another month"
            " than the last. Earlier use stays in the month in which it was counted."
        )
    return found


def _locked(project_id: str, *, by_operator: bool = True) -> Allowance | None:
    """Lock a project's quotas; return its allowance."""
    _lock(project_id)
    allowance = Allowance.objects.filter(pk=project_id).first()
    if allowance and allowance.set_by_operator and not by_operator:
        raise OperatorsAllowance
    return allowance


def _lock(project_id: str) -> None:
    """
    Lock a project's quotas, so that changes of them follow one another.

    Raises:
        InvalidAllowance: There is no such project.
    """
    if Project.objects.select_for_update(no_key=True).filter(pk=project_id).first() is None:
        raise InvalidAllowance(fields={"project_id": ["There is no such project."]})


def _require_sound(row: Allowance | AllowanceOverride) -> None:
    try:
        row.full_clean(validate_unique=False, validate_constraints=False)
    except ValidationError as error:
        raise InvalidAllowance(fields=error.message_dict) from error


def _require_zone(name: str) -> None:
    if not is_zone(name):
        raise InvalidAllowance(fields={"time_zone": ["No such time zone; write it as America/Los_Angeles."]})


def _set_quotas(project_id: str) -> int:
    return len(run_sql("ratelimits", "set_month_quotas", {"project_id": project_id}))


def _changed(before: dict[str, Any] | None, after: dict[str, Any]) -> tuple[str, ...]:
    return tuple(name for name in after if before is None or before[name] != after[name])


def _record(action: str, project_id: str, actor: str, reason: str, *, before: Any = None, after: Any = None) -> None:
    trail.record(
        actor=actor,
        action=action,
        target=f"allowance {project_id}",
        before=before,
        after=after,
        reason=clean_reason(reason),
        project_id=project_id,
    )
