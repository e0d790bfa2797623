"""The row of a saved filter."""

from __future__ import annotations

from typing import ClassVar

from django.conf import settings
from django.db import models
from django.db.models.functions import Now


class SavedFilter(models.Model):
    """A list's address under a name. Only its owner sees it unless it is shared."""

    class Screen(models.TextChoices):
        JOBS = "job", "jobs"
        BATCHES = "batch", "batches"
        DEAD_LETTERS = "deadletter", "dead letters"

    owner = models.ForeignKey(settings.AUTH_USER_MODEL, models.CASCADE, related_name="saved_filters")
    screen = models.CharField(max_length=20, choices=Screen.choices)
    name = models.CharField(max_length=60)
    query = models.CharField(max_length=2000, help_text="The list's parameters, as its address has them.")
    shared = models.BooleanField(default=False, db_default=False)
    created_at = models.DateTimeField(db_default=Now())

    class Meta:
        permissions: ClassVar = [("share_savedfilter", "Can share saved filters")]
        constraints: ClassVar = [
            models.UniqueConstraint(fields=["owner", "screen", "name"], name="jobs_savedfilter_once")
        ]

    def __str__(self) -> str:
        return self.name
