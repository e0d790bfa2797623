"""The flow of jobs: the log summed up, so that a chart reads hundreds of rows instead of millions of events."""

from __future__ import annotations

from typing import ClassVar

from django.contrib.postgres.fields import ArrayField
from django.db import models
from django.db.models.functions import Now

from jobs.features.flow.bins import ANSWERS, DURATION_MS, SIZE_BYTES

SINCE_EVER = 0  # the span of a service's totals
# In the order of FlowSample.backlog. Older rows have shorter arrays: add a new entry at the end.
BACKLOG = ("queued", "rate_limited", "dispatched", "in_progress", "retried", "dead_letters")


# By histogram, its column in count_flow.sql and the numbers of its bins.
BINS = {
    "answers": ("answer", range(1, len(ANSWERS) + 1)),
    "sizes": ("size_bin", range(len(SIZE_BYTES) + 1)),
    "latencies": ("latency_bin", range(len(DURATION_MS) + 1)),
    "delays": ("delay_bin", range(len(DURATION_MS) + 1)),
}
SUMS = (
    *("submitted", "completed", "failed", "retried", "deferred", "cancelled", "crashed", "leases_lost"),
    *("size_bytes", "latency_ms", "delay_ms"),
)


class FlowSample(models.Model):
    """
    The log's sums for one service in one span of time. Written by jobs/features/flow/sql/count_flow.sql alone.

    Spans are 10 seconds, 5 minutes, and all the time since the first count. The histograms' bins are bounded in
    jobs/features/flow/bins.py. The row of the empty service also holds the backlog, as it was at the span's
    last sample.
    """

    pk = models.CompositePrimaryKey("span_seconds", "at", "service")
    span_seconds = models.PositiveSmallIntegerField()
    at = models.DateTimeField(help_text="The span's beginning.")
    service = models.CharField(max_length=64)
    submitted = models.BigIntegerField(default=0, db_default=0)
    completed = models.BigIntegerField(default=0, db_default=0)
    failed = models.BigIntegerField(default=0, db_default=0, help_text="For good.")
    retried = models.BigIntegerField(default=0, db_default=0, help_text="Attempts that failed and are repeated.")
    deferred = models.BigIntegerField(default=0, db_default=0)
    cancelled = models.BigIntegerField(default=0, db_default=0)
    crashed = models.BigIntegerField(default=0, db_default=0)
    leases_lost = models.BigIntegerField(default=0, db_default=0)
    answers = ArrayField(models.BigIntegerField(), default=list, help_text="Of providers, by class.")
    sizes = ArrayField(models.BigIntegerField(), default=list, help_text="Of answers, a histogram.")
    size_bytes = models.BigIntegerField(default=0, db_default=0)
    latencies = ArrayField(models.BigIntegerField(), default=list, help_text="Of handlers, a histogram.")
    latency_ms = models.FloatField(default=0, db_default=0)
    delays = ArrayField(models.BigIntegerField(), default=list, help_text="Until a worker took a job, a histogram.")
    delay_ms = models.FloatField(default=0, db_default=0)
    backlog = ArrayField(models.BigIntegerField(), null=True)

    def __str__(self) -> str:
        return f"{self.service} {self.at} {self.span_seconds} s"


class DecisionTotal(models.Model):
    """How often the limiter made a decision since the first count. Only flow/sql/count_{flow,grants}.sql write it."""

    class Decision(models.TextChoices):
        GRANTED = "granted"
        DEFERRED = "deferred"
        REJECTED = "rejected"

    pk = models.CompositePrimaryKey("decision", "service", "call_type", "model", "limit_name")
    decision = models.CharField(max_length=8, choices=Decision)
    service = models.CharField(max_length=64)
    call_type = models.CharField(max_length=5, default="", db_default="", help_text="Of calls granted.")
    model = models.CharField(max_length=100, default="", db_default="", help_text="Of calls granted.")
    limit_name = models.CharField(max_length=100, default="", db_default="", help_text="That deferred or rejected.")
    calls = models.BigIntegerField(default=0, db_default=0)

    def __str__(self) -> str:
        return f"{self.decision} {self.service} {self.limit_name}".strip()


class FlowCursor(models.Model):
    """
    How far a log has been counted.

    Ids are drawn before commits, which come in another order. `mark` is an id that had been drawn at `marked_at`.
    `horizon` is a transaction id above those of all transactions that drew this id or a lower one. Once all
    transactions below the horizon have ended, no id at or below the mark can appear any more.
    """

    log = models.CharField(primary_key=True, max_length=20)
    counted = models.BigIntegerField(help_text="All ids up to here are counted.")
    mark = models.BigIntegerField()
    marked_at = models.DateTimeField(db_default=Now())
    horizon = models.BigIntegerField(null=True)

    class Meta:
        constraints: ClassVar = [
            models.CheckConstraint(condition=models.Q(counted__lte=models.F("mark")), name="jobs_flowcursor_in_order")
        ]

    def __str__(self) -> str:
        return f"{self.log} {self.counted}"
