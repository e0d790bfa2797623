"""Giving projects allowances, and users quotas of their own."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any
from uuid import UUID
from zoneinfo import available_timezones

from django.core.exceptions import ValidationError
from django.db import DataError, connection, transaction
from django.forms.models import model_to_dict

from queueops.audit import trail
from queueops.core.clock import Now
from queueops.core.sql import run_sql
from queueops.core.values.reasons import clean_reason
from queueops.tenancy.models import Project
from ratelimits.errors import InvalidAllowance, NoAllowance
from ratelimits.models import Allowance, AllowanceOverride

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
) -> SavedAllowance:
    """
    Give a project's users an allowance, or change it; from now on, also for the current month.

    Args:
        quota: For each user and month, in the unit.
        time_zone: IANA name: where the month begins.
        reservation_seconds: Of reservations made from now on.

    Raises:
        InvalidAllowance: Nothing was changed.
    """
    _lock(project_id)
    allowance = Allowance.objects.filter(pk=project_id).first()
    before = None if allowance is None else model_to_dict(allowance, FIGURES)
    allowance = allowance or Allowance(project_id=project_id)
    allowance.unit, allowance.quota, allowance.policy = unit, quota, policy
    allowance.time_zone, allowance.reservation_seconds = time_zone, reservation_seconds
    _require_sound(allowance)
    after = model_to_dict(allowance, FIGURES)
    changed = _changed(before, after)
    if not changed:
        return SavedAllowance((), 0)
    allowance.updated_at = Now()
    allowance.save()
    _record("set_allowance", project_id, actor, reason, before=before, after=after)
    return SavedAllowance(changed, _set_quotas(project_id), _warnings(before, after))


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
    """Let one user have the project's quota again, also in the current month. Returns whether they had another."""
    _lock(project_id)
    override = AllowanceOverride.objects.filter(project_id=project_id, user_id=user_id).first()
    if override is None:
        return False
    before = {"user_id": str(user_id), "quota": override.quota, "note": override.note}
    override.delete()
    _record("remove_allowance_override", project_id, actor, reason, before=before)
    _set_quotas(project_id)
    return True


def _lock(project_id: str) -> None:
    """Lock a project's quotas, so that changes of them follow one another."""
    if Project.objects.select_for_update(no_key=True).filter(pk=project_id).first() is None:
        raise InvalidAllowance(fields={"project_id": ["There is no such project."]})


def _require_sound(row: Allowance | AllowanceOverride) -> None:
    try:
        row.full_clean(validate_unique=False, validate_constraints=False)
    except ValidationError as error:
        raise InvalidAllowance(fields=error.message_dict) from error
    if isinstance(row, Allowance) and not _is_zone(row.time_zone):
        raise InvalidAllowance(fields={"time_zone": ["No such time zone; write it as America/Los_Angeles."]})


def _set_quotas(project_id: str) -> int:
    return len(run_sql("ratelimits", "set_month_quotas", {"project_id": project_id}))


def _is_zone(name: str) -> bool:
    """Whether a zone is known to the database, which decides the month, and to Python, which tells when it ends."""
    if name not in available_timezones():
        return False
    try:
        with transaction.atomic(), connection.cursor() as cursor:
            cursor.execute("SELECT now() AT TIME ZONE %s", [name])
    except DataError:
        return False
    return True


def _changed(before: dict[str, Any] | None, after: dict[str, Any]) -> tuple[str, ...]:
    return tuple(name for name in after if before is None or before[name] != after[name])


def _warnings(before: dict[str, Any] | None, after: dict[str, Any]) -> tuple[str, ...]:
    warnings = []
    if before and before["unit"] != after["unit"]:
        warnings.append(f"What was used of the current month was counted in {before['unit']}, and stays in its sums.")
    if before and before["time_zone"] != after["time_zone"]:
        warnings.append("The month ends at another time; what was used near its edges stays where it was counted.")
    return tuple(warnings)


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
