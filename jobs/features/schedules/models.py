"""A project's recurring jobs and batches, and the result of each fire."""

from __future__ import annotations

from typing import ClassVar

from django.core.validators import MaxValueValidator, MinValueValidator
from django.db import models
from django.db.models.functions import Now

from jobs.models.job import new_id
from jobs.times.cron import MAX_CRON_LENGTH, MAX_JITTER_SECONDS, MAX_MISSED_FIRES, Fire, Missed, Times
from queueops.tenancy.models import Project
from queueops.tenancy.secrets.encryption import SealedJSONField


class Schedule(models.Model):
    """
    Submits the same job or batch whenever its cron text says so.

    `next_due_at`, and `next_fire_at` with its jitter, are both null while the schedule is paused and once it has ended.
    """

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    project = models.ForeignKey(Project, models.CASCADE, related_name="+", help_text="Whose jobs they are.")
    name = models.CharField(max_length=100, help_text="Of its own in the project; its batches are called so, too.")
    cron = models.CharField(
        max_length=MAX_CRON_LENGTH,
        help_text="Minute, hour, day of the month, month, day of the week: 30 2 * * MON-FRI is at half past two on "
        "working days.",
    )
    time_zone = models.CharField(max_length=64, default="UTC", help_text="Whose clock it goes by: Europe/Berlin.")
    jobs = SealedJSONField(
        whole=True,
        help_text="As in their submission, without times and idempotency keys. One is submitted as a job, several as "
        "a batch.",
    )
    missed = models.CharField(
        "missed fires",
        max_length=4,
        choices=Missed,
        default=Missed.ONCE,
        help_text="More than a minute late: no worker ran, or the project was paused.",
    )
    most_missed = models.PositiveSmallIntegerField(
        "up to",
        default=10,
        validators=[MinValueValidator(1), MaxValueValidator(MAX_MISSED_FIRES)],
        help_text="Where each is made up for: the newest so many.",
    )
    jitter_seconds = models.PositiveIntegerField(
        default=0,
        validators=[MaxValueValidator(MAX_JITTER_SECONDS)],
        help_text="Each fire is late by less than that, so that schedules of one time do not come all at once.",
    )
    ends_at = models.DateTimeField(null=True, blank=True, help_text="It does not fire later. Empty: it goes on.")
    paused = models.BooleanField(default=False, db_default=False, editable=False)
    next_due_at = models.DateTimeField(null=True, editable=False)
    next_fire_at = models.DateTimeField(null=True, editable=False)
    refused_in_a_row = models.PositiveIntegerField(default=0, db_default=0, editable=False)
    created_at = models.DateTimeField(db_default=Now())

    class Meta:
        ordering = ("project_id", "name")
        constraints: ClassVar = [
            models.UniqueConstraint(fields=["project", "name"], name="jobs_schedule_once"),
            models.CheckConstraint(
                condition=models.Q(next_due_at=None, next_fire_at=None)
                | models.Q(next_due_at__isnull=False, next_fire_at__isnull=False, paused=False),
                name="jobs_schedule_fires_unless_paused",
            ),
        ]
        indexes: ClassVar = [
            models.Index(
                fields=["next_fire_at"],
                name="jobs_schedule_next_idx",
                condition=models.Q(next_fire_at__isnull=False),
            )
        ]
        permissions: ClassVar = [("steer_schedule", "Can pause, resume and run schedules")]

    def __str__(self) -> str:
        return self.name

    @property
    def times(self) -> Times:
        return Times(self.cron, self.time_zone, self.jitter_seconds, self.ends_at, seed=str(self.pk))

    @property
    def actor(self) -> str:
        """The submitter of its jobs, as events name it."""
        return f"schedule:{self.pk}"

    def set_next(self, following: Fire | None) -> None:
        """Set the next fire without saving it. None: it does not fire again."""
        self.next_due_at = following.due_at if following else None
        self.next_fire_at = following.fire_at if following else None


class ScheduleFire(models.Model):
    """The result of one fire. A unique constraint keeps any fire from being made twice."""

    class Outcome(models.TextChoices):
        SUBMITTED = "submitted"
        REFUSED = "refused"
        SKIPPED = "skipped"

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    schedule = models.ForeignKey(Schedule, models.CASCADE, related_name="fires", db_index=False)
    project = models.ForeignKey(Project, models.CASCADE, related_name="+", db_index=False)
    due_at = models.DateTimeField(help_text="By the cron text; of a run by hand, when it was asked for.")
    outcome = models.CharField(max_length=9, choices=Outcome)
    job_id = models.UUIDField(null=True)
    batch_id = models.UUIDField(null=True)
    error_code = models.CharField(max_length=64, blank=True, default="")
    error_message = models.TextField(blank=True, default="")
    left_out = models.PositiveIntegerField(default=0, help_text="Fires before it that were missed; at most 1,000.")
    asked_by = models.CharField(max_length=100, blank=True, default="", help_text="Empty: it was due.")
    created_at = models.DateTimeField(db_default=Now(), db_index=True)

    class Meta:
        ordering = ("-id",)
        constraints: ClassVar = [
            models.UniqueConstraint(fields=["schedule", "due_at"], name="jobs_schedulefire_once"),
        ]

    def __str__(self) -> str:
        return f"{self.outcome} {self.due_at:%Y-%m-%d %H:%M}"
