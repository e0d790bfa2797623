"""Counts, by project, the jobs that wait for one cause, so that each project is told of its own jobs."""

from __future__ import annotations

from django.db.models import Count, QuerySet

from jobs.models import Job
from jobs.services.operate.job_filter import Counted
from queueops.core.values.numbers import numbered

MAX_HELD_READ = 5000  # jobs that one look reads
MAX_LOOKS = 10  # each leaves out the projects that are known already


def count_by_project(jobs: QuerySet[Job]) -> dict[str, Counted]:
    """
    Count jobs by project, in bounded statements; the largest first.

    A project whose jobs come after MAX_HELD_READ jobs of others is found by the next look. Projects that MAX_LOOKS
    looks do not reach are left out until fewer projects have such jobs.
    """
    found: dict[str, Counted] = {}
    for _ in range(MAX_LOOKS):
        read = jobs.exclude(project_id__in=list(found)).order_by().values("pk")[:MAX_HELD_READ]
        rows = Job.objects.filter(pk__in=read).order_by().values_list("project_id").annotate(jobs=Count("pk"))
        counts = dict(rows)
        is_full = sum(counts.values()) >= MAX_HELD_READ
        found |= {project: Counted(count, is_least=is_full) for project, count in counts.items()}
        if not is_full:
            break
    return dict(sorted(found.items(), key=lambda one: (-one[1].count, one[0])))


def jobs_wait(counted: Counted, project: str) -> str:
    """Return words such as `3 jobs of acme wait`."""
    before = "at least " * counted.is_least
    return numbered(counted.count, f"job of {project} waits", f"jobs of {project} wait", before=before)
