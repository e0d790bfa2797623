"""The rows of outage breakers, for services that do not answer."""

from __future__ import annotations

from typing import ClassVar

from django.contrib.postgres.fields import ArrayField
from django.db import models
from django.db.models.functions import Now

from jobs.lanes import name_of


class ServiceBreaker(models.Model):
    """
    The outage breaker of one project's calls to one target; see docs/adr/0032. Without a row, no call failed lately.

    A closed breaker that has jobs is kept for a while: a job whose failure opens it again then spends an attempt.
    """

    service = models.CharField(max_length=64)
    target = models.CharField(max_length=400, blank=True, help_text="See jobs/lanes.py. Empty: the service itself.")
    project_id = models.CharField("project", max_length=63)
    failures = models.PositiveIntegerField(
        default=0, db_default=0, help_text="In a row: connect errors, broken connections, timeouts and 5xx answers."
    )
    calls = ArrayField(models.UUIDField(), default=list, help_text="The calls that failed, the first few.")
    paths = ArrayField(models.IntegerField(), default=list, help_text="The paths that failed.")
    spared = ArrayField(
        models.IntegerField(), default=list, help_text="Paths that failed while others answered: no outage is theirs."
    )
    opened_at = models.DateTimeField(null=True)
    closed_at = models.DateTimeField(null=True, help_text="When it closed last.")
    probe_job_id = models.UUIDField(null=True)
    probed = ArrayField(models.UUIDField(), default=list, help_text="The last jobs sent as probes.")
    probed_at = models.DateTimeField(null=True)
    next_probe_at = models.DateTimeField(null=True)
    probes = models.PositiveIntegerField(default=0, db_default=0, help_text="Probes sent since it opened.")
    holds = models.PositiveIntegerField(
        default=0, db_default=0, help_text="Jobs that wait for its end; at most 10,000."
    )
    last_error = models.TextField(default="", db_default="")
    updated_at = models.DateTimeField(db_default=Now())

    class Meta:
        permissions: ClassVar = [("steer_servicebreaker", "Can close outage breakers and send probes")]
        constraints: ClassVar = [
            models.UniqueConstraint(fields=["service", "target", "project_id"], name="jobs_servicebreaker_once")
        ]

    def __str__(self) -> str:
        return f"{self.name}, {self.project_id}"

    @property
    def name(self) -> str:
        """
        The target's name for people: the service, and its address if the service has several.

        For `http:` services it may be the address alone.
        """
        return name_of(self.service, self.target)
