"""Making, changing and deleting budgets."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any
from uuid import UUID

from django.apps import apps
from django.db import transaction
from django.forms.models import model_to_dict

from queueops.audit import trail
from queueops.core.postgres.unique_names import faults_of, save_named
from queueops.core.postgres.zones import is_zone
from queueops.core.values.reasons import clean_reason
from queueops.tenancy.models import Project
from ratelimits.alerts.alerts import resolve
from ratelimits.errors import InvalidBudget, OperatorsBudget, UnknownBudget
from ratelimits.models import Budget, BudgetHold, QuotaAlert

from .budget_alerts import subject_of
from .budgets import forget

WHOSE = ("scope", "user_id", "batch_id", "period", "time_zone")  # fixed, because the budget's periods count by them
FIGURES = ("name", "amount", "policy", "note", *WHOSE)


@dataclass(frozen=True, slots=True)
class SavedBudget:
    """A saved budget. `changed`: the names of the figures that have another value now."""

    id: int
    changed: tuple[str, ...]


@transaction.atomic
def create_budget(
    project_id: str, figures: dict[str, Any], *, actor: str, reason: str = "", by_operator: bool = True
) -> SavedBudget:
    """
    Give a project a budget. It counts what was already spent in its period. After half a second all processes apply it.

    Args:
        by_operator: An operator makes it, and no key of the project may change it.

    Raises:
        InvalidBudget, ProjectMoving, ProjectMoved: Nothing was made.
    """
    if not Project.objects.filter(pk=project_id).exists():
        raise InvalidBudget(fields={"project": ["There is no such project."]})
    budget = Budget(project_id=project_id, set_by_operator=by_operator, **figures)
    _require_sound(budget)
    _store(budget)
    after = _figures(budget)
    _record("create_budget", budget, actor, reason, after=after)
    return SavedBudget(budget.pk, tuple(after))


@transaction.atomic
def change_budget(
    budget_id: int,
    figures: dict[str, Any],
    *,
    actor: str,
    reason: str = "",
    project_id: str | None = None,
    by_operator: bool = True,
) -> SavedBudget:
    """
    Change a budget's name, amount, policy or note. The calls that it counts and its periods stay as they are.

    Args:
        project_id: The project whose budget it must be; None: any.
        by_operator: An operator changes it, and no key of the project may change it from then on.

    Raises:
        UnknownBudget, InvalidBudget, OperatorsBudget, ProjectMoving, ProjectMoved: Nothing was changed.
    """
    budget = _locked(budget_id, project_id, by_operator=by_operator)
    before = _figures(budget)
    if fixed := [name for name in WHOSE if name in figures and figures[name] != getattr(budget, name)]:
        raise InvalidBudget(fields={name: ["It cannot be changed: make another budget."] for name in fixed})
    for name, value in figures.items():
        setattr(budget, name, value)
    after = _figures(budget)
    changed = tuple(name for name in FIGURES if before[name] != after[name])
    if changed:
        budget.set_by_operator = by_operator
        _store(budget)
        _record("change_budget", budget, actor, reason, before=before, after=after)
    return SavedBudget(budget.pk, changed)


@transaction.atomic
def delete_budget(
    budget_id: int, *, actor: str, reason: str = "", project_id: str | None = None, by_operator: bool = True
) -> None:
    """
    Delete a budget: jobs that wait for it go on, and its alerts are resolved. The ledger stays as it is.

    Raises:
        UnknownBudget, OperatorsBudget, ProjectMoving, ProjectMoved: Nothing was deleted.
    """
    budget = _locked(budget_id, project_id, by_operator=by_operator)
    periods = list(budget.periods.order_by("pk").select_for_update().values_list("pk", flat=True))
    BudgetHold.objects.filter(period__in=periods).delete()
    subjects = [subject_of(budget.project_id, period) for period in periods]
    resolve(QuotaAlert.objects.filter(kind=QuotaAlert.Kind.BUDGET, subject__in=subjects))
    _record("delete_budget", budget, actor, reason, before=_figures(budget))
    budget.delete()


def _locked(budget_id: int, project_id: str | None, *, by_operator: bool) -> Budget:
    rows = Budget.objects.select_for_update(of=("self",)).filter(pk=budget_id)
    found = (rows if project_id is None else rows.filter(project_id=project_id)).first()
    if found is None:
        raise UnknownBudget
    if found.set_by_operator and not by_operator:
        raise OperatorsBudget
    return found


def _store(budget: Budget) -> None:
    if faults := faults_of(budget) or save_named(budget):
        raise InvalidBudget(fields=faults)


def _require_sound(budget: Budget) -> None:
    if not is_zone(budget.time_zone):
        raise InvalidBudget(fields={"time_zone": ["No such time zone; write it as America/Los_Angeles."]})
    if faults := scope_faults(
        budget.scope, project_id=budget.project_id, user_id=budget.user_id, batch_id=budget.batch_id
    ):
        raise InvalidBudget(fields=faults)


def scope_faults(scope: str, *, project_id: str, user_id: UUID | None, batch_id: UUID | None) -> dict[str, list[str]]:
    """Return faults of a budget's scope, by field. Another project's batch gives the same fault as an unknown batch."""
    found = {}
    if (user_id is not None) != (scope == Budget.Scope.USER):
        found["user_id"] = ["Name the user of a budget of one user, and of no other."]
    if (batch_id is not None) != (scope == Budget.Scope.BATCH):
        found["batch_id"] = ["Name the batch of a budget of one batch, and of no other."]
    elif batch_id and not apps.get_model("jobs", "Batch").objects.filter(pk=batch_id, project=project_id).exists():
        found["batch_id"] = ["The project has no such batch."]
    return found


def _figures(budget: Budget) -> dict[str, Any]:
    found = model_to_dict(budget, FIGURES)
    return {name: str(value) if name in ("user_id", "batch_id") and value else value for name, value in found.items()}


def _record(action: str, budget: Budget, actor: str, reason: str, **states: Any) -> None:
    trail.record(
        actor=actor,
        action=action,
        target=f"budget {budget.pk}",
        reason=clean_reason(reason),
        project_id=budget.project_id,
        **states,
    )
    transaction.on_commit(forget)
