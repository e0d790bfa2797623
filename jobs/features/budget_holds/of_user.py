"""Waits for an end user's own budgets, for the erasure of the user."""

from __future__ import annotations

from collections.abc import Iterator
from uuid import UUID

from jobs.models import BudgetWait
from jobs.services.upkeep.user_rows import UserRows


def rows_of_user(project_id: str, user_id: UUID) -> Iterator[UserRows]:
    yield UserRows("waits for budgets", BudgetWait.objects.filter(project_id=project_id, key=str(user_id)))
