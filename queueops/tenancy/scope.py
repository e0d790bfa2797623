"""Whose rows the statements of a block may see and write, as the database itself enforces it: row_security.py."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from uuid import UUID

from django.db import transaction

from queueops.core.postgres.local_settings import local_settings

API_ROLE = "queueops_api"
ANONYMOUS_ROLE = "queueops_anonymous"
PROJECT_SETTING = "queueops.project"
USER_SETTING = "queueops.user"


@contextmanager
def acting_for(project_id: str, user_id: UUID | None = None, *, role: str = API_ROLE) -> Iterator[None]:
    """
    Let the statements of the block see and write the project's rows alone, and only what the API may do with them.

    Each transaction that begins in the block is confined from its first statement to its end; a statement outside of
    any gets one of its own. A thread that the block starts is confined only in a copy of its context.

    Args:
        user_id: Of the project's rows that belong to users, only this one's.
        role: ANONYMOUS_ROLE: may only read, and only where the project shows itself to everybody.
    """
    settings = (
        ("role", role),
        (PROJECT_SETTING, project_id),
        (USER_SETTING, "" if user_id is None else str(user_id)),
    )
    with local_settings(settings):
        yield


@contextmanager
def reading_for(project_id: str, user_id: UUID | None = None, *, role: str = API_ROLE) -> Iterator[None]:
    """As `acting_for`, in one transaction, or each read would be one of its own."""
    with acting_for(project_id, user_id, role=role), transaction.atomic():
        yield


@contextmanager
def for_everyone() -> Iterator[None]:
    """
    Lift the confinement of `acting_for` within the block.

    For figures that follow from everyone's work, such as a place in a queue, and for marks of the whole log: nothing
    of another project's rows may leave the block but a number or a time.
    """
    with local_settings(None):
        yield
