"""Jobs that wait for money."""

from __future__ import annotations

from typing import ClassVar

from django.db import models
from django.db.models.functions import Now


class BudgetWait(models.Model):
    """
    A job that is held because a budget has no room for it, or because the most that it can cost is not known.

    The job is put back, and the row deleted, once there may be room or the most may be known.
    """

    job_id = models.UUIDField(primary_key=True)
    project = models.ForeignKey(
        "tenancy.Project", models.CASCADE, related_name="+", db_constraint=False, db_index=False
    )
    budget_id = models.BigIntegerField()
    key = models.CharField(max_length=36, blank=True, default="", help_text="The user, where it is for each.")
    needed = models.BigIntegerField(null=True, help_text="What it can cost at most, in micro-units; null: not known.")
    why = models.CharField(max_length=20, default="", db_default="", help_text="`missing_price` or `unbounded`.")
    provider = models.CharField(max_length=64, default="", db_default="")
    model = models.CharField(max_length=100, default="", db_default="")
    since = models.DateTimeField(db_default=Now())

    class Meta:
        indexes: ClassVar = [models.Index(fields=["budget_id", "key", "since"], name="jobs_budgetwait_budget_idx")]

    def __str__(self) -> str:
        return str(self.job_id)
