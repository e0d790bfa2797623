"""QuerySets of jobs, batches and dead letters."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Self, TypeVar
from uuid import UUID

from django.db import models

from .states import TERMINAL, WAITING

if TYPE_CHECKING:
    from .models import Batch, DeadLetter, Job  # noqa: F401 - named as text in the base classes
    from .models.tag import TagQuerySet

Row = TypeVar("Row", bound=models.Model)


class TaggedQuerySet(models.QuerySet[Row]):
    def tagged(self, names: Iterable[str]) -> Self:
        """Keep the rows that have all of these tags."""
        rows = self
        for name in names:
            rows = rows.filter(pk__in=_tags().owners(name))
        return rows

    def tagged_any(self, names: Iterable[str]) -> Self:
        """Keep the rows that have at least one of these tags."""
        return self.filter(pk__in=_tags().filter(name__in=list(names)).values("owner_id"))


def _tags() -> TagQuerySet:
    from .models.tag import Tag

    return Tag.objects.all()


class JobQuerySet(TaggedQuerySet["Job"]):
    def of_project(self, project_id: str) -> JobQuerySet:
        return self.filter(project_id=project_id)

    def waiting(self) -> JobQuerySet:
        return self.filter(status__in=WAITING)

    def unfinished(self) -> JobQuerySet:
        return self.exclude(status__in=TERMINAL)

    def ids(self) -> list[UUID]:
        return list(self.values_list("pk", flat=True))


class BatchQuerySet(TaggedQuerySet["Batch"]):
    def of_project(self, project_id: str) -> BatchQuerySet:
        return self.filter(project_id=project_id)


class DeadLetterQuerySet(models.QuerySet["DeadLetter"]):
    def of_project(self, project_id: str) -> DeadLetterQuerySet:
        return self.filter(project_id=project_id)

    def open(self) -> DeadLetterQuerySet:
        """Keep the dead letters that nobody has requeued or discarded yet."""
        return self.filter(resolution=None)

    def ids(self) -> list[UUID]:
        return list(self.values_list("pk", flat=True))
