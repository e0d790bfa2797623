"""Webhooks that tell projects of ended batches and jobs, the ended jobs to be told, and the messages."""

from __future__ import annotations

from typing import ClassVar

from django.contrib.postgres.fields import ArrayField
from django.core.validators import MaxValueValidator, MinValueValidator
from django.db import models
from django.db.models.functions import Now

from jobs.models.job import Batch, Job, new_id
from jobs.states import TERMINAL, JobState
from queueops.core.values.tags import MAX_TAG_LENGTH
from queueops.tenancy.models import Project
from queueops.tenancy.receivers import Receiver
from queueops.tenancy.secrets.signing import WRITTEN_BY_ROTATION

MAX_JOBS_OF_A_MESSAGE = 200
SECRETS = (*WRITTEN_BY_ROTATION, "former_secret")  # columns that the API's role may not read, or a form overwrite
OUTCOMES = tuple((state.value, state.label) for state in JobState if state in TERMINAL)


class Webhook(Receiver):
    """
    A project's address that gets messages about ended batches or jobs, signed as Standard Webhooks prescribe.

    It hears of jobs that fit every given filter: `kinds`, `tags`, `any_tag`, `outcomes`, `user_id` and `batch_id`.
    """

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    project = models.ForeignKey(Project, models.CASCADE, related_name="webhooks")
    url = models.URLField(max_length=500)
    secret = models.BinaryField(editable=False)  # Fernet token, see queueops/tenancy/secrets/signing.py
    # A trigger keeps the secret here when a statement sets `former_secret_until`: the API's role may read neither.
    former_secret = models.BinaryField(null=True, editable=False)
    former_secret_until = models.DateTimeField(
        null=True, editable=False, help_text="Until then messages are signed with the former secret, too."
    )
    hears_batches = models.BooleanField("ended batches", default=True, db_default=True)
    hears_jobs = models.BooleanField("ended jobs", default=False, db_default=False)
    jobs_since = models.DateTimeField(
        db_default=Now(), editable=False, help_text="It hears of jobs that ended since: when it was last switched on."
    )
    kinds = ArrayField(models.CharField(max_length=100), default=list, db_default=[], blank=True)
    tags = ArrayField(
        models.CharField(max_length=MAX_TAG_LENGTH), default=list, db_default=[], blank=True, help_text="All of these."
    )
    any_tag = ArrayField(
        models.CharField(max_length=MAX_TAG_LENGTH),
        default=list,
        db_default=[],
        blank=True,
        help_text="One of these, or several.",
    )
    outcomes = ArrayField(models.CharField(max_length=12, choices=OUTCOMES), default=list, db_default=[], blank=True)
    user_id = models.UUIDField("user", null=True, blank=True, help_text="Jobs of this user alone.")
    batch_id = models.UUIDField("batch", null=True, blank=True, help_text="Jobs of this batch alone.")
    most_jobs = models.PositiveSmallIntegerField(
        "jobs of a message",
        default=100,
        db_default=100,
        validators=[MinValueValidator(1), MaxValueValidator(MAX_JOBS_OF_A_MESSAGE)],
        help_text="At most so many ended jobs are told of in one POST.",
    )
    created_at = models.DateTimeField(db_default=Now())
    rotated_at = models.DateTimeField(null=True, editable=False)

    class Meta:
        indexes: ClassVar = [
            models.Index(
                fields=["project"],
                name="jobs_webhook_hears_jobs_idx",
                condition=models.Q(enabled=True, hears_jobs=True),
            )
        ]

    def __str__(self) -> str:
        return self.url


class WebhookDelivery(models.Model):
    """One message to one webhook. A job sends it, so it is retried and becomes a dead letter as other jobs do."""

    class Event(models.TextChoices):
        BATCH = "batch.finished", "a batch ended"
        JOBS = "jobs.ended", "jobs ended"
        TEST = "webhook.test", "test"

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    webhook = models.ForeignKey(Webhook, models.CASCADE, related_name="deliveries")
    event = models.CharField(max_length=20, choices=Event, default=Event.BATCH, db_default=Event.BATCH.value)
    batch = models.ForeignKey(
        Batch, models.CASCADE, null=True, help_text="That ended. Null: it tells of something else."
    )
    job = models.OneToOneField(Job, models.CASCADE)
    jobs_told = models.PositiveSmallIntegerField(default=0, db_default=0, help_text="Ended jobs that it tells of.")
    is_open = models.BooleanField(
        default=False,
        db_default=False,
        help_text="Of ended jobs, and not known to have ended: few are under way at once.",
    )
    created_at = models.DateTimeField(db_default=Now())

    class Meta:
        verbose_name_plural = "webhook deliveries"
        constraints: ClassVar = [models.UniqueConstraint(fields=["webhook", "batch"], name="jobs_webhookdelivery_once")]
        indexes: ClassVar = [
            models.Index(fields=["webhook"], name="jobs_webhookdelivery_open_idx", condition=models.Q(is_open=True))
        ]

    def __str__(self) -> str:
        return f"{self.event} {self.pk}"


class WebhookJob(models.Model):
    """
    One ended job that one webhook is told of. The row is inserted once, even if a process is killed or repeats its
    work, and is kept as long as the job.

    `delivery_id` is the message that tells of the job; null: no message does yet. The message may be deleted before
    this row. Besides moves of projects, only jobs/features/webhooks/sql/note_ended_jobs.sql inserts rows.
    """

    id = models.BigAutoField(primary_key=True)
    webhook = models.ForeignKey(Webhook, models.CASCADE, related_name="jobs", db_index=False)
    job_id = models.UUIDField()
    project = models.ForeignKey(Project, models.CASCADE, db_index=False, db_constraint=False, related_name="+")
    delivery_id = models.UUIDField(null=True)
    created_at = models.DateTimeField(db_default=Now())

    class Meta:
        constraints: ClassVar = [models.UniqueConstraint(fields=["job_id", "webhook"], name="jobs_webhookjob_once")]
        indexes: ClassVar = [
            models.Index(
                fields=["webhook", "id"], name="jobs_webhookjob_waits_idx", condition=models.Q(delivery_id=None)
            ),
            models.Index(
                fields=["delivery_id"], name="jobs_webhookjob_told_idx", condition=models.Q(delivery_id__isnull=False)
            ),
        ]

    def __str__(self) -> str:
        return f"{self.webhook_id} {self.job_id}"
