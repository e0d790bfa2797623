"""Calls that a provider refuses one after another, by the account's or the model's fault."""

from __future__ import annotations

from typing import ClassVar

from django.db import models
from django.db.models.functions import Now

MAX_NAME_LENGTH = 100  # a pause switch's key can be as long


class RefusedCalls(models.Model):
    """
    The calls of one project with one credential and model that were refused in a row; see stops.py.

    Without a row, no call was refused lately. Once the calls have stopped, a pause switch of the scope `refused` has
    `name` as its key.
    """

    name = models.CharField(
        max_length=MAX_NAME_LENGTH, unique=True, help_text="In words, such as openai with acme-key."
    )
    project_id = models.CharField("project", max_length=63)
    service = models.CharField(max_length=64)
    credential = models.CharField(
        max_length=106, blank=True, help_text="Or `pool:` and a pool's name. Empty: they show none."
    )
    model = models.CharField(max_length=100, blank=True, help_text="Empty: whatever the model, it is the account's.")
    code = models.CharField(max_length=64, help_text="Of the failures, which all have the same.")
    failures = models.PositiveIntegerField(help_text="Jobs in a row.")
    last_error = models.TextField(blank=True)
    stopped_at = models.DateTimeField(null=True)
    probe_job_id = models.UUIDField(null=True)
    tried_at = models.DateTimeField(null=True, help_text="When a job was let go to try.")
    updated_at = models.DateTimeField(db_default=Now())

    class Meta:
        verbose_name_plural = "refused calls"
        constraints: ClassVar = [
            models.UniqueConstraint(
                fields=["project_id", "service", "credential", "model"], name="jobs_refusedcalls_once"
            )
        ]

    def __str__(self) -> str:
        return self.name
