"""The jobs and batches that others wait for."""

from __future__ import annotations

from typing import ClassVar

from django.db import models

from queueops.tenancy.models import Project


class OnFailure(models.TextChoices):
    """How a waiting job or batch goes on if a job or batch that it waits for does not succeed."""

    CANCEL = "cancel", "it is cancelled"
    RUN = "run", "it runs all the same"
    HOLD = "hold", "it waits until a requeue of that one succeeds"


class Dependency(models.Model):
    """
    One job or batch that another one waits for. The waiting one is held, and the row is deleted when the wait is over.

    No counter says when the wait is over: each look reads the rows of the jobs waited for. The jobs of a waiting batch
    have no such rows of their own.
    """

    pk = models.CompositePrimaryKey("owner_id", "on_id")
    owner_id = models.UUIDField(help_text="The job or batch that waits.")
    on_id = models.UUIDField(help_text="The job or batch that it waits for.")
    of_batch = models.BooleanField(help_text="Whether a batch waits.")
    on_batch = models.BooleanField(help_text="Whether it waits for a batch.")
    on_failure = models.CharField(max_length=6, choices=OnFailure.choices)
    let_go = models.BooleanField(
        default=False, db_default=False, help_text="Somebody said that it goes on all the same."
    )
    project = models.ForeignKey(Project, models.PROTECT, db_index=False, db_constraint=False, related_name="+")

    class Meta:
        indexes: ClassVar = [models.Index(fields=["on_id"], name="jobs_dependency_on_idx")]

    def __str__(self) -> str:
        return f"{self.owner_id} after {self.on_id}"
