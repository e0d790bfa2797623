"""Budgets: what may be spent in a period, what was spent, and what calls under way hold. In micro-units."""

from __future__ import annotations

from typing import ClassVar

from django.core.validators import MaxValueValidator, MinValueValidator
from django.db import models
from django.db.models.functions import Now

from queueops.tenancy.models import Project
from ratelimits.subjects import MAX_NAME_LENGTH

from .money import MAX_MONEY, MAX_PROVIDER_LENGTH, Via


class BudgetScope(models.TextChoices):
    PROJECT = "project", "the project"
    EACH_USER = "each_user", "each user"
    USER = "user", "one user"
    BATCH = "batch", "one batch"


class Budget(models.Model):
    """A budget says how much the jobs of a project, of each of its users, of one user or of one batch may cost."""

    Scope = BudgetScope

    class Period(models.TextChoices):
        DAY = "day", "a day"
        MONTH = "month", "a month"
        TOTAL = "total", "in all"

    class Policy(models.TextChoices):
        WAIT = "wait", "wait: jobs beyond it are held until there is room"
        REJECT = "reject", "reject: jobs beyond it fail"

    project = models.ForeignKey(Project, models.CASCADE, related_name="budgets", db_index=False)
    name = models.CharField(max_length=100, help_text="Shown wherever it has no room.")
    scope = models.CharField(max_length=9, choices=Scope, default=Scope.PROJECT)
    user_id = models.UUIDField(null=True, blank=True, help_text="Of one user: who.")
    batch_id = models.UUIDField(null=True, blank=True, help_text="Of one batch: which.")
    amount = models.BigIntegerField(validators=[MinValueValidator(0), MaxValueValidator(MAX_MONEY)])
    period = models.CharField(max_length=5, choices=Period, default=Period.MONTH)
    time_zone = models.CharField(
        max_length=64, default="UTC", help_text="Where a day or month begins at midnight: Europe/Vienna."
    )
    policy = models.CharField(max_length=6, choices=Policy, default=Policy.WAIT)
    note = models.TextField(blank=True)
    set_by_operator = models.BooleanField(
        default=True,
        db_default=True,
        editable=False,
        help_text="An operator made or changed it: keys of the project may not change it.",
    )
    created_at = models.DateTimeField(db_default=Now(), editable=False)

    class Meta:
        ordering = ("project_id", "name")
        constraints: ClassVar = [
            models.UniqueConstraint(fields=["project", "name"], name="budget_name_once"),
            models.CheckConstraint(condition=models.Q(amount__range=(0, MAX_MONEY)), name="budget_amount_in_range"),
            models.CheckConstraint(
                condition=models.Q(scope="user", user_id__isnull=False, batch_id=None)
                | models.Q(scope="batch", batch_id__isnull=False, user_id=None)
                | models.Q(scope__in=["project", "each_user"], user_id=None, batch_id=None),
                name="budget_scope_names_whom",
            ),
        ]

    def __str__(self) -> str:
        return f"{self.project_id}: {self.name}"


class BudgetPeriod(models.Model):
    """
    One budget in one period: the sum of its ledger, and what calls under way hold.

    A budget for each user has a row for each user. Each claim and each end of a counted call locks the row.
    """

    id = models.BigAutoField(primary_key=True)
    # A constraint would lock the budget when the end of a call commits, and deadlock with the budget's deletion.
    budget = models.ForeignKey(Budget, models.CASCADE, related_name="periods", db_constraint=False, db_index=False)
    project = models.ForeignKey(Project, models.CASCADE, related_name="+", db_constraint=False, db_index=False)
    key = models.CharField(max_length=36, blank=True, default="", help_text="The user, where it is for each.")
    starts_at = models.DateTimeField()
    spent = models.BigIntegerField(default=0, db_default=0)
    held = models.BigIntegerField(default=0, db_default=0)
    alerted_level = models.SmallIntegerField(default=0, db_default=0, help_text="Percent that people were told of.")
    created_at = models.DateTimeField(db_default=Now())

    class Meta:
        constraints: ClassVar = [
            models.UniqueConstraint(fields=["budget", "key", "starts_at"], name="budget_period_once"),
            models.CheckConstraint(condition=models.Q(held__gte=0), name="budget_period_holds_nothing_below_zero"),
        ]
        indexes: ClassVar = [models.Index(fields=["starts_at"], name="budget_period_starts_idx")]

    def __str__(self) -> str:
        return f"{self.budget_id}/{self.key} {self.starts_at}"


class BudgetHold(models.Model):
    """
    The money that one call under way holds of one budget: the most that the call can cost.

    A hold is lost if no executor reported the call's end. The ledger then has the call at that amount, until the call's
    answer comes after all.
    """

    id = models.BigAutoField(primary_key=True)
    period = models.ForeignKey(BudgetPeriod, models.DO_NOTHING, related_name="+", db_constraint=False)
    job_id = models.UUIDField()
    token = models.BigIntegerField()
    amount = models.BigIntegerField()
    lost = models.BooleanField(default=False, db_default=False)
    project = models.ForeignKey(Project, models.CASCADE, related_name="+", db_constraint=False, db_index=False)
    user_id = models.UUIDField(null=True)
    batch_id = models.UUIDField(null=True)
    provider = models.CharField(max_length=MAX_PROVIDER_LENGTH)
    model = models.CharField(max_length=MAX_NAME_LENGTH, default="", db_default="")
    via = models.CharField(max_length=5, choices=Via, default=Via.LIVE, db_default=Via.LIVE)
    at = models.DateTimeField(help_text="When it was claimed.")
    expires_at = models.DateTimeField(help_text="Lost after this: nobody can be at it any more.")

    class Meta:
        constraints: ClassVar = [
            models.UniqueConstraint(fields=["job_id", "token", "period"], name="budget_hold_once"),
        ]
        indexes: ClassVar = [
            models.Index(fields=["expires_at"], name="budget_hold_expires_idx", condition=models.Q(lost=False)),
            models.Index(fields=["expires_at"], name="budget_hold_lost_idx", condition=models.Q(lost=True)),
        ]

    def __str__(self) -> str:
        return f"{self.job_id}/{self.token}"
