"""Maintenance windows: pauses by calendar."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import ClassVar

from django.contrib.postgres.fields import ArrayField
from django.core.validators import MaxValueValidator
from django.db import models
from django.db.models.functions import Now

from jobs.models.job import new_id
from jobs.times.calendar import Calendar, Span
from queueops.core.postgres.zones import known_zone


class MaintenanceWindow(models.Model):
    """
    A time, once or on weekdays, in which no executor may claim certain work.

    While the window is open, its own pause switch holds the work. `next_change_at` is when that switch is next made or
    deleted; null once the window is over.
    """

    class Scope(models.TextChoices):
        GLOBAL = "global", "everything"
        PROJECT = "project"
        SERVICE = "service"
        KIND = "kind"

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    scope = models.CharField(max_length=10, choices=Scope)
    key = models.CharField(
        max_length=100, blank=True, help_text="The project's id, the service or the kind. Empty for everything."
    )
    reason = models.CharField(max_length=500, blank=True, help_text="Shown wherever its work waits.")
    begins_at = models.DateTimeField(null=True, blank=True, help_text="Once: from then.")
    ends_at = models.DateTimeField(null=True, blank=True, help_text="Once: until then.")
    weekdays = ArrayField(
        models.PositiveSmallIntegerField(validators=[MaxValueValidator(6)]),
        default=list,
        blank=True,
        help_text="Weekly: the days on which it begins.",
    )
    since = models.TimeField("from", null=True, blank=True, help_text="Weekly: what the clock shows, such as 22:00.")
    until = models.TimeField(
        null=True, blank=True, help_text="Weekly: the next such time after it began. The same: a whole day."
    )
    time_zone = models.CharField(
        max_length=64, default="UTC", help_text="Weekly: whose clock it goes by, such as Europe/Berlin."
    )
    skipped_until = models.DateTimeField(null=True, editable=False)  # spans begun before this time were ended by hand
    next_change_at = models.DateTimeField(null=True, editable=False)
    created_by = models.CharField(max_length=100, editable=False)
    created_at = models.DateTimeField(db_default=Now())

    class Meta:
        ordering = ("-id",)
        indexes: ClassVar = [
            models.Index(
                fields=["next_change_at"],
                name="jobs_window_next_idx",
                condition=models.Q(next_change_at__isnull=False),
            )
        ]

    def __str__(self) -> str:
        return f"{self.get_scope_display()} {self.key}".strip()

    @property
    def calendar(self) -> Calendar:
        return Calendar(self.begins_at, self.ends_at, self.weekdays, self.since, self.until, self.time_zone)

    @property
    def actor(self) -> str:
        """The actor in the audit trail of the pauses and resumes that the window makes."""
        return f"window:{self.pk}"

    @property
    def is_told(self) -> bool:
        """Whether its times can be told: a weekly one goes by a time zone, which this host may not know."""
        return self.begins_at is not None or known_zone(self.time_zone) is not None

    @property
    def zone_fault(self) -> str:
        """Words for people if the times of the window cannot be told; empty: they can."""
        if self.is_told:
            return ""
        return (
            f"This host does not know the time zone {self.time_zone}: the window stays as it is. Give it another zone."
        )

    def spans(self, after: datetime) -> Iterator[Span]:
        """Yield the spans that end after a moment, without those that were ended by hand; see `is_told`."""
        skipped = self.skipped_until
        return (span for span in self.calendar.spans(after) if skipped is None or span.begins_at >= skipped)
