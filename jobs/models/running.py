"""The executors that carry out jobs, and the switches and breakers that stop jobs."""

from __future__ import annotations

from typing import ClassVar

from django.contrib.postgres.functions import RandomUUID
from django.db import models
from django.db.models.functions import Now

from jobs.features.windows.models import MaintenanceWindow
from queueops.tenancy.models import PLATFORM

from .job import new_id


class Executor(models.Model):
    """A live worker process that claims jobs. Draining deletes its row; an old heartbeat means a killed process."""

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
    pool = models.CharField(max_length=40, default="", db_default="", help_text="Empty: it serves all jobs.")
    slots = models.PositiveIntegerField()
    in_flight = models.PositiveIntegerField(default=0, db_default=0)
    draining = models.BooleanField(default=False, db_default=False)
    loop_lag_ms = models.FloatField(default=0, db_default=0, help_text="How late the handlers' event loop answers.")
    kinds = models.JSONField(
        default=dict,
        db_default=models.Value({}, models.JSONField()),
        help_text="What it carries out, each with its payload's version.",
    )
    loops_held = models.PositiveIntegerField(
        default=0, db_default=0, help_text="Times that a handler held the event loop for longer than its budget."
    )
    loop_held_at = models.DateTimeField(null=True)
    loop_held_by = models.CharField(max_length=300, default="", db_default="", help_text="The job that did it last.")
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


class DutyLease(models.Model):
    """The holder of a periodic duty and its term. Every duty is idempotent: two holders for a moment do no harm."""

    duty = models.CharField(primary_key=True, max_length=40)
    holder = models.UUIDField()
    expires_at = models.DateTimeField()

    def __str__(self) -> str:
        return self.duty


class PauseSwitch(models.Model):
    """A switch that stops claims of some work until it is removed."""

    class Scope(models.TextChoices):
        GLOBAL = "global"
        PROJECT = "project"
        SERVICE = "service"
        KIND = "kind"
        BATCH = "batch"
        UNKNOWN = "unknown", "no worker knows kind"  # the platform sets it: see served_kinds.py
        UNFIT = "unfit", "no worker takes some payloads of kind"
        SEALED = "sealed", "no worker has the payload key"
        REFUSED = "refused", "refused:"  # the platform sets it: see features/refused_calls/stops.py

    scope = models.CharField(max_length=10, choices=Scope.choices)
    key = models.CharField(max_length=100, blank=True, help_text="Project, service, kind or batch; empty for global.")
    pool = models.CharField(
        max_length=40, blank=True, default="", db_default="", help_text="Of a kind that no worker knows: in which pool."
    )
    reason = models.TextField(blank=True)
    paused_by = models.CharField(max_length=100)
    window = models.ForeignKey(
        MaintenanceWindow,
        models.CASCADE,
        null=True,
        editable=False,
        related_name="switches",
        help_text="Whose it is, and who takes it off. Null: a person's, or the platform's.",
    )
    until = models.DateTimeField(null=True, help_text="When the window that holds it ends.")
    created_at = models.DateTimeField(db_default=Now())

    EXEMPT = PLATFORM  # this project works on while everything is paused: its jobs deliver the alerts

    class Meta:
        verbose_name_plural = "pause switches"
        constraints: ClassVar = [
            models.UniqueConstraint(
                fields=["scope", "key", "pool", "window"], name="jobs_pauseswitch_once_each", nulls_distinct=False
            )
        ]

    def __str__(self) -> str:
        if self.pool:
            return f"no worker of pool {self.pool} knows kind {self.key}"
        return f"{self.get_scope_display().lower()} {self.key}".strip()
