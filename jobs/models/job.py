"""Jobs, their batches, their log and their counts. The frequent writes are statements in sql/."""

from __future__ import annotations

import uuid
from typing import Any, ClassVar

import uuid_utils.compat
from django.contrib.postgres.fields import ArrayField
from django.db import models
from django.db.models.functions import Now
from django.utils import timezone

from jobs.querysets import BatchQuerySet, JobQuerySet
from jobs.states import RUNNING, TERMINAL, UNFINISHED, WAITING, CallType, EventType, GuardState, JobState, Priority
from queueops.tenancy.models import Project
from queueops.tenancy.secrets.encryption import SealedJSONField, SealedTextField
from queueops.tenancy.secrets.written_json import WrittenJSONField
from ratelimits.costs import CALLS

from .policies import RetryPolicy

STANDS_STILL_SECONDS = 30.0  # longer than the few seconds between two samples of a batch that moves
WHOLE_PROJECT = uuid.UUID(int=0)  # the `batch_id` under which JobCount keeps a project's total

# Jobs that a lane may release now. Claims repeat these conditions word by word, or the index would not serve them.
IN_LANE = models.Q(
    models.Q(status="rate_limited") | models.Q(status="queued", scheduled_at=None),
    lane__isnull=False,
    held=False,
    crash_count__lt=2,
)

IN_SEVERAL_CALLS = models.Q(  # jobs that take several calls, have begun and have not ended
    status__in=sorted(UNFINISHED), first_attempt_at__isnull=False, costs__has_key=CALLS
)

# Queued jobs with a time to begin. Jobs that wait for a provider batch are left out: their time is when to go live.
HAS_A_TIME = models.Q(status="queued", scheduled_at__isnull=False) & ~models.Q(via="batch")

ENDED = [state.value for state in JobState if state in TERMINAL]


def new_id() -> uuid.UUID:
    """A UUIDv7: unique without asking the database, and ordered by time, so new rows share index pages."""
    return uuid_utils.compat.uuid7()


class Batch(models.Model):
    """Jobs submitted together. Its counts live in JobCount; rate, forecast and finished_at are set by upkeep."""

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    project = models.ForeignKey(Project, models.PROTECT, related_name="batches")
    user_id = models.UUIDField(
        null=True, blank=True, help_text="The end user who submitted it: all its jobs are theirs."
    )
    name = models.CharField(max_length=200, blank=True)
    total = models.PositiveIntegerField(default=0)
    paused = models.BooleanField(default=False, db_default=False)
    submitted_by = models.CharField(max_length=100)
    rate_per_second = models.FloatField(null=True, help_text="Jobs finished per second, smoothed.")
    sampled_at = models.DateTimeField(null=True)
    sampled_finished = models.PositiveIntegerField(default=0, db_default=0)
    ends_at = models.DateTimeField(null=True, help_text="A forecast; null: nothing is known.")
    ends_earliest = models.DateTimeField(
        null=True, help_text="Where its past speed and the limits differ much: what the speed says."
    )
    foreseen_at = models.DateTimeField(null=True, help_text="When that was computed.")
    after = models.JSONField(
        null=True, help_text="What it was submitted to wait for, and what if that fails. Null: nothing."
    )
    known_batches = ArrayField(
        models.UUIDField(),
        default=list,
        db_default=[],
        editable=False,
        help_text="The first batches that have jobs which were submitted again with this one, and not made again.",
    )
    guard = models.JSONField(
        null=True, help_text="When it stops itself, `first` and `percent`, and what was found. Null: never."
    )
    guard_state = models.CharField(max_length=8, choices=GuardState.choices, blank=True, default="", db_default="")
    trial_until = models.UUIDField(
        null=True, help_text="Its jobs with a later id are held by its guard, or are being let go. Null: none is."
    )
    on_finish_job = models.UUIDField(null=True, help_text="The job that waits for its end. Null: none was asked for.")
    created_at = models.DateTimeField(db_default=Now())
    finished_at = models.DateTimeField(null=True)
    tags: list[str]  # filled by tell_tags or by the list in the admin

    objects = BatchQuerySet.as_manager()

    class Meta:
        verbose_name_plural = "batches"
        indexes: ClassVar = [
            models.Index(fields=["project", "-created_at"], name="jobs_batch_project_idx"),
            models.Index(fields=["id"], name="jobs_batch_open_idx", condition=models.Q(finished_at=None)),
            models.Index(
                fields=["finished_at"],
                name="jobs_batch_finished_idx",
                condition=models.Q(finished_at__isnull=False),
            ),
            models.Index(
                fields=["user_id", "id"], name="jobs_batch_user_idx", condition=models.Q(user_id__isnull=False)
            ),
        ]

    def __str__(self) -> str:
        return self.name or str(self.id)

    @property
    def rate_now(self) -> float | None:
        """The smoothed rate; 0 if no job has ended for 30 s plus ten times as long as a job takes at this rate."""
        if not self.rate_per_second or self.sampled_at is None:
            return self.rate_per_second
        silent = (timezone.now() - self.sampled_at).total_seconds()
        return 0.0 if silent > STANDS_STILL_SECONDS + 10 / self.rate_per_second else self.rate_per_second


class Job(models.Model):
    """One request to be carried out. Its status is written as jobs/transitions.py says."""

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    # These keys have no constraints in the database: PostgreSQL would check them again at each commit that moves a job
    # twice, which adds a third to a job's cost (docs/adr/0015). Nothing deletes a project or a batch that has jobs.
    project = models.ForeignKey(Project, models.PROTECT, db_index=False, db_constraint=False)
    user_id = models.UUIDField(null=True, blank=True)
    batch = models.ForeignKey(
        Batch, models.PROTECT, null=True, blank=True, db_index=False, db_constraint=False, related_name="jobs"
    )
    kind = models.CharField(max_length=100)
    service = models.CharField(max_length=64)
    model = models.CharField(max_length=100, null=True, blank=True)  # null: the service has no models
    call_type = models.CharField(max_length=5, choices=CallType.choices)
    cost = models.PositiveIntegerField(default=1, db_default=1)
    known_cost = models.PositiveIntegerField(
        null=True, blank=True, help_text="The part of the cost that is no guess, such as input tokens. Null: all of it."
    )
    costs = models.JSONField(
        null=True, blank=True, help_text="What is estimated by unit, see ratelimits/costs.py. Null: the cost says all."
    )
    credential = models.CharField(max_length=100, null=True, blank=True)  # null: the call shows none
    lane = models.CharField(
        max_length=600, null=True, help_text="See jobs/lanes.py. Null: its service has no limits and users no turns."
    )
    target = models.CharField(
        max_length=400,
        default="",
        db_default="",
        help_text="Where its call goes, see jobs/lanes.py. Empty: its service.",
    )
    complete_by = models.DateTimeField(null=True, blank=True, help_text="By when its producer wants it done.")
    # `live`: the job was to go by a provider batch, but has gone live or is about to.
    via = models.CharField(
        max_length=5,
        null=True,
        blank=True,
        help_text="batch: it waits for a batch of its provider. Null: it goes live.",
    )
    path = models.IntegerField(
        default=0, db_default=0, help_text="What it calls there, as a hash. 0: there is nothing to tell apart."
    )
    pool = models.CharField(
        max_length=40,
        null=True,
        help_text="Of the workers that carry it out. Empty: none names it. Null: there are none.",
    )
    fallback_step = models.PositiveSmallIntegerField(
        default=0, db_default=0, help_text="Which of its payload's other ways it goes. 0: the first, as it names it."
    )
    fallback_reason = models.CharField(max_length=20, default="", db_default="", help_text="Why it went on the last.")
    fallback_at = models.DateTimeField(
        null=True, help_text="Until when it waits for a limit before it goes on another way. Null: it waits."
    )
    fallback_on_outage = models.BooleanField(
        default=False, db_default=False, help_text="It goes on another way when what it calls does not answer."
    )
    coalesce_key = models.CharField(
        max_length=500, null=True, help_text="Waiting jobs of one key leave as one call. Null: it leaves alone."
    )
    priority = models.CharField(max_length=10, choices=Priority.choices, default=Priority.NORMAL)
    status = models.CharField(max_length=12, choices=JobState.choices, default=JobState.QUEUED)
    held = models.BooleanField(default=False, db_default=False)
    # Rows written before 1.1 have payload and result in two jsonb columns of these names instead: docs/adr/0068.
    payload = WrittenJSONField(null=True, db_column="payload_text", before="payload")
    result = WrittenJSONField(null=True, db_column="result_text", before="result")
    idempotency_key = models.CharField(max_length=200, null=True, blank=True)  # null: none was given
    unique_key = models.CharField(
        max_length=310, null=True, help_text="Its kind, a stroke and its producer's key. Null: there may be any number."
    )
    debounce_until = models.DateTimeField(
        null=True, help_text="Later submissions of its key put it off until then at most. Null: it is not debounced."
    )
    effect_key = models.CharField(max_length=200)
    retry_policy = models.ForeignKey(RetryPolicy, models.PROTECT, null=True, blank=True, db_index=False)
    retry_count = models.PositiveSmallIntegerField(default=0, db_default=0)
    crash_count = models.PositiveSmallIntegerField(default=0, db_default=0)
    deferral_count = models.PositiveIntegerField(default=0, db_default=0)
    deferred_seconds = models.FloatField(
        default=0, db_default=0, help_text="Since the first attempt; not of its window."
    )
    deferred_since = models.DateTimeField(null=True)  # while rate_limited
    scheduled_at = models.DateTimeField(null=True, blank=True)
    eligible_since = models.DateTimeField()
    expires_at = models.DateTimeField(null=True, blank=True)
    first_attempt_at = models.DateTimeField(null=True)
    progress = models.PositiveSmallIntegerField(default=0, db_default=0)
    progress_message = SealedTextField(default="", db_default="")
    lease_expires_at = models.DateTimeField(null=True)
    executor = models.UUIDField(null=True)
    fencing_token = models.BigIntegerField(default=0, db_default=0)
    ended_batch = models.JSONField(
        null=True, help_text="Of a batch's callback: the batch, and its counts when it ended. Null: it is none."
    )
    takes = models.JSONField(
        null=True, help_text="The values of its payload that come from other jobs' results. Null: there are none."
    )
    last_error_code = models.CharField(max_length=64, default="", db_default="")
    last_error_message = SealedTextField(default="", db_default="")
    origin = models.ForeignKey("self", models.SET_NULL, null=True, blank=True, db_index=False)
    created_at = models.DateTimeField(db_default=Now())
    updated_at = models.DateTimeField(db_default=Now())
    started_at = models.DateTimeField(null=True)
    finished_at = models.DateTimeField(null=True)
    tags: list[str]  # filled by tell_tags
    # Filled by ResultSerializer.
    shown_result: Any
    place_of_result: dict[str, Any] | None

    objects = JobQuerySet.as_manager()

    class Meta:
        permissions: ClassVar = [
            ("cancel_job", "Can cancel jobs"),
            ("reschedule_job", "Can reschedule jobs and run them now"),
            ("reprioritise_job", "Can change the priority of jobs"),
            ("pause_work", "Can pause and resume batches, projects, services and kinds"),
            ("run_again", "Can do the work of ended jobs once more"),
        ]
        # Indexes are partial wherever a state allows: an entry that a running or finished job does not need
        # would be written again at each of its transitions.
        indexes: ClassVar = [
            # For counting scheduled jobs and finding the last. Empty, and so free, where no job is scheduled.
            models.Index(
                fields=["batch", "scheduled_at"],
                name="jobs_job_sched_batch_idx",
                condition=HAS_A_TIME & models.Q(batch__isnull=False),
            ),
            models.Index(fields=["project", "scheduled_at"], name="jobs_job_sched_project_idx", condition=HAS_A_TIME),
            models.Index(
                fields=["service", "scheduled_at"],
                include=["priority"],
                name="jobs_job_sched_service_idx",
                condition=HAS_A_TIME,
            ),
            models.Index(
                fields=["project", "priority", "eligible_since", "id"],
                name="jobs_job_ready_idx",
                condition=models.Q(status="queued", scheduled_at=None, held=False, crash_count__lt=2, lane=None),
            ),
            models.Index(
                fields=["lane", "priority", "eligible_since", "id"],
                name="jobs_job_in_lane_idx",
                condition=IN_LANE,
            ),
            # For claims by a pool's executors, and for jobs that no pool names. Empty, and so free, where there are no
            # pools.
            models.Index(
                fields=["pool", "project", "priority", "eligible_since", "id"],
                name="jobs_job_pool_ready_idx",
                condition=models.Q(
                    status="queued", scheduled_at=None, held=False, crash_count__lt=2, lane=None, pool__isnull=False
                ),
            ),
            models.Index(
                fields=["pool", "lane", "priority", "eligible_since", "id"],
                name="jobs_job_pool_lane_idx",
                condition=models.Q(pool__isnull=False) & IN_LANE,
            ),
            models.Index(
                fields=["pool", "eligible_since", "id"],
                name="jobs_job_pool_suspects_idx",
                condition=models.Q(
                    status="queued", scheduled_at=None, held=False, crash_count__gte=2, pool__isnull=False
                ),
            ),
            models.Index(
                fields=["coalesce_key", "eligible_since", "id"],
                name="jobs_job_coalesce_idx",
                condition=models.Q(coalesce_key__isnull=False) & IN_LANE,
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
            # Empty, and so free, where no job has a fallback.
            models.Index(
                fields=["fallback_at"],
                name="jobs_job_fallback_idx",
                condition=models.Q(
                    fallback_at__isnull=False, status="rate_limited", scheduled_at__isnull=False, held=False
                ),
            ),
            models.Index(
                fields=["service", "project", "target"],
                name="jobs_job_cut_off_idx",
                # Leave out jobs that are to run later: each round of an outage would read them again.
                condition=models.Q(fallback_on_outage=True, status__in=sorted(WAITING), held=False)
                & (models.Q(scheduled_at=None) | models.Q(status="rate_limited")),
            ),
            models.Index(
                fields=["service", "project", "target"],
                name="jobs_job_outage_idx",
                condition=models.Q(status="rate_limited", scheduled_at=None, held=False),
            ),
            models.Index(
                fields=["scheduled_at"],
                name="jobs_job_due_idx",
                # A parked job's time is a forecast: its lane releases it, not the time.
                condition=models.Q(status__in=sorted(WAITING), scheduled_at__isnull=False)
                & (~models.Q(status="rate_limited") | models.Q(lane=None)),
            ),
            models.Index(
                fields=["lease_expires_at"],
                name="jobs_job_leases_idx",
                condition=models.Q(status__in=sorted(RUNNING)),
            ),
            models.Index(
                fields=["expires_at"],
                name="jobs_job_expiry_idx",
                condition=models.Q(expires_at__isnull=False, status__in=sorted(WAITING)),
            ),
            # Jobs that wait for a batch of their provider, until scheduled_at: then they are promoted, and go live.
            models.Index(
                fields=["project", "kind", "service", "credential", "model", "scheduled_at", "id"],
                name="jobs_job_batch_lane_idx",
                condition=models.Q(
                    via="batch", status__in=["queued", "retried"], scheduled_at__isnull=False, held=False
                ),
            ),
            models.Index(fields=["user_id", "id"], name="jobs_job_user_idx", condition=models.Q(user_id__isnull=False)),
            models.Index(
                fields=["batch", "status"], name="jobs_job_batch_idx", condition=models.Q(batch__isnull=False)
            ),
            # A batch's progress counts the calls that its unfinished jobs have made. Empty where each job takes one.
            models.Index(fields=["batch"], name="jobs_job_many_calls_idx", condition=IN_SEVERAL_CALLS),
            models.Index(fields=["origin"], name="jobs_job_origin_idx", condition=models.Q(origin__isnull=False)),
            models.Index(fields=["project", "id"], name="jobs_job_project_idx"),  # the list of a small project
            models.Index(fields=["id"], name="jobs_job_held_idx", condition=models.Q(held=True)),
            models.Index(
                fields=["project", "kind", "service"],
                name="jobs_job_held_kind_idx",
                condition=models.Q(held=True, status__in=sorted(WAITING)),
            ),
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
            models.UniqueConstraint(
                fields=["project", "unique_key"],
                name="jobs_job_unique_key",
                condition=models.Q(unique_key__isnull=False, debounce_until=None, status__in=sorted(UNFINISHED)),
            ),
            # A job that has left this index never returns to it, as its fencing token stays above 0. Otherwise, the end
            # of its attempt could fail at this constraint, because a later job has its key.
            models.UniqueConstraint(
                fields=["project", "unique_key"],
                name="jobs_job_debounce_key",
                condition=models.Q(
                    unique_key__isnull=False,
                    debounce_until__isnull=False,
                    fencing_token=0,
                    first_attempt_at=None,
                    status__in=sorted(WAITING),
                ),
            ),
            models.CheckConstraint(condition=models.Q(progress__lte=100), name="jobs_job_progress_percent"),
            models.CheckConstraint(
                condition=models.Q(status__in=sorted(RUNNING), lease_expires_at__isnull=False)
                | (~models.Q(status__in=sorted(RUNNING)) & models.Q(lease_expires_at=None)),
                name="jobs_job_lease_while_running",
            ),
            models.CheckConstraint(
                condition=models.Q(status__in=ENDED, finished_at__isnull=False)
                | (~models.Q(status__in=ENDED) & models.Q(finished_at=None)),
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

    @property
    def given_unique_key(self) -> str | None:
        """Its unique key, as its producer gave it."""
        return None if self.unique_key is None else self.unique_key.partition("/")[2]


class JobEvent(models.Model):
    """One line of the log. The table is partitioned by day; its real key is (id, created_at)."""

    id = models.BigIntegerField(primary_key=True)
    xid = models.BigIntegerField(editable=False)  # xid8 in the database; tells which snapshots see the event
    job_id = models.UUIDField()  # no foreign key: partitions are dropped whole
    project_id = models.CharField(max_length=63)
    user_id = models.UUIDField(null=True)
    batch_id = models.UUIDField(null=True)
    service = models.CharField(max_length=64, null=True)  # null: written before there was this column
    event_type = models.CharField(max_length=12, choices=EventType.choices)
    from_status = models.CharField(max_length=12, choices=JobState.choices, null=True)  # null: no move
    to_status = models.CharField(max_length=12, choices=JobState.choices, null=True)  # null: no move
    message = SealedTextField(default="")
    progress_percent = models.PositiveSmallIntegerField(null=True)
    data = SealedJSONField(null=True)
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
