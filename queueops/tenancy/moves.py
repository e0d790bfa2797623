"""What is refused of a project that moves to another installation, or has moved there."""

from __future__ import annotations

from queueops.core.errors import QueueOpsError

from .models import ProjectMove


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


def refuse_moved(project_id: str, move: str, address: str, *, reads: bool = False) -> None:
    """
    Refuse what concerns a project that lives elsewhere, and what would write to one on its way.

    Raises:
        ProjectMoved, ProjectMoving
    """
    if move == ProjectMove.MOVED:
        where = f" to {address}" if address else ""
        raise ProjectMoved(
            f"{project_id} has moved{where}. Nothing is done for it here.", project=project_id, address=address
        )
    if move == ProjectMove.MOVING and not reads:
        raise ProjectMoving(project=project_id, retry_after=RETRY_AFTER)
