"""Who carries out jobs, and what stops them."""

from __future__ import annotations

from typing import ClassVar

from django.contrib.postgres.functions import RandomUUID
from django.db import models
from django.db.models.functions import Now

from .job import new_id


class Executor(models.Model):
    """A live worker process that claims jobs. The row goes when the process drains; a stale one was killed."""

    class Role(models.TextChoices):
        GENERAL = "general"
        QUARANTINE = "quarantine", "quarantine: one suspect job at a time"

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    role = models.CharField(max_length=10, choices=Role.choices, default=Role.GENERAL)
    host = models.CharField(max_length=255)
    pid = models.IntegerField()
    process_started_at = models.FloatField(help_text="The process's start, in the host's epoch seconds.")
    cluster_id = models.UUIDField(
        db_default=RandomUUID(), help_text="Drawn at each start of a cluster: hosts may share a name, and so may pids."
    )
    cluster_pid = models.IntegerField(help_text="The django-q2 sentinel that guards it.")
    slots = models.PositiveIntegerField()
    in_flight = models.PositiveIntegerField(default=0, db_default=0)
    draining = models.BooleanField(default=False, db_default=False)
    loop_lag_ms = models.FloatField(default=0, db_default=0, help_text="How late the handlers' event loop answers.")
    leases_lost = models.PositiveIntegerField(default=0, db_default=0)
    started_at = models.DateTimeField(db_default=Now())
    heartbeat_at = models.DateTimeField(db_default=Now())

    class Meta:
        ordering = ("host", "pid")
        constraints: ClassVar = [
            models.UniqueConstraint(
                fields=["cluster_id"],
                condition=models.Q(role="quarantine"),
                name="jobs_executor_one_seat",
            )
        ]

    def __str__(self) -> str:
        return f"{self.host}:{self.pid}"


class ServiceBreaker(models.Model):
    """The outage breaker of one service. No row: it has never failed."""

    service = models.CharField(primary_key=True, max_length=64)
    failures = models.PositiveIntegerField(default=0, help_text="Consecutive connect errors and 5xx answers.")
    opened_at = models.DateTimeField(null=True)
    probe_job_id = models.UUIDField(null=True)
    next_probe_at = models.DateTimeField(null=True)
    probes = models.PositiveIntegerField(default=0, db_default=0, help_text="Probes sent since it opened.")
    last_error = models.TextField(default="", db_default="")
    updated_at = models.DateTimeField(db_default=Now())

    def __str__(self) -> str:
        return f"{self.service}: {'open' if self.opened_at else 'closed'}"


class DutyLease(models.Model):
    """Who does a periodic duty until when. Every duty is idempotent, so two holders for a moment do no harm."""

    duty = models.CharField(primary_key=True, max_length=40)
    holder = models.UUIDField()
    expires_at = models.DateTimeField()

    def __str__(self) -> str:
        return self.duty


class PauseSwitch(models.Model):
    """Work that nobody may claim until the switch is removed."""

    class Scope(models.TextChoices):
        GLOBAL = "global"
        PROJECT = "project"
        SERVICE = "service"
        KIND = "kind"
        BATCH = "batch"

    scope = models.CharField(max_length=10, choices=Scope.choices)
    key = models.CharField(max_length=100, blank=True, help_text="Project, service, kind or batch; empty for global.")
    reason = models.TextField(blank=True)
    paused_by = models.CharField(max_length=100)
    created_at = models.DateTimeField(db_default=Now())

    class Meta:
        verbose_name_plural = "pause switches"
        constraints: ClassVar = [models.UniqueConstraint(fields=["scope", "key"], name="jobs_pauseswitch_once")]

    def __str__(self) -> str:
        return f"{self.scope} {self.key}".strip()
