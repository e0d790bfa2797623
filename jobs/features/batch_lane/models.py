"""Rows of the batch lane: provider batches and their lines, batch policies, and searches after a restore."""

from __future__ import annotations

from datetime import timedelta
from typing import ClassVar

from django.contrib.postgres.fields import ArrayField
from django.core.validators import MaxValueValidator
from django.db import models
from django.db.models.functions import Now

from jobs.models.job import new_id
from queueops.tenancy.models import Project

MAX_DEADLINE_HOURS = 366 * 24  # the furthest deadline that a job may have
SEARCHED_BACK = timedelta(days=7)  # before a restore: batches made earlier had ended and were read by then


class Way(models.TextChoices):
    """How a job goes to its provider."""

    LIVE = "live", "live: a call of its own"
    BATCH = "batch", "by a batch of the provider"


class BatchPolicy(models.Model):
    """By project and kind, which way a job goes if its producer does not say."""

    class Default(models.TextChoices):
        LIVE = "live", "live"
        AUTO = "auto", "auto: by batch where the deadline allows it"

    project = models.ForeignKey(Project, models.CASCADE, null=True, blank=True, help_text="Empty: every project.")
    kind = models.CharField(max_length=100, help_text="A kind that has a batch form, such as llm.generate.")
    via = models.CharField(max_length=5, choices=Default.choices, default=Default.AUTO)
    complete_within_hours = models.PositiveIntegerField(
        null=True,
        blank=True,
        validators=[MaxValueValidator(MAX_DEADLINE_HOURS)],
        help_text="The deadline of jobs that name none. Empty: such jobs go live.",
    )

    class Meta:
        ordering = ("kind", "project")
        verbose_name_plural = "batch policies"
        constraints: ClassVar = [
            models.UniqueConstraint(fields=["project", "kind"], name="jobs_batchpolicy_once", nulls_distinct=False)
        ]

    def __str__(self) -> str:
        return f"{self.kind}, {self.project_id or 'every project'}"


class BatchPace(models.Model):
    """How long a service's latest batches took, from the creation of a batch's row until all lines were settled."""

    service = models.CharField(primary_key=True, max_length=64)
    samples = ArrayField(models.FloatField(), default=list, help_text="Seconds, the latest last.")
    p95_seconds = models.FloatField(null=True, help_text="Null: too few are known.")
    updated_at = models.DateTimeField(db_default=Now())

    def __str__(self) -> str:
        return self.service


class ProviderBatch(models.Model):
    """
    One batch of a provider. Its row is committed before the provider is called, so that no crash can lose it.

    Its id is the `executor` of the jobs in it while they are in progress.
    """

    class State(models.TextChoices):
        CREATING = "creating", "being handed over"
        OPEN = "open", "at the provider"
        COLLECTING = "collecting", "results are being read"
        COMPLETED = "completed"
        EXPIRED = "expired", "expired at the provider"
        CANCELLED = "cancelled"
        FAILED = "failed", "refused by the provider"

    UNFINISHED = (State.CREATING, State.OPEN, State.COLLECTING)

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    project = models.ForeignKey(Project, models.PROTECT, db_constraint=False, related_name="provider_batches")
    kind = models.CharField(max_length=100)
    service = models.CharField(max_length=64)
    provider = models.CharField(max_length=20, help_text="Whose batch API is spoken, of the kind's batch form.")
    model = models.CharField(max_length=100)
    credential = models.CharField(max_length=100)
    state = models.CharField(max_length=10, choices=State.choices, default=State.CREATING)
    provider_id = models.CharField("provider's id", max_length=1000, blank=True, default="")
    provider_state = models.CharField("as the provider says", max_length=40, blank=True, default="")
    files = models.JSONField(default=dict, help_text="What the provider keeps for it, by role: input, output, errors.")
    lines_digest = models.CharField(
        max_length=64, blank=True, default="", db_default="", help_text="SHA-256 of the lines that its files hold."
    )
    lines = models.PositiveIntegerField()
    size_bytes = models.BigIntegerField(default=0)
    enqueued_tokens = models.BigIntegerField(default=0)
    done = models.PositiveIntegerField(default=0, help_text="Lines that the provider has worked through.")
    succeeded = models.PositiveIntegerField(default=0, help_text="Lines whose job was completed by it.")
    failed = models.PositiveIntegerField(default=0, help_text="Lines that the provider answered with an error.")
    handed_back = models.PositiveIntegerField(default=0, help_text="Lines whose job goes again without an attempt.")
    dropped = models.PositiveIntegerField(default=0, help_text="Answers that nobody waited for any more.")
    unanswered = models.PositiveIntegerField(
        default=0,
        db_default=0,
        help_text="Lines that the provider closed without an answer, or that were not waited for: they may be billed.",
    )
    unknown_lines = models.PositiveIntegerField(default=0, help_text="Results whose id is of no line of it.")
    malformed_lines = models.PositiveIntegerField(default=0, help_text="Results that could not be read.")
    complete_by = models.DateTimeField(help_text="The earliest deadline of its jobs.")
    live_at = models.DateTimeField(help_text="When what is not done must go live.")
    create_before = models.DateTimeField(help_text="Until then the call that makes it may begin.")
    creations = models.PositiveSmallIntegerField(default=0, help_text="Times that the provider was asked to make it.")
    uploads = models.PositiveSmallIntegerField(
        default=0, db_default=0, help_text="Times that an upload of its lines began, whether or not it was answered."
    )
    is_kept = models.BooleanField(
        default=False, db_default=False, help_text="The provider may keep something of it that is to be deleted."
    )
    found_by_count = models.BooleanField(
        default=False,
        db_default=False,
        help_text="Nothing but its count of lines says that it is the provider's batch.",
    )
    found_no_room = models.BooleanField(default=False, help_text="Refused because too much is enqueued there.")
    cancel_requested_at = models.DateTimeField(null=True)
    cancel_reason = models.CharField(max_length=200, blank=True, default="")
    cancelled_at = models.DateTimeField(null=True, help_text="When the provider was told.")
    looked_at = models.DateTimeField(null=True)
    look_at = models.DateTimeField(db_default=Now(), help_text="When it is looked at next.")
    progressed_at = models.DateTimeField(db_default=Now())
    error = models.TextField(blank=True, default="")
    faults = models.PositiveSmallIntegerField(default=0, help_text="Calls about it in a row that failed.")
    missing = models.PositiveSmallIntegerField(
        default=0,
        db_default=0,
        help_text="Looks in a row at which it, or results that its counts tell of, were not there.",
    )
    missing_since = models.DateTimeField(null=True, help_text="When the first of them was.")
    created_at = models.DateTimeField(db_default=Now())
    submitted_at = models.DateTimeField(null=True)
    ended_at = models.DateTimeField(null=True, help_text="When the provider had ended it.")
    closed_at = models.DateTimeField(null=True, help_text="When all of its lines were settled.")

    class Meta:
        ordering = ("-id",)
        verbose_name_plural = "provider batches"
        permissions: ClassVar = [("steer_providerbatch", "Can cancel provider batches and have them looked at")]
        indexes: ClassVar = [
            models.Index(
                fields=["look_at"],
                name="jobs_providerbatch_look_idx",
                condition=models.Q(state__in=["creating", "open", "collecting"]),
            ),
            models.Index(fields=["project", "-id"], name="jobs_providerbatch_project_idx"),
            models.Index(
                fields=["look_at"],
                name="jobs_providerbatch_kept_idx",
                condition=models.Q(closed_at__isnull=False, is_kept=True),
            ),
            models.Index(
                fields=["closed_at"],
                name="jobs_providerbatch_closed_idx",
                condition=models.Q(closed_at__isnull=False),
            ),
        ]

    def __str__(self) -> str:
        return self.provider_id or f"batch {self.id}"

    @property
    def is_unfinished(self) -> bool:
        return self.state in self.UNFINISHED


class ProviderBatchLine(models.Model):
    """One job's line of a provider's batch, and the fencing token that its answer must show."""

    class State(models.TextChoices):
        WAITING = "waiting"
        SUCCEEDED = "succeeded"
        FAILED = "failed", "failed: goes again by its retry rules"
        UNAVAILABLE = "unavailable", "not carried out by the provider's fault: goes again without an attempt"
        HANDED_BACK = "handed_back", "handed back"
        UNANSWERED = "unanswered", "without an answer: goes again, and may have been billed"
        DROPPED = "dropped", "dropped: nobody waited for it"

    UNREAD = (State.WAITING, State.UNANSWERED)  # sent, and neither answered nor settled

    id = models.BigAutoField(primary_key=True)
    provider_batch = models.ForeignKey(ProviderBatch, models.CASCADE, related_name="all_lines", db_index=False)
    number = models.PositiveIntegerField()
    job_id = models.UUIDField()
    token = models.BigIntegerField()
    state = models.CharField(max_length=11, choices=State.choices, default=State.WAITING, db_default=State.WAITING)

    class Meta:
        ordering = ("provider_batch", "number")
        constraints: ClassVar = [
            models.UniqueConstraint(fields=["provider_batch", "number"], name="jobs_providerbatchline_once")
        ]
        indexes: ClassVar = [
            models.Index(fields=["job_id"], name="jobs_providerbatchline_job_idx"),
            models.Index(
                fields=["provider_batch", "number"],
                name="jobs_batchline_waiting_idx",
                condition=models.Q(state="waiting"),
            ),
        ]

    def __str__(self) -> str:
        return f"{self.provider_batch_id} {self.number}"


class BatchSearch(models.Model):
    """
    A search through a provider's list of batches, because the database was put back to an earlier moment.

    Until the search is closed, no jobs of its kind, service and credential are collected: a batch made since that
    moment may have them already.
    """

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    kind = models.CharField(max_length=100)
    service = models.CharField(max_length=64)
    credential = models.CharField(max_length=100)
    made_before = models.DateTimeField(help_text="When the epoch began: what was made later has a row.")
    judged = ArrayField(
        models.CharField(max_length=1000), default=list, help_text="Provider's ids of batches that are none of ours."
    )
    adopted = models.PositiveIntegerField(default=0, help_text="Batches that were found, and go on here.")
    left_alone = models.PositiveIntegerField(
        default=0, help_text="Batches that an installation like this one made, of jobs that are not here."
    )
    look_at = models.DateTimeField(db_default=Now(), help_text="When it is looked at next.")
    looked_at = models.DateTimeField(null=True)
    faults = models.PositiveSmallIntegerField(default=0, help_text="Calls in a row that failed.")
    error = models.TextField(blank=True, default="")
    created_at = models.DateTimeField(db_default=Now())
    closed_at = models.DateTimeField(null=True)

    class Meta:
        ordering = ("-id",)
        verbose_name_plural = "batch searches"
        constraints: ClassVar = [
            models.UniqueConstraint(fields=["kind", "service", "credential"], name="jobs_batchsearch_once")
        ]

    def __str__(self) -> str:
        return f"{self.credential}, {self.kind}"
