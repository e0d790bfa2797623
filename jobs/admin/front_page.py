"""The admin's first page: is work flowing, what holds it back, what needs a person."""

from __future__ import annotations

from typing import Any

from django.db.models import Sum
from django.http import HttpRequest
from django.urls import reverse

from jobs.models import WHOLE_PROJECT, Executor, JobCount, PauseSwitch
from jobs.services.claim.ready import oldest_ready
from jobs.services.finish.outages import count_held, grouped, open_breakers
from jobs.services.upkeep.failing import failing_services
from jobs.services.upkeep.health import Situation, findings, health_of, open_letters
from jobs.states import RUNNING, TERMINAL, JobState
from queueops.screens import showing
from ratelimits.models import QuotaAlert
from ratelimits.services.alerts.allowance_alerts import OF_ALLOWANCES, OF_THE_QUEUE

MOST_PROJECTS_SHOWN = 50
MOST_SILENT = 20
MOST_OF_USERS = 1_000  # alerts of allowances, counted


def front_page(request: HttpRequest, context: dict[str, Any]) -> dict[str, Any]:
    """What templates/admin/index.html shows; nothing for people who may not see jobs."""
    if not request.user.has_perm("jobs.view_job"):
        return context
    projects = _projects()
    counted = _everybody()
    executors = [health_of(executor) for executor in Executor.objects.all()]
    pauses = list(PauseSwitch.objects.order_by("created_at")[:20])
    silent, held = open_breakers(MOST_SILENT), count_held()
    letters = open_letters()
    oldest = min((row["oldest"] for row in projects if row["oldest"]), default=None)
    unseen = QuotaAlert.objects.filter(resolved_at=None, acknowledged_at=None)
    alerts = list(unseen.filter(kind__in=OF_THE_QUEUE))
    of_users = unseen.filter(kind__in=OF_ALLOWANCES).order_by()[: MOST_OF_USERS + 1].count()
    critical = [alert for alert in alerts if alert.severity == QuotaAlert.Severity.CRITICAL]
    situation = Situation(
        counted,
        executors,
        pauses=pauses,
        silent=silent,
        held_by_outages=held,
        failing=failing_services(),
        alerts=alerts,
        letters=letters,
    )
    verdict = findings(situation)[0]
    return {
        **context,
        "title": "Overview",
        "shows_work": True,
        "verdict": {"tone": verdict.tone, "text": verdict.text, "cause": verdict.cause},
        "projects": [
            {**row, "oldest": showing.ago(row["oldest"]) if row["oldest"] else showing.NOTHING} for row in projects
        ],
        "states": [{"name": state.value, "badge": showing.state_badge(state)} for state in JobState],
        "dead": letters.words,
        "has_dead": bool(letters.count),
        "oldest": showing.age(oldest) if oldest else showing.NOTHING,
        "limited": f"{max(0, counted[JobState.RATE_LIMITED] - held):,}",
        "held_by_outages": f"{held:,}" if held else "",
        "alerts": len(alerts),
        "critical": len(critical),
        "of_users": f"more than {MOST_OF_USERS:,}" if of_users > MOST_OF_USERS else f"{of_users:,}" if of_users else "",
        "alive": executors.count("alive"),
        "not_alive": len(executors) - executors.count("alive"),
        "silent": [(name, showing.ago(out[0].opened_at)) for name, out in grouped(silent).items()],
        "pauses": [(str(switch), switch.reason, showing.ago(switch.created_at)) for switch in pauses],
    }


def _everybody() -> dict[str, int]:
    sums = {state.value: Sum(state.value, default=0) for state in JobState}
    return JobCount.objects.filter(batch_id=WHOLE_PROJECT).aggregate(**sums)


def _projects() -> list[dict[str, Any]]:
    """The projects with the most unfinished work, their counts and their oldest ready job."""
    sums = {f"sum_{state}": Sum(state.value) for state in JobState}
    counted: list[Any] = list(JobCount.objects.filter(batch_id=WHOLE_PROJECT).values("project_id").annotate(**sums))

    def unfinished(row: dict[str, Any]) -> int:
        return sum(row[f"sum_{state}"] for state in JobState if state not in TERMINAL)

    counted.sort(key=lambda row: (-unfinished(row), row["project_id"]))
    shown = counted[:MOST_PROJECTS_SHOWN]
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
