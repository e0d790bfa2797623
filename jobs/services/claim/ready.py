"""Since when ready jobs wait."""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime

from django.db.models import Exists, OuterRef, Q, Subquery

from jobs.models import Job, PauseSwitch
from jobs.states import JobState, Priority
from queueops.tenancy.models import Project, ProjectMove

# As the ready index has it, word by word: without one of them every waiting job would be read.
READY = {"status": JobState.QUEUED, "scheduled_at": None, "held": False, "crash_count__lt": 2, "lane": None}


def oldest_ready(project_ids: Collection[str]) -> dict[str, datetime]:
    """
    Return since when the oldest ready job outside of lanes waits, of projects that have one.

    Projects that are paused, or live in another installation, have none: what they have waits for that alone.

    One probe of the ready index a project and tier.
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
