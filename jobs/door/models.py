"""Routes of models, and the files, calls and batches that came in by a door."""

from __future__ import annotations

from typing import ClassVar

from django.core.validators import RegexValidator
from django.db import models
from django.db.models.functions import Now

from jobs.models import new_id
from queueops.tenancy.models import Project
from queueops.tenancy.secrets.encryption import SealedJSONField

MAX_MODEL_NAME_LENGTH = 100
REST = "*"  # at the end of a pattern; fits any ending of a name


class Protocol(models.TextChoices):
    OPENAI = "openai", "OpenAI, or a compatible server"
    ANTHROPIC = "anthropic", "Anthropic"


class ModelRoute(models.Model):
    """Says where a model's calls that come in by a door go: to which provider, and with which credential."""

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    project = models.ForeignKey(Project, models.CASCADE, related_name="+", db_index=False)
    place = models.PositiveSmallIntegerField(default=0, help_text="The route with the lowest place that fits is taken.")
    pattern = models.CharField(
        "model",
        max_length=MAX_MODEL_NAME_LENGTH,
        validators=[RegexValidator(r"\A[^*\x00-\x20]*\*?\Z", "A name without spaces; * only at its end.")],
        help_text="The name in the request, such as gpt-4o-mini; with * at its end every name that begins so.",
    )
    provider = models.CharField(max_length=10, choices=Protocol, help_text="Whose protocol the server speaks.")
    credential = models.CharField(
        max_length=100, help_text="A credential, or a pool of credentials, that the project may use."
    )
    service = models.CharField(
        max_length=64, blank=True, help_text="By which limits it goes. Empty: those of the provider's name."
    )
    created_at = models.DateTimeField(db_default=Now())

    class Meta:
        ordering = ("project_id", "place", "pattern")
        constraints: ClassVar = [
            models.UniqueConstraint(fields=["project", "provider", "pattern"], name="door_route_once")
        ]

    def __str__(self) -> str:
        return f"{self.pattern} of {self.project_id}"

    @property
    def service_name(self) -> str:
        return self.service or self.provider

    def fits(self, model: str) -> bool:
        return model.startswith(self.pattern[:-1]) if self.pattern.endswith(REST) else model == self.pattern


class DoorFile(models.Model):
    """A file that came in by a door. Its content is in parts, so that no process ever has all of it in memory."""

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    project = models.ForeignKey(Project, models.CASCADE, related_name="+", db_index=False)
    purpose = models.CharField(max_length=20)
    file_name = models.CharField(max_length=200)
    size_bytes = models.BigIntegerField()
    created_by = models.CharField(max_length=100)
    created_at = models.DateTimeField(db_default=Now())
    expires_at = models.DateTimeField(help_text="When house-keeping deletes it.")

    class Meta:
        indexes: ClassVar = [
            models.Index(fields=["project", "-id"], name="door_file_project_idx"),
            models.Index(fields=["expires_at"], name="door_file_expires_idx"),
        ]

    def __str__(self) -> str:
        return self.file_name


class DoorFilePart(models.Model):
    """A part of a file's content, compressed by zlib, and then encrypted if its project encrypts payloads."""

    project = models.ForeignKey(Project, models.CASCADE, related_name="+", db_index=False)
    file = models.ForeignKey(DoorFile, models.CASCADE, related_name="parts", db_index=False)
    number = models.PositiveIntegerField()
    content = models.BinaryField()

    class Meta:
        constraints: ClassVar = [models.UniqueConstraint(fields=["file", "number"], name="door_part_once")]

    def __str__(self) -> str:
        return f"part {self.number} of {self.file_id}"


class DoorCall(models.Model):
    """A single call, kept for some minutes: a client that sends it again gets the same job."""

    project = models.ForeignKey(Project, models.CASCADE, related_name="+", db_index=False)
    digest = models.CharField(max_length=64)
    job_id = models.UUIDField()
    created_at = models.DateTimeField(db_default=Now())

    class Meta:
        indexes: ClassVar = [
            models.Index(fields=["project", "digest", "-id"], name="door_call_digest_idx"),
            models.Index(fields=["created_at"], name="door_call_created_idx"),
        ]

    def __str__(self) -> str:
        return f"call of job {self.job_id}"


class DoorBatch(models.Model):
    """A batch as the API of its door describes it."""

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    project = models.ForeignKey(Project, models.CASCADE, related_name="+", db_index=False)
    door = models.CharField(max_length=10, choices=Protocol)
    batch_id = models.UUIDField(null=True, unique=True, help_text="What was made of it; null: its lines were refused.")
    file_id = models.UUIDField(null=True, help_text="Its input file; null: its lines came with the request.")
    file_name = models.CharField(max_length=200, blank=True)
    endpoint = models.CharField(max_length=100)
    window = models.CharField(max_length=12)
    complete_by = models.DateTimeField()
    metadata = SealedJSONField(null=True, whole=True)
    errors = SealedJSONField(null=True, whole=True, help_text="Why its lines were refused: line, code, message, param.")
    error_count = models.PositiveIntegerField(default=0)
    digest = models.CharField(max_length=64, help_text="By which the same request is known when it comes again.")
    asked = models.CharField(max_length=64, help_text="The digest of what was asked, whatever its key.")
    created_at = models.DateTimeField(db_default=Now())
    cancelled_at = models.DateTimeField(null=True, help_text="When its cancellation was asked for.")

    class Meta:
        verbose_name_plural = "door batches"
        indexes: ClassVar = [
            models.Index(fields=["project", "-id"], name="door_batch_project_idx"),
            models.Index(fields=["project", "digest", "created_at"], name="door_batch_digest_idx"),
        ]

    def __str__(self) -> str:
        return f"{self.get_door_display()} batch {self.pk.hex}"

    @property
    def key_prefix(self) -> str:
        """The beginning of its jobs' idempotency keys, before the `custom_id`."""
        return f"{self.pk.hex}/"
