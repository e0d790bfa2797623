"""The epoch of the database, which changes when the database is put back to an earlier moment."""

from __future__ import annotations

from typing import ClassVar

from django.db import models


class Epoch(models.Model):
    """
    The single row with the present epoch. A cursor with another epoch is not a position in the present log.

    `ensure_epoch` makes the row, and only `begin_epoch.sql` changes it. A later epoch has a later `began_at`.
    """

    id = models.PositiveSmallIntegerField(primary_key=True, default=1, editable=False)
    value = models.CharField(max_length=16, editable=False)
    began_at = models.DateTimeField(editable=False)

    class Meta:
        constraints: ClassVar = [models.CheckConstraint(condition=models.Q(pk=1), name="jobs_epoch_is_one_row")]

    def __str__(self) -> str:
        return self.value
