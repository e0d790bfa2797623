"""Which of the database's lives this is."""

from __future__ import annotations

from typing import ClassVar

from django.db import models


class Epoch(models.Model):
    """
    The one row that a restore changes: cursors of another epoch are of a log that is not this one.

    `begin_epoch.sql` alone writes it, and the later of two moments tells which of two epochs came later.
    """

    id = models.PositiveSmallIntegerField(primary_key=True, default=1, editable=False)
    value = models.CharField(max_length=16, editable=False)
    began_at = models.DateTimeField(editable=False)

    class Meta:
        constraints: ClassVar = [models.CheckConstraint(condition=models.Q(pk=1), name="jobs_epoch_is_one_row")]

    def __str__(self) -> str:
        return self.value
