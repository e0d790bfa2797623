"""Makes, changes and deletes objectives."""

from __future__ import annotations

from typing import Any

from django.db import transaction
from django.forms.models import model_to_dict

from jobs.models import Objective, ObjectiveSample
from queueops.audit import trail
from queueops.core.errors import QueueOpsError
from queueops.core.postgres.unique_names import faults_of, save_named
from queueops.core.values.reasons import clean_reason


class BadObjective(QueueOpsError):
    """A figure of an objective is not valid, or there is none of that id."""

    code = "bad_objective"
    status = 422


COUNTED = ("aim", "within_seconds", "project", "kind", "service")  # they decide which jobs are counted
FIGURES = ("name", "percent", "window_days", "note", *COUNTED)


@transaction.atomic
def save_objective(objective_id: int | None, figures: dict[str, Any], *, actor: str, reason: str = "") -> Objective:
    """
    Make an objective, or change one. If other jobs or another time count from then on, counting begins anew.

    Args:
        objective_id: None: a new one.
        figures: Values by their names in FIGURES; `project` is a Project or None.

    Raises:
        BadObjective: A figure is not valid, or there is no such objective. Nothing was changed.
    """
    objective = Objective() if objective_id is None else _locked(objective_id)
    before = None if objective_id is None else _figures(objective)
    for name, value in figures.items():
        setattr(objective, name, value)
    if objective.aim == Objective.Aim.SUCCEED:
        objective.within_seconds = None
    if faults := faults_of(objective):
        raise BadObjective(fields=faults)
    after = _figures(objective)
    if before is None or any(before[name] != after[name] for name in COUNTED):
        objective.counts_from = None
        ObjectiveSample.objects.filter(objective_id=objective.pk).delete()
    if faults := save_named(objective):
        raise BadObjective(fields=faults)
    if before != after:
        action = f"{'create' if before is None else 'change'}_objective"
        _record(action, objective, actor=actor, reason=reason, before=before, after=after)
    return objective


@transaction.atomic
def delete_objective(objective_id: int, *, actor: str, reason: str = "") -> None:
    """
    Delete an objective and its counts; its alert ends.

    Raises:
        BadObjective: There is no such objective.
    """
    objective = _locked(objective_id)
    _record("delete_objective", objective, actor=actor, reason=reason, before=_figures(objective), after=None)
    objective.delete()


def _locked(objective_id: int) -> Objective:
    found = Objective.objects.select_for_update(of=("self",)).filter(pk=objective_id).first()
    if found is None:
        raise BadObjective("There is no such objective.")
    return found


def _figures(objective: Objective) -> dict[str, Any]:
    found = model_to_dict(objective, FIGURES)
    return {name: float(value) if name == "percent" else value for name, value in found.items()}


def _record(action: str, objective: Objective, *, actor: str, reason: str, before: Any, after: Any) -> None:
    trail.record(
        actor=actor,
        action=action,
        target=f"objective {objective.pk}",
        before=before,
        after=after,
        reason=clean_reason(reason),
        project_id=objective.project_id or "",
    )
