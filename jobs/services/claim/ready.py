"""Finds since when each project's oldest ready job waits."""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime

from django.db.models import Exists, OuterRef, Q, Subquery

from jobs.models import Job, PauseSwitch
from jobs.states import JobState, Priority
from queueops.tenancy.models import Project, ProjectMove

# The conditions of the ready index, word by word: if one were missing, every waiting job would be read.
READY = {"status": JobState.QUEUED, "scheduled_at": None, "held": False, "crash_count__lt": 2, "lane": None}


def oldest_ready(project_ids: Collection[str]) -> dict[str, datetime]:
    """
    Return, for each project with ready jobs outside lanes, since when the oldest of them waits.

    Projects that are paused, being moved or moved to another installation are left out: their jobs wait for that alone,
    not for a worker.

    The query probes the ready index once for each project and tier.
    """
    heads = {
        f"oldest_{tier}": Subquery(
            Job.objects.filter(**READY, project_id=OuterRef("pk"), priority=tier)
            .order_by("eligible_since")
            .values("eligible_since")[:1]
        )
        for tier in Priority
    }
    of_project = Q(scope=PauseSwitch.Scope.PROJECT, key=OuterRef("pk"))
    paused = PauseSwitch.objects.filter(of_project | Q(scope=PauseSwitch.Scope.GLOBAL))
    going = Project.objects.filter(~Exists(paused), pk__in=project_ids, move=ProjectMove.NONE)
    rows = going.order_by().annotate(**heads).values("pk", *heads)
    found = {row["pk"]: [row[head] for head in heads if row[head]] for row in rows}
    return {project: min(times) for project, times in found.items() if times}
