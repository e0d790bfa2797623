"""The ramp after a resume: one row for the installation, or none."""

from __future__ import annotations

from datetime import datetime
from typing import ClassVar

from django.db import models
from django.db.models import Q

from queueops.core.clock import Now
from ratelimits.algorithms.modifiers.ramp import Ramp


class ResumeRamp(models.Model):
    """
    How far every limit is open again. A row whose end has passed has no effect, and the next ramp replaces it.

    Only `ratelimits.limits.ramps` writes it.
    """

    ONLY = 1

    id = models.SmallIntegerField(primary_key=True, default=ONLY)
    started_at = models.DateTimeField(null=True, help_text="None: work is still paused.")
    over_seconds = models.FloatField()
    held_share = models.FloatField(null=True, help_text="It stands at this share. None: it grows.")
    slots = models.PositiveIntegerField(help_text="What all workers can carry out at once.")
    started_by = models.CharField(max_length=100)

    class Meta:
        verbose_name = "ramp"
        permissions: ClassVar = []
        constraints: ClassVar = [models.CheckConstraint(condition=Q(id=1), name="resume_ramp_once")]

    def __str__(self) -> str:
        return "ramp"

    @property
    def figures(self) -> Ramp:
        started_at = None if self.started_at is None else self.started_at.timestamp()
        return Ramp(started_at, self.over_seconds, self.held_share, max(1, self.slots))

    def in_force(self, now: datetime) -> Ramp | None:
        """Return the ramp; None: it has ended."""
        ramp = self.figures
        return None if ramp.ends_at is not None and now.timestamp() >= ramp.ends_at else ramp


def read_ramp() -> tuple[Ramp, float] | None:
    """The ramp in force, and the current time, seconds since 1970; None: every limit is open."""
    row = ResumeRamp.objects.annotate(now=Now()).first()
    ramp = row and row.in_force(row.now)
    return (ramp, row.now.timestamp()) if row and ramp else None
