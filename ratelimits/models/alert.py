"""What operators are told, and where."""

from __future__ import annotations

from typing import ClassVar

from django.db import models
from django.db.models.functions import Now

from ratelimits.subjects import LONGEST_ID

from .limit import Limit


class QuotaAlert(models.Model):
    """
    One alert, open until `resolved_at`. At most one is open for a kind, subject and threshold.

    `subject` is a counter's id for the kinds of a limit, and otherwise what the kind is about: a project, an
    executor, or `*`. `figures` are the numbers of the message, for screens and webhooks.
    """

    class Kind(models.TextChoices):
        USAGE = "usage", "usage crossed a threshold"
        SATURATED = "saturated", "work waits beyond a cap"
        EXCEEDED = "exceeded", "the provider refused, or the cap was passed"
        UNLIMITED = "unlimited", "the provider refused what no limit counts"
        DEAD_LETTERS = "dead_letters", "dead letters grow"
        OLDEST_READY = "oldest_ready", "ready work waits too long"
        STUCK_EXECUTOR = "stuck_executor", "an executor is stuck"
        OUTAGE = "outage", "a service does not answer"
        FAILING = "failing", "most attempts fail"
        UNSERVED = "unserved", "no worker carries out a kind"
        CHARGE_LEAK = "charge_leak", "estimates were not settled"
        ALLOWANCE = "allowance", "a user comes near the month's quota"
        OVERAGE = "overage", "a user passed a strict quota"

    class Severity(models.TextChoices):
        NOTICE = "notice"
        WARNING = "warning"
        CRITICAL = "critical"

    kind = models.CharField(max_length=16, choices=Kind)
    severity = models.CharField(max_length=8, choices=Severity)
    limit = models.ForeignKey(Limit, models.CASCADE, null=True, blank=True, related_name="alerts")
    subject = models.CharField(max_length=LONGEST_ID)
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
        ]

    def __str__(self) -> str:
        return self.message

    @property
    def runbook(self) -> str:
        """The page that says what to do, below the checkout."""
        return f"docs/runbooks/{self.kind}.md"


class AlertRoute(models.Model):
    """Where alerts of at least one severity are sent."""

    class Channel(models.TextChoices):
        EMAIL = "email", "e-mail"
        WEBHOOK = "webhook"

    name = models.CharField(max_length=100, unique=True)
    channel = models.CharField(max_length=7, choices=Channel)
    target = models.CharField(max_length=500, help_text="An e-mail address, or a URL that takes a signed POST.")
    least_severity = models.CharField(max_length=8, choices=QuotaAlert.Severity, default=QuotaAlert.Severity.WARNING)
    secret = models.BinaryField(null=True, editable=False)  # of a webhook; see queueops/tenancy/signing.py
    enabled = models.BooleanField(default=True)
    last_error = models.TextField(blank=True, editable=False)
    last_sent_at = models.DateTimeField(null=True, editable=False)
    rotated_at = models.DateTimeField(null=True, editable=False)

    class Meta:
        ordering = ("name",)

    def __str__(self) -> str:
        return self.name
