"""Alerts, their silences, and the routes by which operators get them."""

from __future__ import annotations

import re
from typing import ClassVar

from django.contrib.postgres.fields import ArrayField
from django.db import models
from django.db.models.functions import Now

from queueops.core import clock
from queueops.tenancy.receivers import Receiver
from ratelimits.limits.models import Limit
from ratelimits.subjects import MAX_ID_LENGTH


class QuotaAlert(models.Model):
    """
    One alert, open until `resolved_at`. At most one is open for a kind, subject and threshold.

    `subject` is a counter's id for the kinds of a limit, and otherwise what the kind is about: a project, an
    executor, or `*`. `figures` are the numbers of the message, for screens and webhooks. `figures["projects"]` are the
    projects that the alert is about. Alerts that open together with one `figures["cause"]` are sent as one message.
    """

    class Kind(models.TextChoices):
        USAGE = "usage", "usage crossed a threshold"
        SATURATED = "saturated", "work waits beyond a cap"
        EXCEEDED = "exceeded", "the provider refused, or the cap was passed"
        UNLIMITED = "unlimited", "the provider refused what no limit counts"
        DEAD_LETTERS = "dead_letters", "dead letters grow"
        OLDEST_READY = "oldest_ready", "ready work waits too long"
        LONG_RUNNING = "long_running", "jobs run for long"
        STUCK_EXECUTOR = "stuck_executor", "an executor is stuck"
        WORKER_DIED = "worker_died", "a worker died with its jobs"
        OUTAGE = "outage", "a service does not answer"
        CREDENTIAL_REFUSED = "credential_refused", "a provider refuses a credential of a pool"
        PROVIDER_BATCH = "provider_batch", "a batch at a provider stands still or was refused"
        FAILING = "failing", "most attempts fail"
        UNSERVED = "unserved", "no worker carries out a kind"
        FORGOTTEN = "forgotten", "paused for long"
        HORIZON = "horizon", "the database cannot clear up"
        SCHEDULE = "schedule", "a schedule is refused again and again"
        OBJECTIVE = "objective", "an objective is missed, or will be"
        CHARGE_LEAK = "charge_leak", "estimates were not settled"
        ALLOWANCE = "allowance", "a user comes near the month's quota"
        OVERAGE = "overage", "a user passed a strict quota"
        MISSING_PRICE = "missing_price", "calls cost what nobody knows"
        BUDGET = "budget", "a budget comes near its end"
        AUDIT_STREAM = "audit_stream", "the audit trail's collector takes nothing"
        BACKUP = "backup", "backups or the log's archive are behind"
        RECEIVER = "receiver", "a receiver of messages is paused"
        NO_EXECUTOR = "no_executor", "nobody carries out jobs"
        GUARD = "guard", "a batch has stopped itself"
        OVERRIDE = "override", "an override ends that work leans on"

    class Severity(models.TextChoices):
        NOTICE = "notice"
        WARNING = "warning"
        CRITICAL = "critical"

    kind = models.CharField(max_length=32, choices=Kind)
    severity = models.CharField(max_length=8, choices=Severity)
    limit = models.ForeignKey(Limit, models.CASCADE, null=True, blank=True, related_name="alerts")
    subject = models.CharField(max_length=MAX_ID_LENGTH)
    threshold = models.PositiveSmallIntegerField(default=0, help_text="Percent of the cap; 0 where there is none.")
    message = models.TextField()
    figures = models.JSONField(default=dict)
    forecast_at = models.DateTimeField(
        null=True, help_text="When the cap is reached at this pace, or the queue clears."
    )
    opened_at = models.DateTimeField(db_default=Now())
    acknowledged_at = models.DateTimeField(null=True)
    acknowledged_by = models.CharField(max_length=100, default="", db_default="")
    resolved_at = models.DateTimeField(null=True)
    notified_at = models.DateTimeField(null=True)
    # The id of another alert, whose message to the routes of all projects also named this alert.
    told_with = models.BigIntegerField(null=True, editable=False)

    class Meta:
        ordering = ("-opened_at", "-id")
        constraints: ClassVar = [
            models.UniqueConstraint(
                fields=["kind", "subject", "threshold"],
                name="quota_alert_open_once",
                condition=models.Q(resolved_at=None),
            )
        ]
        indexes: ClassVar = [
            models.Index(fields=["-opened_at", "-id"], name="quota_alert_opened_idx"),
            models.Index(fields=["id"], name="quota_alert_unsent_idx", condition=models.Q(notified_at=None)),
            models.Index(
                fields=["told_with"], name="quota_alert_told_with_idx", condition=models.Q(told_with__isnull=False)
            ),
        ]

    def __str__(self) -> str:
        return self.message

    @property
    def projects(self) -> frozenset[str]:
        """The projects that the alert is known to be about; empty: it is about the whole installation."""
        if self.kind in {self.Kind.ALLOWANCE, self.Kind.OVERAGE}:
            return frozenset(self.subject.split("/")[1:2])
        if self.kind == self.Kind.BUDGET:
            return frozenset(self.subject.split("/")[:1])
        if self.kind == self.Kind.OLDEST_READY:
            return frozenset({self.subject})
        if self.limit_id is not None:
            first = self.subject.partition(":")[2].partition("/")[0]  # a user's name follows, which may be any text
            return frozenset({first.removeprefix("project:")} if first.startswith("project:") else ())
        return frozenset(self.figures.get("projects", ()))

    @classmethod
    def about(cls, project: str) -> models.Q:
        """The alerts that have a project among their `projects`, for queries."""
        # A user's name, which may be any text, stands behind the project in a counter's key.
        own_counter = models.Q(limit__isnull=False, subject__regex=f"^[0-9]+:project:{re.escape(project)}(/|$)")
        ready = models.Q(kind=cls.Kind.OLDEST_READY, subject=project)
        of_users = models.Q(figures__project=project)
        return own_counter | ready | of_users | models.Q(figures__projects__contains=[project])

    @property
    def runbook(self) -> str:
        """The path, in the checkout, of the page that says what to do."""
        return f"docs/runbooks/{self.kind}.md"


class AlertSilenceQuerySet(models.QuerySet["AlertSilence"]):
    def standing(self) -> AlertSilenceQuerySet:
        return self.filter(until__gt=clock.Now())


class AlertSilence(models.Model):
    """Until its end, alerts that match everything the silence names (a limit, a kind, a project) are not sent."""

    limit = models.ForeignKey(Limit, models.CASCADE, null=True, blank=True, related_name="silences")
    kind = models.CharField(max_length=32, choices=QuotaAlert.Kind, blank=True)
    project = models.CharField(max_length=63, blank=True)
    until = models.DateTimeField(db_index=True)
    reason = models.TextField()
    created_by = models.CharField(max_length=100)
    created_at = models.DateTimeField(db_default=Now())

    objects = AlertSilenceQuerySet.as_manager()

    class Meta:
        ordering = ("-until", "-id")
        verbose_name = "silence"
        constraints: ClassVar = [
            models.CheckConstraint(
                condition=~models.Q(limit=None, kind="", project=""), name="alert_silence_names_something"
            )
        ]

    def __str__(self) -> str:
        kind = self.get_kind_display() if self.kind else ""
        parts = (("limit", self.limit.name if self.limit else ""), ("kind", kind), ("project", self.project))
        return ", ".join(f"{name} {value}" for name, value in parts if value)

    def covers(self, alert: QuotaAlert) -> bool:
        return (
            self.limit_id in {None, alert.limit_id}
            and self.kind in {"", alert.kind}
            and (not self.project or self.project in alert.projects)
        )


class AlertRoute(Receiver):
    """
    A route says where alerts are sent, and which alerts.

    `target` is an address that anybody may see. On the channels in KEEPS_ITS_TARGET, whoever knows the address can
    post to it. There the whole address is encrypted in `secret`, and `target` is the part that people may see.
    """

    class Channel(models.TextChoices):
        EMAIL = "email", "e-mail"
        WEBHOOK = "webhook"
        SLACK = "slack", "Slack"
        TEAMS = "teams", "Microsoft Teams"
        PAGERDUTY = "pagerduty", "PagerDuty"

    KEEPS_ITS_TARGET: ClassVar = frozenset({Channel.SLACK, Channel.TEAMS, Channel.PAGERDUTY})

    name = models.CharField(max_length=100, unique=True)
    channel = models.CharField(max_length=9, choices=Channel)
    target = models.CharField(
        max_length=500,
        help_text="An e-mail address; a URL that takes a signed POST; the URL of an incoming webhook of Slack, or of a"
        " workflow of Teams; the integration key of a PagerDuty service (Events API v2).",
    )
    least_severity = models.CharField(max_length=8, choices=QuotaAlert.Severity, default=QuotaAlert.Severity.WARNING)
    project = models.CharField(
        max_length=63,
        blank=True,
        default="",
        db_default="",
        help_text="Only what is about this project. Empty: everything, also what is about none.",
    )
    kinds = ArrayField(
        models.CharField(max_length=32, choices=QuotaAlert.Kind),
        default=list,
        db_default=[],
        blank=True,
        help_text="Only these kinds. None chosen: all.",
    )
    secret = models.BinaryField(null=True, editable=False)  # the key that signs, or the whole target; encrypted
    last_error = models.TextField(blank=True, editable=False)
    last_sent_at = models.DateTimeField(null=True, editable=False)
    rotated_at = models.DateTimeField(null=True, editable=False)

    class Meta:
        ordering = ("name",)

    def __str__(self) -> str:
        return self.name
