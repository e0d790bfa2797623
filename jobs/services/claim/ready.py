"""Finds since when each project's oldest ready job waits."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from datetime import datetime

from django.db.models import Exists, OuterRef, Q, QuerySet, Subquery

from jobs.models import Job, PauseSwitch
from jobs.states import JobState, Priority
from queueops.tenancy.models import Project, ProjectMove

MAX_PROJECTS = 50  # whose oldest ready job is read, for all together
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
    rows = going_projects().filter(pk__in=project_ids).order_by().annotate(**heads).values("pk", *heads)
    found = {row["pk"]: [row[head] for head in heads if row[head]] for row in rows}
    return {project: min(times) for project, times in found.items() if times}


def oldest_of_busiest(queued: Mapping[str, int]) -> datetime | None:
    """
    Return since when the oldest ready job waits, of the MAX_PROJECTS projects with the most queued jobs.

    Args:
        queued: The number of queued jobs by project. Projects whose jobs cannot go are left out first.
    """
    busiest = sorted((project for project, jobs in queued.items() if jobs), key=lambda project: -queued[project])
    if len(busiest) > MAX_PROJECTS:
        going = set(going_projects().filter(pk__in=busiest).values_list("pk", flat=True))
        busiest = [project for project in busiest if project in going]
    return min(oldest_ready(busiest[:MAX_PROJECTS]).values(), default=None)


def going_projects() -> QuerySet[Project]:
    """The projects that are neither paused nor being moved or moved to another installation."""
    of_project = Q(scope=PauseSwitch.Scope.PROJECT, key=OuterRef("pk"))
    paused = PauseSwitch.objects.filter(of_project | Q(scope=PauseSwitch.Scope.GLOBAL))
    return Project.objects.filter(~Exists(paused), move=ProjectMove.NONE)
