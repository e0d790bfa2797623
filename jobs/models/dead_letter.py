"""Jobs that failed for good."""

from __future__ import annotations

from typing import ClassVar

from django.db import models
from django.db.models.functions import Now

from jobs.querysets import DeadLetterQuerySet
from queueops.tenancy.models import Project
from queueops.tenancy.secrets.encryption import SealedJSONField, SealedTextField
from queueops.tenancy.secrets.written_json import WrittenJSONField

from .job import Job, new_id


class Resolution(models.TextChoices):
    REQUEUED = "requeued"
    DISCARDED = "discarded"


class DeadLetter(models.Model):
    """A job that failed for good, with everything needed to understand and requeue it."""

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    job = models.OneToOneField(Job, models.CASCADE, related_name="dead_letter")
    project = models.ForeignKey(Project, models.PROTECT, db_index=False)
    batch_id = models.UUIDField(null=True)
    kind = models.CharField(max_length=100)
    service = models.CharField(max_length=64)
    payload = WrittenJSONField(null=True, db_column="payload_text", before="payload")
    error_code = models.CharField(max_length=64)
    error_class = models.CharField(max_length=200)
    error_message = SealedTextField()
    http_status = models.PositiveSmallIntegerField(null=True)
    remediation = models.TextField(help_text="What the operator is told to do.")
    attempts = SealedJSONField(help_text="Each failed attempt with its time, error and delay.")
    retry_count = models.PositiveSmallIntegerField()
    crash_count = models.PositiveSmallIntegerField()
    fingerprint = models.CharField(max_length=32, help_text="Equal for failures with one cause.")
    created_at = models.DateTimeField(db_default=Now())
    resolution = models.CharField(max_length=10, choices=Resolution.choices, null=True, blank=True)  # null: open
    resolved_by = models.CharField(max_length=100, default="", db_default="", blank=True)
    resolved_at = models.DateTimeField(null=True, blank=True)
    requeued_as = models.ForeignKey(
        Job, models.SET_NULL, null=True, blank=True, related_name="requeued_from", db_index=False
    )
    operation_id = models.UUIDField(null=True, blank=True, help_text="The bulk operation that resolved it.")
    note = models.TextField(default="", db_default="", blank=True)
    timeline = SealedJSONField(null=True, help_text="Its job's events, kept when the log's days go.")

    objects = DeadLetterQuerySet.as_manager()

    class Meta:
        permissions: ClassVar = [
            ("requeue_deadletter", "Can requeue dead letters"),
            ("discard_deadletter", "Can discard dead letters"),
            ("export_deadletter", "Can export dead letters with unmasked payloads"),
        ]
        indexes: ClassVar = [
            models.Index(fields=["project", "-created_at"], name="jobs_deadletter_project_idx"),
            # Letters are counted by cause: without the included columns, each letter's row would be read.
            models.Index(
                fields=["fingerprint", "id"],
                name="jobs_deadletter_cause_idx",
                condition=models.Q(resolution=None),
                include=["project"],
            ),
            models.Index(fields=["-created_at"], name="jobs_deadletter_created_idx"),
            models.Index(
                fields=["batch_id", "id"],
                name="jobs_deadletter_of_batch_idx",
                condition=models.Q(resolution=None),
                include=["fingerprint"],
            ),
            models.Index(
                fields=["operation_id", "id"],
                name="jobs_deadletter_operation_idx",
                condition=models.Q(operation_id__isnull=False),
            ),
            # Without this index, each deletion of a job would read all dead letters to find those that name the job.
            models.Index(
                fields=["requeued_as"],
                name="jobs_deadletter_requeued_idx",
                condition=models.Q(requeued_as__isnull=False),
            ),
            models.Index(fields=["job"], name="jobs_deadletter_bare_idx", condition=models.Q(timeline__isnull=True)),
        ]

    def __str__(self) -> str:
        return f"{self.kind}: {self.error_code}"
