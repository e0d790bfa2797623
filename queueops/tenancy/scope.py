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
    transactions gets a transaction of its own. A thread that the block starts is confined only if it runs in a copy of
    the block's context.

    Each transaction checks as it begins whether the project is being moved to another installation. A caller may have
    been let in before the move, and rows written after the copy would be lost. A move waits for transactions that began
    before it.

    Args:
        user_id: The only user whose rows the block sees, of the rows that belong to users; None: all users'.
        role: The database role to act as. ANONYMOUS_ROLE may only read, and only if the project shows itself to
            everybody.

    Raises:
        ProjectMoving, ProjectMoved: From the statement that begins a transaction.
    """
    with _confined_to(project_id, user_id, role), guarded(STAYS_HERE):
        yield


@contextmanager
def reading_for(project_id: str, user_id: UUID | None = None, *, role: str = API_ROLE) -> Iterator[None]:
    """
    Confine reads as `acting_for` does, in one transaction instead of one for each read. A project that is being moved
    can be read, too.
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

    Use it for figures about everyone's work, such as a position in the queue, and for positions in the whole log. Only
    numbers and times of another project's rows may leave the block.
    """
    with local_settings(None):
        yield
