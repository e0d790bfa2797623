"""How long jobs that came back from the archive are kept."""

from __future__ import annotations

from datetime import datetime

from django.db import transaction

from jobs.models import RestoredJob
from jobs.services.upkeep.partitions import drop_part, restored_parts
from jobs.services.upkeep.retention import RetentionRule, nothing_is_late
from queueops.core.sql import run_sql


def _forget(before: datetime, most: int) -> int:
    """Delete restored jobs after `kept_until`: the archive has them. Their events are dropped with their partitions."""
    over = RestoredJob.objects.filter(kept_until__lt=before).order_by("kept_until")
    chosen = list(over.values_list("project_id", "pk")[:most])
    with transaction.atomic():
        RestoredJob.objects.filter(pk__in=[pk for _, pk in chosen]).delete()
        for project_id in {project_id for project_id, _ in chosen}:
            ids = [pk for owner, pk in chosen if owner == project_id]
            while run_sql("jobs", "delete_archived_jobs", {"project": project_id, "ids": ids}):
                pass  # one statement cannot delete both a job and its requeue: repeat it
    for name, day in restored_parts():
        if not RestoredJob.objects.filter(first_day__lte=day, last_day__gte=day).exists():
            drop_part(name)
    return len(chosen)


RESTORED_JOBS = RetentionRule("restored jobs", None, _forget, nothing_is_late)
