"""The rows of jobs that came back from the archive for a while."""

from __future__ import annotations

from django.db import models


class RestoredJob(models.Model):
    """
    An ended job that was brought back from the archive, and stays until `kept_until`.

    Its events lie in partitions of their own, which neither retention nor the archive treats as days of the log.
    """

    job_id = models.UUIDField(primary_key=True)
    project_id = models.CharField(max_length=63)
    first_day = models.DateField(help_text="Of its events.")
    last_day = models.DateField()
    kept_until = models.DateTimeField(db_index=True)

    def __str__(self) -> str:
        return str(self.job_id)
