"""Confines the statements of a block to the rows of a project or user, as the database enforces it: row_security.py."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from uuid import UUID

from django.db import transaction

from queueops.core.postgres.local_settings import Guard, guarded, local_settings

from .moves import refuse_moved

API_ROLE = "queueops_api"
ANONYMOUS_ROLE = "queueops_anonymous"
PROJECT_SETTING = "queueops.project"
USER_SETTING = "queueops.user"

ON_ITS_WAY = f"""
SELECT id, move, moved_to FROM tenancy_project WHERE id = current_setting('{PROJECT_SETTING}') AND move <> ''
"""  # noqa: S608 - put together from our own words
STAYS_HERE = Guard(ON_ITS_WAY.encode(), refuse_moved)


@contextmanager
def acting_for(project_id: str, user_id: UUID | None = None, *, role: str = API_ROLE) -> Iterator[None]:
    """
    Let the statements of the block see and write the project's rows alone, and only what the API may do with them.

    Each transaction that begins in the block is confined from its first statement to its end; a statement outside of
    any gets one of its own. A thread that the block starts is confined only in a copy of its context.

    A transaction asks as it begins whether the project is on its way to another installation. The caller was let in
    before, and what it wrote behind the copy would be lost; a move waits for the transactions that began before it.

    Args:
        user_id: Of the project's rows that belong to users, only this one's.
        role: ANONYMOUS_ROLE: may only read, and only where the project shows itself to everybody.

    Raises:
        ProjectMoving, ProjectMoved: Where a transaction begins.
    """
    with _confined_to(project_id, user_id, role), guarded(STAYS_HERE):
        yield


@contextmanager
def reading_for(project_id: str, user_id: UUID | None = None, *, role: str = API_ROLE) -> Iterator[None]:
    """
    Do as `acting_for` does, in one transaction: otherwise each read would have its own. Reads a project on its way,
    too.
    """
    with _confined_to(project_id, user_id, role), transaction.atomic():
        yield


@contextmanager
def _confined_to(project_id: str, user_id: UUID | None, role: str) -> Iterator[None]:
    settings = (
        ("role", role),
        (PROJECT_SETTING, project_id),
        (USER_SETTING, "" if user_id is None else str(user_id)),
    )
    with local_settings(settings):
        yield


@contextmanager
def for_everyone() -> Iterator[None]:
    """
    Lift the confinement of `acting_for` within the block.

    Use it for figures that follow from everyone's work, such as a place in a queue, and for marks of the whole log.
    Nothing of another project's rows may leave the block but a number or a time.
    """
    with local_settings(None):
        yield
