"""The record of what people and keys changed."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection
from typing import Any
from uuid import UUID

from django.core.serializers.json import DjangoJSONEncoder

from queueops.core.web.asking import asking_address

from .models import AuditEntry


def _hold_nothing(_project_ids: Collection[str], _actor: str) -> None:
    raise RuntimeError("queueops.tenancy is not loaded")


hold_projects: Callable[[Collection[str], str], None] = _hold_nothing
"""Keeps changed projects in this installation until the transaction ends. Set by queueops/tenancy."""


def record(
    *,
    actor: str,
    action: str,
    target: str,
    before: Any = None,
    after: Any = None,
    moved: int = 1,
    reason: str = "",
    project_id: str | Collection[str] = "",
) -> AuditEntry:
    """
    Write one entry, with the caller's address, in the caller's transaction: both commit, or neither does.

    Args:
        action: The action, verb first, such as `cancel_jobs`.
        target: `<model> <id>`, or a number of rows such as `3 jobs`.
        before, after: Values that DjangoJSONEncoder can write, without secrets.
        moved: Rows changed; 0 when the call found nothing to do.
        project_id: The project or projects that were changed, if any. An entry about several projects names none.

    Raises:
        ProjectMoved: Somebody has changed a project that lives in another installation.
        ProjectMoving: The project is moving to another installation, and the actor is neither a person nor the system.
    """
    projects = {project_id} - {""} if isinstance(project_id, str) else set(project_id)
    if projects and moved:
        hold_projects(projects, actor)
    return AuditEntry.objects.create(
        actor=actor,
        action=action,
        target=target[:200],
        before=_plain(before),
        after=_plain(after),
        moved=moved,
        reason=reason,
        project_id=projects.pop() if len(projects) == 1 else "",
        address=asking_address(),
    )


def target_of(noun: str, ids: Collection[UUID]) -> str:
    """`job <id>` for one, `3 jobs` for several."""
    return f"{noun} {next(iter(ids))}" if len(ids) == 1 else f"{len(ids)} {noun}s"


def _plain(value: Any) -> Any:
    return None if value is None else json.loads(json.dumps(value, cls=DjangoJSONEncoder))
