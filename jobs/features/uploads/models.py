"""The row of an uploaded file of jobs."""

from __future__ import annotations

from typing import ClassVar

from django.db import models
from django.db.models.functions import Now

from jobs.models.job import new_id
from queueops.tenancy.models import Project
from queueops.tenancy.secrets.encryption import SealedJSONField


class Upload(models.Model):
    """A file of jobs that was checked and waits for a person's yes. Its content is deleted once it is submitted."""

    class Format(models.TextChoices):
        CSV = "csv", "CSV"
        NDJSON = "ndjson", "NDJSON"

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    project = models.ForeignKey(Project, models.CASCADE, related_name="uploads")
    name = models.CharField(max_length=200, blank=True, help_text="Of the batch.")
    file_name = models.CharField(max_length=200)
    format = models.CharField(max_length=10, choices=Format.choices)
    default_kind = models.CharField(max_length=100, blank=True, help_text="Of lines that name none.")
    content = models.BinaryField(null=True, help_text="Compressed by zlib; then sealed, where the project is.")
    size_bytes = models.PositiveIntegerField()
    lines = models.PositiveIntegerField(help_text="Jobs in it, good and bad.")
    error_count = models.PositiveIntegerField()
    errors = SealedJSONField(whole=True, help_text="The first of them: line, code, message, fields.")
    sample = SealedJSONField(whole=True, help_text="What the first jobs would be.")
    uploaded_by = models.CharField(max_length=100)
    created_at = models.DateTimeField(db_default=Now())
    batch_id = models.UUIDField(null=True, help_text="What was made of it.")

    class Meta:
        indexes: ClassVar = [models.Index(fields=["created_at"], name="jobs_upload_created_idx")]

    def __str__(self) -> str:
        return self.file_name
