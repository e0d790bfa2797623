"""A log of what providers' refusals did to counters, beside the audit trail of what people and rules changed."""

from __future__ import annotations

from typing import ClassVar

from django.db import models
from django.db.models.functions import Now

from ratelimits.subjects import MAX_ID_LENGTH


class CounterFeedback(models.Model):
    """One refusal that slowed a counter or closed it for longer; kept for a week."""

    counter = models.CharField(max_length=MAX_ID_LENGTH, help_text="Its id. It may be gone.")
    at = models.DateTimeField(db_default=Now())
    actor = models.CharField(max_length=100, help_text="The executor, or who reported the refusal.")
    reason = models.CharField(max_length=200)
    call = models.CharField(max_length=200, default="", db_default="", help_text="What was refused, such as job …")
    pressure = models.FloatField(help_text="The part of the cap in use from then on.")
    blocked_until = models.DateTimeField(null=True)

    class Meta:
        default_permissions: ClassVar = ()  # the log has no page: people read it on the counter's page
        indexes: ClassVar = [
            models.Index(fields=["counter", "-id"], name="counter_feedback_newest_idx"),
            models.Index(fields=["at"], name="counter_feedback_at_idx"),
        ]

    def __str__(self) -> str:
        return f"{self.counter}: {self.reason}"
