"""The cost of calls: prices, the ledger of what was spent, and budgets. All amounts are micro-units of one currency."""

from __future__ import annotations

from typing import ClassVar

from django.core.validators import MaxValueValidator, MinValueValidator
from django.db import models
from django.db.models.functions import Now

from queueops.tenancy.models import Project
from ratelimits.subjects import MAX_NAME_LENGTH

MILLION = 1_000_000
MAX_PROVIDER_LENGTH = 64
MAX_MONEY = 10**15  # of one price or budget: a thousand million units of the currency


class Via(models.TextChoices):
    LIVE = "live", "live"
    BATCH = "batch", "by batch"
    FLEX = "flex", "by the flex tier"
    PRIORITY = "priority", "by the priority tier"


class Price(models.Model):
    """
    The price of a million of one unit from a time on, at a provider and model. Append-only: the next price replaces it.

    A unit may have several prices, by the length of a call's input. The price with the highest `above_tokens` that the
    input exceeds holds for the whole call.

    A missing price is never taken for 0: the caller is told that it is missing.
    """

    class Unit(models.TextChoices):
        INPUT_TOKENS = "input_tokens", "input tokens"
        CACHED_TOKENS = "cached_tokens", "input tokens from a cache"
        WRITTEN_TOKENS = "written_tokens", "input tokens put into a cache"
        WRITTEN_1H_TOKENS = "written_1h_tokens", "input tokens put into a cache for an hour"
        OUTPUT_TOKENS = "output_tokens", "output tokens"
        REQUESTS = "requests", "requests"

    provider = models.CharField(
        max_length=MAX_PROVIDER_LENGTH, help_text="The service of the jobs, as limits name it: openai, gemini."
    )
    model = models.CharField(max_length=MAX_NAME_LENGTH, help_text="As jobs name it.")
    unit = models.CharField(max_length=20, choices=Unit)
    via = models.CharField(max_length=8, choices=Via, default=Via.LIVE, db_default=Via.LIVE)
    above_tokens = models.PositiveIntegerField(
        "input beyond",
        default=0,
        db_default=0,
        help_text="Holds for calls with more input tokens than that, cached ones included; 0: whatever their input.",
    )
    amount = models.BigIntegerField(
        validators=[MinValueValidator(0), MaxValueValidator(MAX_MONEY)],
        help_text="For a million, in millionths of the currency.",
    )
    most_tokens = models.PositiveIntegerField(
        null=True,
        blank=True,
        help_text="Of output: the most that one call can bring. Budgets go by it where a job sets no maximum.",
    )
    valid_from = models.DateTimeField(db_default=Now(), help_text="Calls from then on cost this.")
    by_hand = models.BooleanField(
        default=True, db_default=True, editable=False, help_text="Set by an operator: load_prices leaves it alone."
    )

    class Meta:
        ordering = ("provider", "model", "via", "unit", "above_tokens", "-valid_from")
        constraints: ClassVar = [
            models.UniqueConstraint(
                fields=["provider", "model", "via", "unit", "above_tokens", "valid_from"], name="price_once_a_length"
            ),
            models.CheckConstraint(condition=models.Q(amount__range=(0, MAX_MONEY)), name="price_amount_in_range"),
        ]

    def __str__(self) -> str:
        return f"{self.provider} {self.model} {self.unit} {self.via}"


class Spend(models.Model):
    """
    One call and its cost: a row of the ledger. A price that is corrected later does not change it.

    A call is identified by its job and its claim's fencing token. A call whose outcome is written twice counts once.
    """

    class Kind(models.TextChoices):
        CALL = "call", "counted by its provider"
        UNKNOWN = "unknown", "nobody knows what it cost: the most that it can"

    id = models.BigAutoField(primary_key=True)
    job_id = models.UUIDField()
    token = models.BigIntegerField(help_text="The fencing token of its claim.")
    part = models.SmallIntegerField(default=0, db_default=0, help_text="Of several calls of one claim.")
    kind = models.CharField(max_length=7, choices=Kind, default=Kind.CALL, db_default=Kind.CALL)
    project = models.ForeignKey(Project, models.PROTECT, related_name="spends", db_constraint=False, db_index=False)
    user_id = models.UUIDField(null=True)
    batch_id = models.UUIDField(null=True)
    provider = models.CharField(max_length=MAX_PROVIDER_LENGTH)
    model = models.CharField(max_length=MAX_NAME_LENGTH, default="", db_default="")
    via = models.CharField(max_length=8, choices=Via, default=Via.LIVE, db_default=Via.LIVE)
    at = models.DateTimeField(help_text="When the call was claimed: its prices are those of then.")
    input_tokens = models.BigIntegerField(null=True)
    cached_tokens = models.BigIntegerField(null=True)
    written_tokens = models.BigIntegerField(null=True, help_text="Of the input, what was put into a cache.")
    written_1h_tokens = models.BigIntegerField(null=True, help_text="Of that, what the cache keeps for an hour.")
    output_tokens = models.BigIntegerField(null=True)
    tokens = models.BigIntegerField(null=True)
    requests = models.IntegerField(default=1, db_default=1)
    money = models.BigIntegerField(null=True, help_text="In millionths of the currency; null: a price was missing.")

    class Meta:
        ordering = ("-id",)
        verbose_name_plural = "spend"
        permissions: ClassVar = [
            ("price_spend", "Can price spend that had no price"),
            ("export_spend", "Can export spend"),
        ]
        constraints: ClassVar = [models.UniqueConstraint(fields=["job_id", "token", "part"], name="spend_call_once")]
        indexes: ClassVar = [
            models.Index(fields=["project", "at"], name="spend_project_idx"),
            models.Index(fields=["at"], name="spend_at_idx"),
            models.Index(fields=["batch_id"], name="spend_batch_idx", condition=models.Q(batch_id__isnull=False)),
            models.Index(
                fields=["project", "user_id", "at"], name="spend_user_idx", condition=models.Q(user_id__isnull=False)
            ),
            models.Index(fields=["id"], name="spend_priceless_idx", condition=models.Q(money=None)),
            models.Index(fields=["project", "at"], name="spend_unknown_idx", condition=models.Q(kind="unknown")),
            models.Index(
                fields=["project", "provider", "at"], name="spend_priority_idx", condition=models.Q(via="priority")
            ),
        ]

    def __str__(self) -> str:
        return f"{self.job_id}/{self.token}"


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
    via = models.CharField(max_length=8, choices=Via, default=Via.LIVE, db_default=Via.LIVE)
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
