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
    Refuse what concerns a project that lives elsewhere, and what would write to one on its way.

    Raises:
        ProjectMoved, ProjectMoving
    """
    refusal = refusal_of(project_id, move, address)
    if refusal and not (reads and isinstance(refusal, ProjectMoving)):
        raise refusal


def refusal_of(project_id: str, move: str, address: str) -> QueueOpsError | None:
    """Return the answer to a write to the project; None: the project lives here."""
    if move == ProjectMove.MOVED:
        where = f" to {address}" if address else ""
        return ProjectMoved(
            f"{project_id} has moved{where}. Nothing is done for it here.", project=project_id, address=address
        )
    return ProjectMoving(project=project_id, retry_after=RETRY_AFTER) if move == ProjectMove.MOVING else None


def refuse_writes(project_id: str) -> None:
    """
    Refuse what would write to a project that is on its way, or lives elsewhere.

    Call it in the transaction that writes. It refuses a caller who was let in before the project was closed and writes
    only now. A move waits for the transactions that began before.

    Raises:
        ProjectMoved, ProjectMoving
    """
    for move, address in Project.objects.filter(pk=project_id).values_list("move", "moved_to"):
        refuse_moved(project_id, move, address)


def hold_projects(project_ids: Collection[str], actor: str) -> None:
    """
    Keep projects that somebody changes from being switched until the transaction ends: the move finds the change.

    Use it for audited writes that are not confined to the project. Nobody changes a project that has moved; the
    installation's own work on the rows that were left goes on. Only people change a project on its way: a leaked key
    must be revoked at once, and the move gives up.

    Raises:
        ProjectMoved, ProjectMoving
    """
    if wanted_settings() is not None:
        return  # a confined transaction was asked as it began, and its role may lock no project
    for project, move, moved_to in run_sql("queueops.tenancy", "hold_projects", {"projects": sorted(project_ids)}):
        if not actor.startswith("system"):
            refuse_moved(project, move, moved_to, reads=actor.startswith("user:"))


def projects_away() -> frozenset[str]:
    """Return the projects on their way to another installation, or there: what they left here waits for nobody."""
    return frozenset(Project.objects.exclude(move=ProjectMove.NONE).values_list("pk", flat=True))


def ids_that_stay(rows: QuerySet[Row], ids: Sequence[UUID]) -> list[UUID]:
    """Return the ids of the rows whose project is neither on its way nor elsewhere. Their model names projects."""
    away = projects_away()
    if not away:
        return list(ids)
    gone = set(rows.filter(pk__in=ids, project_id__in=away).values_list("pk", flat=True))
    return [one for one in ids if one not in gone]
