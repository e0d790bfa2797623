"""Rows of people at the screens: filters with a name, and files on their way in."""

from __future__ import annotations

from typing import ClassVar

from django.conf import settings
from django.db import models
from django.db.models.functions import Now

from queueops.tenancy.encryption import SealedJSONField
from queueops.tenancy.models import Project

from .job import new_id


class SavedFilter(models.Model):
    """A list's address under a name. Its owner's alone unless it is shared."""

    class Screen(models.TextChoices):
        JOBS = "job", "jobs"
        BATCHES = "batch", "batches"
        DEAD_LETTERS = "deadletter", "dead letters"

    owner = models.ForeignKey(settings.AUTH_USER_MODEL, models.CASCADE, related_name="saved_filters")
    screen = models.CharField(max_length=20, choices=Screen.choices)
    name = models.CharField(max_length=60)
    query = models.CharField(max_length=2000, help_text="The list's parameters, as its address has them.")
    shared = models.BooleanField(default=False, db_default=False)
    created_at = models.DateTimeField(db_default=Now())

    class Meta:
        permissions: ClassVar = [("share_savedfilter", "Can share saved filters")]
        constraints: ClassVar = [
            models.UniqueConstraint(fields=["owner", "screen", "name"], name="jobs_savedfilter_once")
        ]

    def __str__(self) -> str:
        return self.name


class Upload(models.Model):
    """A file of jobs that was checked and waits for a person's yes. Its content goes once it is submitted."""

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
