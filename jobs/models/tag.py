"""Tags, by which jobs and batches are found besides their columns."""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar
from uuid import UUID

from django.db import models

from queueops.core.values.tags import MAX_TAG_LENGTH
from queueops.tenancy.models import Project


class TagQuerySet(models.QuerySet["Tag"]):
    def of(self, ids: Iterable[UUID]) -> dict[UUID, list[str]]:
        """Return the tags of each job or batch that has any, in alphabetical order."""
        found: dict[UUID, list[str]] = {}
        for owner, name in self.filter(owner_id__in=list(ids)).order_by("name").values_list("owner_id", "name"):
            found.setdefault(owner, []).append(name)
        return found

    def owners(self, name: str) -> models.QuerySet[Tag, UUID]:
        return self.filter(name=name).values("owner_id")  # type: ignore[return-value] # a subquery of ids


class Tag(models.Model):
    """
    One tag of one job or batch. Ids of jobs and batches are UUIDv7, and never equal.

    Tags have a table of their own: as a column of the job they would be indexed again at each of the job's transitions.
    Also, row security keeps an index on arrays from being used, since their operators are not leakproof.
    """

    pk = models.CompositePrimaryKey("owner_id", "name")
    owner_id = models.UUIDField()
    name = models.CharField(max_length=MAX_TAG_LENGTH)
    project = models.ForeignKey(Project, models.PROTECT, db_index=False, db_constraint=False, related_name="+")

    objects = TagQuerySet.as_manager()

    class Meta:
        indexes: ClassVar = [models.Index(fields=["name", "project", "owner_id"], name="jobs_tag_find_idx")]

    def __str__(self) -> str:
        return self.name
