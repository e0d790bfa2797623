"""Records of granted calls: estimates to be settled, and the tallies behind screens and simulations."""

from __future__ import annotations

from typing import ClassVar

from django.db import models
from django.db.models.functions import Now

from ratelimits.subjects import MAX_NAME_LENGTH


class Charge(models.Model):
    """
    The amounts that one running call holds until it is settled: estimated tokens of each unit, calls in flight.

    Settling deletes the row, so it happens only once. `entries`: see `ratelimits.limiter.charges.Entry`.
    """

    holder = models.CharField(
        primary_key=True, max_length=300, help_text="`job:<id>:<token>` or `api:<project>:<key>`."
    )
    entries = models.JSONField()
    granted_at = models.DateTimeField(db_default=Now())
    expires_at = models.DateTimeField(help_text="Reclaimed after this: its holder has crashed.")

    class Meta:
        indexes: ClassVar = [models.Index(fields=["expires_at"], name="charge_expires_idx")]

    def __str__(self) -> str:
        return self.holder


class CallTally(models.Model):
    """
    Calls granted in one decision to one lane and kind; append-only, kept for a day.

    Lists of users and simulations are made from tallies. The calls asked to go at `at` minus `waited_seconds / calls`.
    """

    at = models.DateTimeField(db_default=Now())
    service = models.CharField(max_length=64)
    call_type = models.CharField(max_length=5)
    model = models.CharField(max_length=MAX_NAME_LENGTH, default="")
    project = models.CharField(max_length=MAX_NAME_LENGTH, default="", help_text="As the provider sees it.")
    user = models.CharField(max_length=MAX_NAME_LENGTH, default="", help_text="As the provider sees it.")
    kind = models.CharField(max_length=100, default="")
    calls = models.PositiveIntegerField()
    tokens = models.FloatField(help_text="The sum of the calls' costs.")
    waited_seconds = models.FloatField(default=0, help_text="Summed over the calls, from wanting to go to going.")
    amounts = models.JSONField(null=True, help_text="Sums by unit, where calls stated more than their cost.")

    class Meta:
        indexes: ClassVar = [models.Index(fields=["service", "at"], name="call_tally_service_idx")]
        verbose_name_plural = "call tallies"

    def __str__(self) -> str:
        return f"{self.service} {self.at}"


class CostEstimate(models.Model):
    """The recent costs of a project's calls of one service, kind and model, beyond what was known before the call."""

    id = models.CharField(primary_key=True, max_length=400, help_text="`<project>|<service>|<kind>|<model>`")
    samples = models.JSONField(default=list, help_text="The last actual costs of the unknown part, oldest first.")
    p90 = models.FloatField(default=0, db_default=0)
    ratios = models.JSONField(
        default=list,
        db_default=models.Value([], models.JSONField()),
        help_text="How many times as much the known part turned out to be, of the last calls.",
    )
    outputs = models.JSONField(
        default=list,
        db_default=models.Value([], models.JSONField()),
        help_text="The output tokens of the last calls, oldest first.",
    )
    output_p90 = models.FloatField(default=0, db_default=0)
    cached_shares = models.JSONField(
        default=list,
        db_default=models.Value([], models.JSONField()),
        help_text="Which part of their input a cache had, of the last calls, oldest first.",
    )
    cached_p10 = models.FloatField(default=0, db_default=0)
    updated_at = models.DateTimeField(db_default=Now())

    def __str__(self) -> str:
        return self.id


class DecideAnswer(models.Model):
    """The answer to one idempotency key of POST /api/v1/ratelimits/decide, kept for a day."""

    pk = models.CompositePrimaryKey("project_id", "idempotency_key")
    project_id = models.CharField(max_length=63)
    idempotency_key = models.CharField(max_length=200)
    digest = models.CharField(max_length=64, help_text="SHA-256 of what was asked.")
    answer = models.JSONField()
    created_at = models.DateTimeField(db_default=Now())

    class Meta:
        indexes: ClassVar = [models.Index(fields=["created_at"], name="decide_answer_age_idx")]

    def __str__(self) -> str:
        return f"{self.project_id} {self.idempotency_key}"
