"""Finds the rows of one project among rows whose text names a user: another project may know the same user."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection
from typing import Any
from urllib.parse import parse_qs
from uuid import UUID

from django.db.models import Exists, OuterRef, Q, QuerySet

from jobs.models import BulkOperation, Job, SavedFilter
from queueops.tenancy.models import Project
from ratelimits.models import CallTally, UsageTracking


class RowsOfUser:
    """A user as one project knows them."""

    def __init__(self, project_id: str, user_id: UUID) -> None:
        self.project_id, self.user_id = project_id, user_id
        others = Project.objects.exclude(pk=project_id)
        self._others = frozenset(others.values_list("pk", flat=True))
        theirs = {"project_id": OuterRef("pk"), "user_id": user_id}
        known = Exists(Job.objects.filter(**theirs)) | Exists(UsageTracking.objects.filter(**theirs))
        self._is_shared = others.filter(known).exists()

    def naming(self, rows: QuerySet[Any], projects: Callable[[Any], Collection[str]]) -> QuerySet[Any]:
        """Rows that name this project, or name no other QueueOps project. A provider's project does not count."""
        return _chosen(rows, lambda row: self._is_ours(frozenset(projects(row))))

    def counting(self, rows: QuerySet[Any], keys: Callable[[Any], str]) -> QuerySet[Any]:
        """
        As `naming`, by the projects in keys of limits. Rows without a project are erased with the last project that has
        the user.
        """

        def counted(row: Any) -> bool:
            named = frozenset(re.findall(r"project:([^/'\"]+)", keys(row)))
            return self.project_id in named or (not self._is_shared and self._is_ours(named))

        return _chosen(rows, counted)

    def tallies(self) -> QuerySet[CallTally]:
        """Tallies of calls for this project. Tallies under a provider's project are chosen as in `counting`."""
        own = Q(project=self.project_id)
        return CallTally.objects.filter(
            own if self._is_shared else own | ~Q(project__in=self._others), user=str(self.user_id)
        )

    def _is_ours(self, named: frozenset[str]) -> bool:
        return self.project_id in named or not named & self._others


def projects_of_operation(operation: BulkOperation) -> list[str]:
    named = operation.parameters.get("filter", {}).get("project_id")
    return [named] if named else []


def projects_of_filter(saved: SavedFilter) -> list[str]:
    return parse_qs(saved.query).get("project", [])


def _chosen(rows: QuerySet[Any], fits: Callable[[Any], bool]) -> QuerySet[Any]:
    return rows.filter(pk__in=[row.pk for row in rows if fits(row)])
