"""The admin's first page: whether jobs are carried out, what holds them back, and what needs a person."""

from __future__ import annotations

from typing import Any

from django.http import HttpRequest
from django.urls import reverse

from dashboards.services.overview import Overview, address_of, read_overview
from jobs.features.outages.outages import count_held_by_project, grouped
from jobs.services.claim.ready import oldest_ready
from jobs.services.operate.scheduled_jobs import NOTHING_SCHEDULED, scheduled_of_projects
from jobs.services.upkeep.health import health_of
from jobs.states import OUTAGE, SCHEDULED, SHOWN, JobState, told_apart
from queueops.core.postgres.replica import replica_standing
from queueops.core.values.numbers import numbered
from queueops.screens import formatting
from ratelimits.models import QuotaAlert
from ratelimits.usage.allowance_alerts import OF_ALLOWANCES, OF_THE_QUEUE

MAX_PROJECTS_SHOWN = 50
MAX_OF_USERS = 1_000  # open alerts about users' allowances are counted up to this number
SIGNS = {"good": "check_circle", "held": "hourglass_top", "warn": "warning", "bad": "error"}
CHANGES = {"ends": "Ends", "clears": "Clears", "asks": "A probe asks"}


def front_page(request: HttpRequest, context: dict[str, Any]) -> dict[str, Any]:
    """Add the data of templates/admin/index.html; people who may not see jobs get none."""
    if not request.user.has_perm("jobs.view_job"):
        return context
    overview = read_overview()
    projects = _projects(overview)
    executors = [health_of(executor) for executor in overview.executors]
    oldest = min((row["oldest"] for row in projects if row["oldest"]), default=None)
    alerts = [alert for alert in overview.alerts if alert.acknowledged_at is None and alert.kind in OF_THE_QUEUE]
    critical = [alert for alert in alerts if alert.severity == QuotaAlert.Severity.CRITICAL]
    unseen = QuotaAlert.objects.filter(kind__in=OF_ALLOWANCES, resolved_at=None, acknowledged_at=None)
    of_users = unseen.order_by()[: MAX_OF_USERS + 1].count()
    apart, columns = overview.apart, [SHOWN[state] for state in _columns(overview)]
    return {
        **context,
        "title": "Overview",
        "shows_work": True,
        "findings": [
            {
                "tone": one.tone,
                "sign": SIGNS[one.tone],
                "text": one.text,
                "cause": one.cause,
                "begins": formatting.ago(one.begins_at) if one.begins_at else "",
                "ends": formatting.ahead(one.until) if one.until else "",
                "change": CHANGES[one.change],
                "href": address_of(one),
            }
            for one in overview.findings
        ],
        "replica": replica_standing(),
        "projects": [
            {**row, "oldest": formatting.ago(row["oldest"]) if row["oldest"] else formatting.NOTHING}
            for row in projects
        ],
        "states": [formatting.badge(one.tone, one.sign, one.words) for one in columns],
        "dead": overview.letters.words,
        "has_dead": bool(overview.letters.count),
        "scheduled": f"{apart[SCHEDULED]:,}" if apart[SCHEDULED] else "",
        "scheduled_until": formatting.ahead(overview.scheduled.last),
        "oldest": formatting.age(oldest) if oldest else formatting.NOTHING,
        "limited": f"{apart[JobState.RATE_LIMITED]:,}",
        "held_by_outages": numbered(apart[OUTAGE], "job") if apart[OUTAGE] else "",
        "alerts": len(alerts),
        "critical": len(critical),
        "of_users": f"more than {MAX_OF_USERS:,}" if of_users > MAX_OF_USERS else f"{of_users:,}" if of_users else "",
        "alive": executors.count("alive"),
        "not_alive": len(executors) - executors.count("alive"),
        "silent": [(name, formatting.ago(out[0].opened_at)) for name, out in grouped(overview.silent).items()],
        "pauses": [
            (one.name, one.switch.reason, one.by, formatting.ago(one.switch.created_at)) for one in overview.paused
        ],
    }


def _columns(overview: Overview) -> list[str]:
    """Return the states that have a column in the table of projects."""
    apart = {SCHEDULED: overview.scheduled.jobs, OUTAGE: overview.held}
    return [state for state in SHOWN if apart.get(state, True)]


def _projects(overview: Overview) -> list[dict[str, Any]]:
    """Return the projects with the most unfinished jobs, their counts and their oldest ready job."""
    shown = list(overview.by_project.items())[:MAX_PROJECTS_SHOWN]
    oldest = oldest_ready([project for project, _ in shown])
    jobs, columns = reverse("admin:jobs_job_changelist"), _columns(overview)
    later = scheduled_of_projects([project for project, counts in shown if counts[JobState.QUEUED]])
    held = count_held_by_project()
    apart = {
        project: told_apart(
            counts, held_by_outage=held.get(project, 0), scheduled=later.get(project, NOTHING_SCHEDULED).jobs
        )
        for project, counts in shown
    }
    return [
        {
            "id": project,
            "href": f"{jobs}?project={project}",
            "counts": [
                {
                    "name": state,
                    "count": apart[project][state],
                    "shown": f"{apart[project][state]:,}",
                    "href": f"{jobs}?project={project}&state={state}",
                }
                for state in columns
            ],
            "oldest": oldest.get(project),
        }
        for project, _ in shown
    ]
