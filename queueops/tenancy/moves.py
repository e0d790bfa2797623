"""Refusals for a project that moves to another installation, or has moved there."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TypeVar
from uuid import UUID

from django.db.models import Model, QuerySet

from queueops.core.errors import QueueOpsError
from queueops.core.postgres.local_settings import wanted_settings
from queueops.core.sql import run_sql

from .models import Project, ProjectMove


class ProjectMoved(QueueOpsError):
    """The project has moved to another installation; `details.address` says where."""

    code = "project_moved"
    status = 410
    detail_fields = ("project", "address")


class ProjectMoving(QueueOpsError):
    """The project is being moved to another installation: nothing is written until that is done."""

    code = "project_moving"
    status = 503
    detail_fields = ("project", "retry_after")


RETRY_AFTER = 10  # seconds
Row = TypeVar("Row", bound=Model)


def refuse_moved(project_id: str, move: str, address: str, *, reads: bool = False) -> None:
    """
    Refuse every request for a project that has moved, and every write to a project that is being moved.

    Raises:
        ProjectMoved, ProjectMoving
    """
    refusal = refusal_of(project_id, move, address)
    if refusal and not (reads and isinstance(refusal, ProjectMoving)):
        raise refusal


def refusal_of(project_id: str, move: str, address: str) -> QueueOpsError | None:
    """Return the error that refuses a write to the project; None: the project lives here."""
    if move == ProjectMove.MOVED:
        where = f" to {address}" if address else ""
        return ProjectMoved(
            f"{project_id} has moved{where}. Nothing is done for it here.", project=project_id, address=address
        )
    return ProjectMoving(project=project_id, retry_after=RETRY_AFTER) if move == ProjectMove.MOVING else None


def refuse_writes(project_id: str) -> None:
    """
    Refuse writes to a project that is being moved, or has moved.

    Call it in the transaction that writes. It refuses a caller who was let in before the move began and writes only
    now. A move waits for the transactions that began before it.

    Raises:
        ProjectMoved, ProjectMoving
    """
    for move, address in Project.objects.filter(pk=project_id).values_list("move", "moved_to"):
        refuse_moved(project_id, move, address)


def hold_projects(project_ids: Collection[str], actor: str) -> None:
    """
    Hold the projects that somebody changes: their moves wait for the transaction to end, and find the change.

    Use it for audited writes that are not confined to the project. Nobody may change a project that has moved; only the
    system still works on the rows that were left here. Only people may change a project that is being moved: a leaked
    key must be revoked at once, and the move then gives up.

    Raises:
        ProjectMoved, ProjectMoving
    """
    if wanted_settings() is not None:
        return  # a confined transaction checked this as it began, and its role may lock no project
    for project, move, moved_to in run_sql("queueops.tenancy", "hold_projects", {"projects": sorted(project_ids)}):
        if not actor.startswith("system"):
            refuse_moved(project, move, moved_to, reads=actor.startswith("user:"))


def projects_away() -> frozenset[str]:
    """Return the projects that are being moved or have moved. Their rows here do not count as waiting work."""
    return frozenset(Project.objects.exclude(move=ProjectMove.NONE).values_list("pk", flat=True))


def ids_that_stay(rows: QuerySet[Row], ids: Sequence[UUID]) -> list[UUID]:
    """Return the ids of the rows whose project is neither being moved nor has moved. The model has a `project_id`."""
    away = projects_away()
    if not away:
        return list(ids)
    gone = set(rows.filter(pk__in=ids, project_id__in=away).values_list("pk", flat=True))
    return [one for one in ids if one not in gone]
