"""How long a failed call waits for its retry, and how a job's score rises while it waits."""

from __future__ import annotations

from typing import ClassVar

from django.core.validators import MaxValueValidator, MinValueValidator
from django.db import models

from jobs.states import Priority


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
            # The claim divides by `step_seconds`.
            models.CheckConstraint(
                condition=models.Q(step_seconds=None) | models.Q(step_seconds__gt=0), name="agingrule_step_positive"
            ),
        ]

    def __str__(self) -> str:
        return self.tier
