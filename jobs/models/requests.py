"""The requests of people, keys and other systems, and their answers."""

from __future__ import annotations

from typing import ClassVar

from django.contrib.postgres.fields import ArrayField
from django.db import models
from django.db.models.functions import Now

from queueops.tenancy.models import Project
from queueops.tenancy.secrets.encryption import SealedJSONField

from .job import new_id


class CanaryState(models.TextChoices):
    """How far the canary of a bulk operation is."""

    TRYING = "trying"
    PASSED = "passed"
    FAILED = "failed"  # the operation has ended, and a person decides


class IdempotencyRecord(models.Model):
    """The stored answer of a request with an Idempotency-Key; kept 7 days."""

    project = models.ForeignKey(Project, models.CASCADE, db_index=False)
    key = models.CharField(max_length=200)
    request_digest = models.CharField(max_length=64)
    status_code = models.PositiveSmallIntegerField(null=True)
    answer = SealedJSONField(null=True)
    created_at = models.DateTimeField(db_default=Now(), db_index=True)

    class Meta:
        constraints: ClassVar = [models.UniqueConstraint(fields=["project", "key"], name="jobs_idempotencyrecord_once")]

    def __str__(self) -> str:
        return self.key


class BulkOperation(models.Model):
    """An operator's action over many rows, done in short chunks that survive a crash."""

    class Status(models.TextChoices):
        RUNNING = "running"
        DONE = "done"
        CANCELLED = "cancelled"
        FAILED = "failed"

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    action = models.CharField(max_length=40)
    parameters = SealedJSONField()
    reason = models.TextField(blank=True)
    actor = models.CharField(max_length=100)
    status = models.CharField(max_length=10, choices=Status.choices, default=Status.RUNNING)
    total = models.PositiveIntegerField(help_text="Rows that matched when it began.")
    total_is_least = models.BooleanField(
        default=False, db_default=False, help_text="Only so many were counted; set right when it ends."
    )
    done = models.PositiveIntegerField(default=0, db_default=0, help_text="Rows acted on.")
    skipped = models.PositiveIntegerField(default=0, db_default=0, help_text="Rows left alone: changed meanwhile.")
    cursor = models.UUIDField(null=True, help_text="The last row looked at.")
    rows_per_minute = models.FloatField(null=True, help_text="At most so many. Null: as fast as the chunks go.")
    next_at = models.DateTimeField(null=True, help_text="When its next chunk is due.")
    turn = models.PositiveIntegerField(
        default=0, db_default=0, help_text="Times it was handed out; tasks of earlier turns do nothing."
    )
    stop_at_failed_percent = models.PositiveSmallIntegerField(
        null=True, help_text="It ends when more of the requeued jobs than that fail again."
    )
    canary = models.PositiveSmallIntegerField(
        null=True, help_text="So many rows first; the rest follows once their jobs have ended well. Null: all at once."
    )
    canary_percent = models.PositiveSmallIntegerField(
        default=20, db_default=20, help_text="It ends when so many of those jobs fail with one code."
    )
    canary_rows = ArrayField(models.UUIDField(), default=list, db_default=[], help_text="Those rows.")
    canary_state = models.CharField(max_length=7, choices=CanaryState.choices, blank=True, default="", db_default="")
    failures = models.PositiveSmallIntegerField(
        default=0, db_default=0, help_text="Chunks in a row that raised something unexpected."
    )
    error = models.TextField(blank=True)
    created_at = models.DateTimeField(db_default=Now())
    updated_at = models.DateTimeField(db_default=Now())
    finished_at = models.DateTimeField(null=True)

    class Meta:
        ordering = ("-created_at",)

    def __str__(self) -> str:
        return f"{self.action.replace('_', ' ')} ({self.status})"
