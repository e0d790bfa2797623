"""The queue's records. jobs/sql/ writes the hot ones; migrations/ adds their partitions, guard and storage settings."""

from __future__ import annotations

import uuid
from typing import ClassVar

import uuid_utils.compat
from django.core.validators import MaxValueValidator, MinValueValidator
from django.db import models
from django.db.models.functions import Now

from queueops.tenancy.models import Project

from .querysets import BatchQuerySet, DeadLetterQuerySet, JobQuerySet
from .states import CallType, EventType, JobState, Priority

WHOLE_PROJECT = uuid.UUID(int=0)  # the `batch_id` under which JobCount keeps a project's total


def new_id() -> uuid.UUID:
    """A UUIDv7: unique without asking the database, and ordered by time, so new rows share index pages."""
    return uuid_utils.compat.uuid7()


class Jitter(models.TextChoices):
    FULL = "full", "full: anywhere between zero and the delay"
    LIMITED = "limited", "limited: the delay, less up to a tenth"
    NONE = "none", "none"


class RetryPolicy(models.Model):
    """Truncated exponential backoff: `min(max_delay, initial * multiplier**n)`, jittered and bounded."""

    name = models.CharField(primary_key=True, max_length=40)
    initial_seconds = models.FloatField(default=1, validators=[MinValueValidator(0.01)])
    multiplier = models.FloatField(default=3, validators=[MinValueValidator(1)])
    max_delay_seconds = models.FloatField(default=60, validators=[MinValueValidator(0.01)])
    max_retries = models.PositiveSmallIntegerField(default=5, validators=[MaxValueValidator(1000)])
    jitter = models.CharField(max_length=10, choices=Jitter.choices, default=Jitter.FULL)
    window_seconds = models.FloatField(
        null=True,
        blank=True,
        validators=[MinValueValidator(1)],
        help_text="From the first attempt; time spent waiting for limits does not count. Empty: not bounded.",
    )

    class Meta:
        ordering = ("name",)
        verbose_name_plural = "retry policies"

    def __str__(self) -> str:
        return self.name


class AgingRule(models.Model):
    """How a tier's score grows while a job waits; see jobs/aging.py for the formula."""

    tier = models.CharField(primary_key=True, max_length=10, choices=Priority.choices)
    base = models.PositiveSmallIntegerField(help_text="Score of a job that has just arrived.")
    first_after_seconds = models.PositiveIntegerField(null=True, blank=True, help_text="Empty: never rises.")
    first_score = models.PositiveSmallIntegerField(null=True, blank=True)
    step_seconds = models.PositiveIntegerField(
        null=True,
        blank=True,
        help_text="Then one point more each time this passes.",
        validators=[MinValueValidator(1)],
    )
    cap = models.PositiveSmallIntegerField(help_text="The score never passes this.")
    promote_after_seconds = models.PositiveIntegerField(null=True, blank=True, help_text="Empty: never promoted.")
    promote_to = models.CharField(max_length=10, choices=Priority.choices, null=True, blank=True)

    class Meta:
        ordering = ("-base",)
        constraints: ClassVar = [
            models.CheckConstraint(condition=models.Q(cap__gte=models.F("base")), name="agingrule_cap_not_below_base"),
            models.CheckConstraint(
                condition=models.Q(promote_after_seconds=None, promote_to=None)
                | models.Q(promote_after_seconds__isnull=False, promote_to__isnull=False),
                name="agingrule_promotion_is_whole",
            ),
            models.CheckConstraint(
                condition=models.Q(first_after_seconds=None, first_score=None, step_seconds=None)
                | models.Q(first_after_seconds__isnull=False, first_score__isnull=False),
                name="agingrule_first_step_is_whole",
            ),
        ]

    def __str__(self) -> str:
        return self.tier


class Batch(models.Model):
    """Jobs submitted together. Its counts live in JobCount; rate and finished_at are set by upkeep."""

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    project = models.ForeignKey(Project, models.PROTECT, related_name="batches")
    name = models.CharField(max_length=200, blank=True)
    total = models.PositiveIntegerField(default=0)
    paused = models.BooleanField(default=False, db_default=False)
    submitted_by = models.CharField(max_length=100)
    rate_per_second = models.FloatField(null=True, help_text="Jobs finished per second, smoothed.")
    sampled_at = models.DateTimeField(null=True)
    sampled_finished = models.PositiveIntegerField(default=0, db_default=0)
    created_at = models.DateTimeField(db_default=Now())
    finished_at = models.DateTimeField(null=True)

    objects = BatchQuerySet.as_manager()

    class Meta:
        verbose_name_plural = "batches"
        indexes: ClassVar = [
            models.Index(fields=["project", "-created_at"], name="jobs_batch_project_idx"),
            models.Index(fields=["id"], name="jobs_batch_open_idx", condition=models.Q(finished_at=None)),
        ]

    def __str__(self) -> str:
        return self.name or str(self.id)


class Job(models.Model):
    """One request to be carried out. Its status is written by jobs/transitions.py alone."""

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    project = models.ForeignKey(Project, models.PROTECT, db_index=False)
    user_id = models.UUIDField(null=True, blank=True)
    batch = models.ForeignKey(Batch, models.PROTECT, null=True, blank=True, db_index=False, related_name="jobs")
    kind = models.CharField(max_length=100)
    service = models.CharField(max_length=64)
    model = models.CharField(max_length=100, null=True, blank=True)  # null: the service has no models
    call_type = models.CharField(max_length=5, choices=CallType.choices)
    cost = models.PositiveIntegerField(default=1, db_default=1)
    priority = models.CharField(max_length=10, choices=Priority.choices, default=Priority.NORMAL)
    status = models.CharField(max_length=12, choices=JobState.choices, default=JobState.QUEUED)
    held = models.BooleanField(default=False, db_default=False)
    payload = models.JSONField()
    result = models.JSONField(null=True)
    idempotency_key = models.CharField(max_length=200, null=True, blank=True)  # null: none was given
    effect_key = models.CharField(max_length=200)
    retry_policy = models.ForeignKey(RetryPolicy, models.PROTECT, null=True, blank=True, db_index=False)
    retry_count = models.PositiveSmallIntegerField(default=0, db_default=0)
    crash_count = models.PositiveSmallIntegerField(default=0, db_default=0)
    deferral_count = models.PositiveIntegerField(default=0, db_default=0)
    deferred_seconds = models.FloatField(default=0, db_default=0)
    scheduled_at = models.DateTimeField(null=True, blank=True)
    eligible_since = models.DateTimeField()
    expires_at = models.DateTimeField(null=True, blank=True)
    first_attempt_at = models.DateTimeField(null=True)
    progress = models.PositiveSmallIntegerField(default=0, db_default=0)
    progress_message = models.CharField(max_length=500, default="", db_default="")
    lease_expires_at = models.DateTimeField(null=True)
    executor = models.UUIDField(null=True)
    fencing_token = models.BigIntegerField(default=0, db_default=0)
    last_error_code = models.CharField(max_length=64, default="", db_default="")
    last_error_message = models.TextField(default="", db_default="")
    origin = models.ForeignKey("self", models.SET_NULL, null=True, blank=True, db_index=False)
    created_at = models.DateTimeField(db_default=Now())
    updated_at = models.DateTimeField(db_default=Now())
    started_at = models.DateTimeField(null=True)
    finished_at = models.DateTimeField(null=True)

    objects = JobQuerySet.as_manager()

    class Meta:
        permissions: ClassVar = [
            ("cancel_job", "Can cancel jobs"),
            ("reschedule_job", "Can reschedule jobs and run them now"),
            ("reprioritise_job", "Can change the priority of jobs"),
            ("pause_work", "Can pause and resume batches, projects, services and kinds"),
        ]
        # Partial wherever a state allows: an index entry that a running or finished job does not need
        # would be written again at each of its transitions.
        indexes: ClassVar = [
            models.Index(
                fields=["project", "priority", "eligible_since", "id"],
                name="jobs_job_ready_idx",
                condition=models.Q(status="queued", scheduled_at=None, held=False, crash_count__lt=2),
            ),
            models.Index(
                fields=["eligible_since", "id"],
                name="jobs_job_quarantine_idx",
                condition=models.Q(status="queued", scheduled_at=None, held=False, crash_count__gte=2),
            ),
            models.Index(
                fields=["service", "call_type", "project", "user_id", "priority", "eligible_since", "id"],
                name="jobs_job_lane_idx",
                condition=models.Q(status="queued", scheduled_at=None, held=False),
            ),
            models.Index(
                fields=["service", "call_type", "project", "user_id", "priority", "eligible_since", "id"],
                name="jobs_job_parked_idx",
                condition=models.Q(status="rate_limited", held=False),
            ),
            models.Index(
                fields=["scheduled_at"],
                name="jobs_job_due_idx",
                condition=models.Q(status__in=["queued", "rate_limited", "retried"], scheduled_at__isnull=False),
            ),
            models.Index(
                fields=["lease_expires_at"],
                name="jobs_job_leases_idx",
                condition=models.Q(status__in=["dispatched", "in_progress"]),
            ),
            models.Index(
                fields=["expires_at"],
                name="jobs_job_expiry_idx",
                condition=models.Q(expires_at__isnull=False, status__in=["queued", "rate_limited", "retried"]),
            ),
            models.Index(fields=["user_id", "id"], name="jobs_job_user_idx", condition=models.Q(user_id__isnull=False)),
            models.Index(
                fields=["batch", "status"], name="jobs_job_batch_idx", condition=models.Q(batch__isnull=False)
            ),
            models.Index(fields=["origin"], name="jobs_job_origin_idx", condition=models.Q(origin__isnull=False)),
            models.Index(fields=["id"], name="jobs_job_held_idx", condition=models.Q(held=True)),
            models.Index(
                fields=["finished_at"],
                name="jobs_job_finished_idx",
                condition=models.Q(finished_at__isnull=False),
            ),
        ]
        constraints: ClassVar = [
            models.UniqueConstraint(
                fields=["project", "idempotency_key"],
                name="jobs_job_idempotency_key",
                condition=models.Q(idempotency_key__isnull=False),
            ),
            models.CheckConstraint(condition=models.Q(progress__lte=100), name="jobs_job_progress_percent"),
            models.CheckConstraint(
                condition=models.Q(status__in=["dispatched", "in_progress"], lease_expires_at__isnull=False)
                | (~models.Q(status__in=["dispatched", "in_progress"]) & models.Q(lease_expires_at=None)),
                name="jobs_job_lease_while_running",
            ),
            models.CheckConstraint(
                condition=models.Q(status__in=["completed", "failed", "cancelled"], finished_at__isnull=False)
                | (~models.Q(status__in=["completed", "failed", "cancelled"]) & models.Q(finished_at=None)),
                name="jobs_job_finished_when_terminal",
            ),
            # A retried job without a time would wait for ever: promotion finds jobs by scheduled_at.
            models.CheckConstraint(
                condition=~models.Q(status="retried") | models.Q(scheduled_at__isnull=False),
                name="jobs_job_retried_has_a_time",
            ),
        ]

    def __str__(self) -> str:
        return f"{self.kind} {self.id}"


class JobEvent(models.Model):
    """One line of the log. The table is partitioned by day; its real key is (id, created_at)."""

    id = models.BigIntegerField(primary_key=True)
    xid = models.BigIntegerField(editable=False)  # xid8 in the database: the relay's horizon
    job_id = models.UUIDField()  # no foreign key: partitions are dropped whole
    project_id = models.CharField(max_length=63)
    user_id = models.UUIDField(null=True)
    batch_id = models.UUIDField(null=True)
    event_type = models.CharField(max_length=12, choices=EventType.choices)
    from_status = models.CharField(max_length=12, choices=JobState.choices, null=True)  # null: no move
    to_status = models.CharField(max_length=12, choices=JobState.choices, null=True)  # null: no move
    message = models.TextField(default="")
    progress_percent = models.PositiveSmallIntegerField(null=True)
    data = models.JSONField(null=True)
    created_at = models.DateTimeField()

    class Meta:
        managed = False  # Django has no partitioned tables: migrations/ creates it with SQL
        db_table = "jobs_jobevent"
        ordering = ("id",)

    def __str__(self) -> str:
        return f"{self.event_type} {self.from_status or ''}→{self.to_status or ''}"


class JobCount(models.Model):
    """
    Jobs by state, kept by the transitions themselves, so that nobody counts the table.

    A count is the sum over `shard`. The shard is the writer's backend pid: two transactions that are open
    at once never share a row, so counters neither queue for locks nor deadlock.
    """

    pk = models.CompositePrimaryKey("project_id", "batch_id", "shard")
    project_id = models.CharField(max_length=63)
    batch_id = models.UUIDField(default=WHOLE_PROJECT)
    shard = models.IntegerField()
    queued = models.IntegerField(default=0, db_default=0)
    rate_limited = models.IntegerField(default=0, db_default=0)
    dispatched = models.IntegerField(default=0, db_default=0)
    in_progress = models.IntegerField(default=0, db_default=0)
    retried = models.IntegerField(default=0, db_default=0)
    completed = models.IntegerField(default=0, db_default=0)
    failed = models.IntegerField(default=0, db_default=0)
    cancelled = models.IntegerField(default=0, db_default=0)

    class Meta:
        indexes: ClassVar = [models.Index(fields=["batch_id"], name="jobs_jobcount_batch_idx")]

    def __str__(self) -> str:
        return f"{self.project_id} {self.batch_id} {self.shard}"


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
    payload = models.JSONField()
    error_code = models.CharField(max_length=64)
    error_class = models.CharField(max_length=200)
    error_message = models.TextField()
    http_status = models.PositiveSmallIntegerField(null=True)
    remediation = models.TextField(help_text="What the operator is told to do.")
    attempts = models.JSONField(help_text="Each failed attempt with its time, error and delay.")
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
    note = models.TextField(default="", db_default="", blank=True)

    objects = DeadLetterQuerySet.as_manager()

    class Meta:
        permissions: ClassVar = [
            ("requeue_deadletter", "Can requeue dead letters"),
            ("discard_deadletter", "Can discard dead letters"),
        ]
        indexes: ClassVar = [
            models.Index(fields=["project", "-created_at"], name="jobs_deadletter_project_idx"),
            models.Index(
                fields=["fingerprint", "id"],
                name="jobs_deadletter_open_idx",
                condition=models.Q(resolution=None),
            ),
            models.Index(fields=["-created_at"], name="jobs_deadletter_created_idx"),
        ]

    def __str__(self) -> str:
        return f"{self.kind}: {self.error_code}"


class Executor(models.Model):
    """A live worker process that claims jobs. The row goes when the process drains; a stale one was killed."""

    class Role(models.TextChoices):
        GENERAL = "general"
        QUARANTINE = "quarantine", "quarantine: one suspect job at a time"

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    role = models.CharField(max_length=10, choices=Role.choices, default=Role.GENERAL)
    host = models.CharField(max_length=255)
    pid = models.IntegerField()
    process_started_at = models.FloatField(help_text="The process's start, in the host's epoch seconds.")
    cluster_pid = models.IntegerField(help_text="The django-q2 sentinel that guards it.")
    slots = models.PositiveIntegerField()
    in_flight = models.PositiveIntegerField(default=0, db_default=0)
    draining = models.BooleanField(default=False, db_default=False)
    loop_lag_ms = models.FloatField(default=0, db_default=0, help_text="How late the handlers' event loop answers.")
    leases_lost = models.PositiveIntegerField(default=0, db_default=0)
    started_at = models.DateTimeField(db_default=Now())
    heartbeat_at = models.DateTimeField(db_default=Now())

    class Meta:
        ordering = ("host", "pid")
        constraints: ClassVar = [
            models.UniqueConstraint(
                fields=["host", "cluster_pid"],
                condition=models.Q(role="quarantine"),
                name="jobs_executor_one_quarantine",
            )
        ]

    def __str__(self) -> str:
        return f"{self.host}:{self.pid}"


class ServiceBreaker(models.Model):
    """The outage breaker of one service. No row: it has never failed."""

    service = models.CharField(primary_key=True, max_length=64)
    failures = models.PositiveIntegerField(default=0, help_text="Consecutive connect errors and 5xx answers.")
    opened_at = models.DateTimeField(null=True)
    probe_job_id = models.UUIDField(null=True)
    next_probe_at = models.DateTimeField(null=True)
    probes = models.PositiveIntegerField(default=0, db_default=0, help_text="Probes sent since it opened.")
    last_error = models.TextField(default="", db_default="")
    updated_at = models.DateTimeField(db_default=Now())

    def __str__(self) -> str:
        return f"{self.service}: {'open' if self.opened_at else 'closed'}"


class DutyLease(models.Model):
    """Who does a periodic duty until when. Every duty is idempotent, so two holders for a moment do no harm."""

    duty = models.CharField(primary_key=True, max_length=40)
    holder = models.UUIDField()
    expires_at = models.DateTimeField()

    def __str__(self) -> str:
        return self.duty


class PauseSwitch(models.Model):
    """Work that nobody may claim until the switch is removed."""

    class Scope(models.TextChoices):
        GLOBAL = "global"
        PROJECT = "project"
        SERVICE = "service"
        KIND = "kind"
        BATCH = "batch"

    scope = models.CharField(max_length=10, choices=Scope.choices)
    key = models.CharField(max_length=100, blank=True, help_text="Project, service, kind or batch; empty for global.")
    reason = models.TextField(blank=True)
    paused_by = models.CharField(max_length=100)
    created_at = models.DateTimeField(db_default=Now())

    class Meta:
        verbose_name_plural = "pause switches"
        constraints: ClassVar = [models.UniqueConstraint(fields=["scope", "key"], name="jobs_pauseswitch_once")]

    def __str__(self) -> str:
        return f"{self.scope} {self.key}".strip()


class IdempotencyRecord(models.Model):
    """The stored answer of a request with an Idempotency-Key; kept 7 days."""

    project = models.ForeignKey(Project, models.CASCADE, db_index=False)
    key = models.CharField(max_length=200)
    request_digest = models.CharField(max_length=64)
    status_code = models.PositiveSmallIntegerField(null=True)
    answer = models.JSONField(null=True)
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
    parameters = models.JSONField()
    reason = models.TextField(blank=True)
    actor = models.CharField(max_length=100)
    status = models.CharField(max_length=10, choices=Status.choices, default=Status.RUNNING)
    total = models.PositiveIntegerField(help_text="Rows that matched when it began.")
    done = models.PositiveIntegerField(default=0, db_default=0, help_text="Rows acted on.")
    skipped = models.PositiveIntegerField(default=0, db_default=0, help_text="Rows left alone: changed meanwhile.")
    cursor = models.UUIDField(null=True, help_text="The last row looked at.")
    error = models.TextField(blank=True)
    created_at = models.DateTimeField(db_default=Now())
    updated_at = models.DateTimeField(db_default=Now())
    finished_at = models.DateTimeField(null=True)

    class Meta:
        ordering = ("-created_at",)

    def __str__(self) -> str:
        return f"{self.action} ({self.status})"


class Webhook(models.Model):
    """Where a project wants to be told that a batch ended. Signed as Standard Webhooks say."""

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    project = models.ForeignKey(Project, models.CASCADE, related_name="webhooks")
    url = models.URLField(max_length=500)
    secret = models.CharField(max_length=100, help_text="Base64 of the signing key, with the prefix whsec_.")
    enabled = models.BooleanField(default=True)
    created_at = models.DateTimeField(db_default=Now())

    def __str__(self) -> str:
        return self.url


class WebhookDelivery(models.Model):
    """One message to one webhook. The job carries it out, so it retries and dies like any other."""

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    webhook = models.ForeignKey(Webhook, models.CASCADE, related_name="deliveries")
    batch = models.ForeignKey(Batch, models.CASCADE)
    job = models.OneToOneField(Job, models.CASCADE)
    created_at = models.DateTimeField(db_default=Now())

    class Meta:
        verbose_name_plural = "webhook deliveries"
        constraints: ClassVar = [models.UniqueConstraint(fields=["webhook", "batch"], name="jobs_webhookdelivery_once")]

    def __str__(self) -> str:
        return f"{self.webhook_id} {self.batch_id}"


class AuditEntry(models.Model):
    """What a person or key changed. The database refuses to update or delete a row."""

    id = models.BigAutoField(primary_key=True)
    project_id = models.CharField(max_length=63, blank=True)
    actor = models.CharField(max_length=100)
    action = models.CharField(max_length=60)
    target = models.CharField(max_length=200)
    before = models.JSONField(null=True)
    after = models.JSONField(null=True)
    moved = models.PositiveIntegerField(default=1, help_text="How many rows it changed.")
    reason = models.TextField(blank=True)
    created_at = models.DateTimeField(db_default=Now())

    class Meta:
        ordering = ("-id",)
        verbose_name_plural = "audit entries"
        indexes: ClassVar = [models.Index(fields=["target", "-id"], name="jobs_auditentry_target_idx")]

    def __str__(self) -> str:
        return f"{self.actor} {self.action} {self.target}"
