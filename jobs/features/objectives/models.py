"""Service level objectives: the share of some jobs that is to start, end or succeed, and the result."""

from __future__ import annotations

from decimal import Decimal
from typing import ClassVar

from django.core.validators import MaxValueValidator, MinValueValidator
from django.db import models
from django.db.models.functions import Now

from queueops.tenancy.models import Project

MAX_WITHIN_SECONDS = 30 * 86_400
MAX_WINDOW_DAYS = 90
COUNTED_FINE, COUNTED_COARSE = 10, 3600  # seconds of a sample


class Objective(models.Model):
    """
    A share of some jobs that is to start or end in time, or to succeed.

    A job counts at its deadline, `within_seconds` after it began to wait; for `succeed` when it has ended. The counts
    lie in ObjectiveSample, which only count_objectives.sql and recall_objective.sql write.
    """

    class Aim(models.TextChoices):
        START = "start", "start in time"
        END = "end", "end in time, whatever comes of them"
        SUCCEED = "succeed", "succeed in the end"

    name = models.CharField(max_length=100, help_text="What people call it, such as imports start soon.")
    aim = models.CharField("jobs are to", max_length=7, choices=Aim, default=Aim.START)
    percent = models.DecimalField(
        "percent of them",
        max_digits=6,
        decimal_places=3,
        default=Decimal(95),
        validators=[MinValueValidator(Decimal(50)), MaxValueValidator(Decimal("99.999"))],
        help_text="50 to 99.999. The rest is the budget: so many may miss it before the objective is broken.",
    )
    within_seconds = models.PositiveIntegerField(
        "within seconds",
        null=True,
        blank=True,
        validators=[MinValueValidator(1), MaxValueValidator(MAX_WITHIN_SECONDS)],
        help_text="Of the moment from which a job may run: when it was submitted, or the time that it is scheduled "
        "for. 300 is five minutes. Waiting for limits, outages and pauses counts. Empty where jobs are to succeed.",
    )
    project = models.ForeignKey(
        Project,
        models.CASCADE,
        null=True,
        blank=True,
        related_name="+",
        help_text="Only its jobs; its keys see the objective over the API. Empty: those of all projects.",
    )
    kind = models.CharField(max_length=100, blank=True, help_text="Only jobs of this kind. Empty: of all.")
    service = models.CharField(
        max_length=64, blank=True, help_text="Only jobs submitted for this service. Empty: for all."
    )
    window_days = models.PositiveSmallIntegerField(
        default=28,
        validators=[MinValueValidator(1), MaxValueValidator(MAX_WINDOW_DAYS)],
        help_text="The days, up to now, over which the share is to hold. Whole weeks have as many Mondays each.",
    )
    note = models.TextField(blank=True, help_text="Why it is wanted, and whom to ask.")
    counts_from = models.DateTimeField(
        null=True, editable=False, help_text="Jobs submitted later are counted from the log. Null: it is to begin."
    )
    created_at = models.DateTimeField(db_default=Now())

    class Meta:
        ordering = ("name",)
        constraints: ClassVar = [
            models.UniqueConstraint(fields=["project", "name"], name="jobs_objective_once", nulls_distinct=False),
            models.CheckConstraint(
                condition=models.Q(aim="succeed", within_seconds=None)
                | (~models.Q(aim="succeed") & models.Q(within_seconds__isnull=False, within_seconds__gt=0)),
                name="jobs_objective_has_its_time",
                violation_error_message="Say within how many seconds.",
            ),
        ]

    def __str__(self) -> str:
        return self.name


class ObjectiveSample(models.Model):
    """How many jobs of one objective have their deadlines in a span of time, and how many of them met the objective."""

    pk = models.CompositePrimaryKey("objective", "span_seconds", "at")
    # Set no constraint: with a constraint, deleting an objective during a count would fail the count of all objectives.
    objective = models.ForeignKey(
        Objective, models.CASCADE, db_constraint=False, db_index=False, related_name="samples"
    )
    span_seconds = models.PositiveSmallIntegerField()
    at = models.DateTimeField(help_text="The span's beginning.")
    due = models.BigIntegerField(default=0, db_default=0)
    met = models.BigIntegerField(default=0, db_default=0)

    def __str__(self) -> str:
        return f"{self.objective_id} {self.at} {self.span_seconds} s"
