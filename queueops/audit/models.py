"""The audit trail: changes that people and keys made."""

from __future__ import annotations

from typing import ClassVar

from django.db import models
from django.db.models.functions import Now


class TrailEntry(models.Model):
    """A change that a person or key made."""

    id = models.BigAutoField(primary_key=True)
    project_id = models.CharField(max_length=63, blank=True)
    actor = models.CharField(max_length=100)
    action = models.CharField(max_length=60)
    target = models.CharField(max_length=200)
    before = models.JSONField(null=True)
    after = models.JSONField(null=True)
    moved = models.PositiveIntegerField(default=1, help_text="How many rows it changed.")
    reason = models.TextField(blank=True)
    address = models.CharField(max_length=64, blank=True, default="", help_text="Of who asked.")
    created_at = models.DateTimeField(db_default=Now())

    class Meta:
        abstract = True
        ordering = ("-id",)

    def __str__(self) -> str:
        return f"{self.actor} {self.action} {self.target}"


class AuditEntry(TrailEntry):
    """The trail. The database refuses to update or delete a row; old months are dropped whole."""

    class Meta(TrailEntry.Meta):
        verbose_name_plural = "audit entries"
        db_table = "jobs_auditentry"  # from when the jobs app owned it; triggers, policies and partitions use it
        indexes: ClassVar = [
            models.Index(fields=["target", "-id"], name="jobs_auditentry_target_idx"),
            models.Index(fields=["project_id", "-id"], name="jobs_auditentry_project_idx"),
        ]


class ProjectAuditEntry(TrailEntry):
    """
    A view of the trail: the changes of the project for which a transaction acts. The API may read nothing else of the
    trail.
    """

    class Meta(TrailEntry.Meta):
        managed = False
        default_permissions = ()
        db_table = "jobs_auditentry_of_project"


class AuditStream(models.Model):
    """How far the trail has been sent to one target; only stream.py writes these rows."""

    target = models.CharField(max_length=300, unique=True)
    cursor = models.BigIntegerField(default=0, help_text="Id of the last entry that arrived there.")
    holder = models.UUIDField(null=True, help_text="Of the process that sends.")
    held_until = models.DateTimeField(null=True)
    accepted_at = models.DateTimeField(db_default=Now(), help_text="When it took entries last, or was named.")
    tried_at = models.DateTimeField(null=True)
    fault = models.CharField(max_length=300, blank=True, help_text="Of the last try; empty: it went well.")

    class Meta:
        default_permissions = ()

    def __str__(self) -> str:
        return self.target
