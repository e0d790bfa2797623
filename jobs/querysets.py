"""Reads of the queue's records."""

from __future__ import annotations

from typing import TYPE_CHECKING
from uuid import UUID

from django.db import models

from .states import TERMINAL, WAITING

if TYPE_CHECKING:
    from .models import Batch, DeadLetter, Job  # noqa: F401 - named as text in the base classes


class JobQuerySet(models.QuerySet["Job"]):
    def of_project(self, project_id: str) -> JobQuerySet:
        return self.filter(project_id=project_id)

    def waiting(self) -> JobQuerySet:
        return self.filter(status__in=WAITING)

    def unfinished(self) -> JobQuerySet:
        return self.exclude(status__in=TERMINAL)

    def ids(self) -> list[UUID]:
        return list(self.values_list("pk", flat=True))


class BatchQuerySet(models.QuerySet["Batch"]):
    def of_project(self, project_id: str) -> BatchQuerySet:
        return self.filter(project_id=project_id)


class DeadLetterQuerySet(models.QuerySet["DeadLetter"]):
    def of_project(self, project_id: str) -> DeadLetterQuerySet:
        return self.filter(project_id=project_id)

    def open(self) -> DeadLetterQuerySet:
        """Nobody has requeued or discarded them yet."""
        return self.filter(resolution=None)

    def ids(self) -> list[UUID]:
        return list(self.values_list("pk", flat=True))
