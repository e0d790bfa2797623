"""Totals of the result store."""

from __future__ import annotations

from typing import ClassVar

from django.db import models


class ResultStoreTotals(models.Model):
    """One row for the installation, since it has a result store. Executors add to it with their heartbeats."""

    id = models.PositiveSmallIntegerField(primary_key=True, default=1, editable=False)
    stored = models.BigIntegerField(default=0, db_default=0)
    bytes = models.BigIntegerField(default=0, db_default=0)
    in_row = models.BigIntegerField(
        default=0, db_default=0, help_text="Results for the store that are in the database, as it did not take them."
    )
    failed = models.BigIntegerField(default=0, db_default=0)
    failure = models.CharField(max_length=300, default="", db_default="", help_text="What the last one said.")
    failed_at = models.DateTimeField(null=True)
    removed = models.BigIntegerField(default=0, db_default=0, help_text="Objects that no job named any more.")
    swept_at = models.DateTimeField(null=True, help_text="When a sweep was through the whole store.")

    class Meta:
        verbose_name_plural = "result store totals"
        constraints: ClassVar = [models.CheckConstraint(condition=models.Q(pk=1), name="jobs_resultstore_is_one_row")]

    def __str__(self) -> str:
        return f"{self.stored} stored"
