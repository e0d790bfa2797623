"""The admin's first page: is work flowing, what holds it back, what needs a person."""

from __future__ import annotations

from typing import Any

from django.db.models import Sum
from django.http import HttpRequest
from django.urls import reverse

from jobs.models import WHOLE_PROJECT, DeadLetter, Executor, JobCount, PauseSwitch, ServiceBreaker
from jobs.services.ready import oldest_ready
from jobs.states import RUNNING, TERMINAL, JobState
from ratelimits.models import QuotaAlert

from . import showing
from .executors import health_of

MOST_PROJECTS = 50
MOST_NAMED = 3  # in the one sentence; all of them are below it
MOST_COUNTED = 10_000  # dead letters of a tile; beyond it says "more than"


def front_page(request: HttpRequest, context: dict[str, Any]) -> dict[str, Any]:
    """What templates/admin/index.html shows; nothing for people who may not see jobs."""
    if not request.user.has_perm("jobs.view_job"):
        return context
    projects = _projects()
    executors = [health_of(executor) for executor in Executor.objects.all()]
    pauses = list(PauseSwitch.objects.order_by("created_at")[:20])
    silent = list(ServiceBreaker.objects.filter(opened_at__isnull=False).order_by("opened_at")[:20])
    dead = DeadLetter.objects.open().order_by()[: MOST_COUNTED + 1].count()
    oldest = min((row["oldest"] for row in projects if row["oldest"]), default=None)
    unseen = QuotaAlert.objects.filter(resolved_at=None, acknowledged_at=None)
    alerts = list(unseen.order_by().values_list("severity", flat=True))
    critical = alerts.count(QuotaAlert.Severity.CRITICAL)
    limited = JobCount.objects.filter(batch_id=WHOLE_PROJECT).aggregate(n=Sum(JobState.RATE_LIMITED.value))["n"] or 0
    return {
        **context,
        "title": "Overview",
        "shows_work": True,
        "verdict": _verdict(
            projects, executors, pauses=pauses, silent=silent, dead=dead, critical=critical, limited=limited
        ),
        "projects": [
            {**row, "oldest": showing.ago(row["oldest"]) if row["oldest"] else showing.NOTHING} for row in projects
        ],
        "states": [{"name": state.value, "badge": showing.state_badge(state)} for state in JobState],
        "dead": f"more than {MOST_COUNTED:,}" if dead > MOST_COUNTED else f"{dead:,}",
        "has_dead": bool(dead),
        "oldest": showing.age(oldest) if oldest else showing.NOTHING,
        "limited": f"{limited:,}",
        "alerts": len(alerts),
        "critical": critical,
        "alive": executors.count("alive"),
        "not_alive": len(executors) - executors.count("alive"),
        "silent": [(breaker.service, showing.ago(breaker.opened_at)) for breaker in silent],
        "pauses": [(str(switch), switch.reason, showing.ago(switch.created_at)) for switch in pauses],
    }


def _projects() -> list[dict[str, Any]]:
    """The projects with the most unfinished work, their counts and their oldest ready job."""
    sums = {f"sum_{state}": Sum(state.value) for state in JobState}
    counted: list[Any] = list(JobCount.objects.filter(batch_id=WHOLE_PROJECT).values("project_id").annotate(**sums))

    def unfinished(row: dict[str, Any]) -> int:
        return sum(row[f"sum_{state}"] for state in JobState if state not in TERMINAL)

    counted.sort(key=lambda row: (-unfinished(row), row["project_id"]))
    shown = counted[:MOST_PROJECTS]
    oldest = oldest_ready([row["project_id"] for row in shown])
    jobs = reverse("admin:jobs_job_changelist")
    return [
        {
            "id": row["project_id"],
            "href": f"{jobs}?project={row['project_id']}",
            "unfinished": unfinished(row),
            "running": sum(row[f"sum_{state}"] for state in RUNNING),
            "counts": [
                {
                    "name": state.value,
                    "count": row[f"sum_{state}"],
                    "href": f"{jobs}?project={row['project_id']}&state={state}",
                }
                for state in JobState
            ],
            "oldest": oldest.get(row["project_id"]),
        }
        for row in shown
    ]


def _verdict(
    projects: list[dict[str, Any]],
    executors: list[str],
    *,
    pauses: list[PauseSwitch],
    silent: list[ServiceBreaker],
    dead: int,
    critical: int,
    limited: int,
) -> dict[str, str]:
    """One sentence: the likeliest reason that work stands still, or that it flows."""
    waiting = sum(row["unfinished"] - row["running"] for row in projects)
    if "alive" not in executors:
        return {"tone": "bad", "text": "No executor is alive: nothing is carried out. Start manage.py qcluster."}
    if any(switch.scope == PauseSwitch.Scope.GLOBAL for switch in pauses):
        return {"tone": "warn", "text": "Everything is paused."}
    if silent:
        named = ", ".join(one.service for one in silent[:MOST_NAMED])
        return {"tone": "bad", "text": f"{named} does not answer; its work waits unharmed."}
    if pauses:
        named = ", ".join(str(switch) for switch in pauses[:MOST_NAMED])
        more = " and more" if len(pauses) > MOST_NAMED else ""
        return {"tone": "warn", "text": f"Paused: {named}{more}. Other work flows."}
    flows = f"Work flows; {limited:,} wait for quota." if limited else "Work flows."
    if critical or dead:
        needy = "Critical alerts" if critical else "Dead letters"
        return {"tone": "warn", "text": f"{flows} {needy} need a person."}
    is_busy = waiting or any(row["running"] for row in projects)
    return {"tone": "good", "text": flows if is_busy else "Nothing to do: the queue is empty."}
