"""The dashboard's figures: how many jobs wait, run and fail now, and how fast."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from dashboards.services.shared.wire import iso, list_link
from jobs.services.operate.scheduled_jobs import Scheduled
from jobs.services.upkeep.health import OpenLetters
from jobs.states import OUTAGE, RUNNING, SCHEDULED, SHOWN, WAITING, JobState

from .charts import rates_now, sparks
from .spend import spend_tiles

LATE_PICKUP_MS = 1000
HIGH_ERROR_PERCENT = 10


def tiles(
    apart: Mapping[str, int], *, letters: OpenLetters, oldest: datetime | None, scheduled: Scheduled
) -> list[dict[str, Any]]:
    """
    Return the tiles in the order they are shown.

    Each has `id`, `label`, `value` (null: unknown or none), `unit`, `hint` (what is counted), `tone` (empty: no
    fault), `spark` (the last 15 minutes) and `href`. Some have `since` in place of a value, a moment that the
    screen counts from. Some have `more`: there may be more than `value`. Some have `until`, a moment beside the value.

    Args:
        apart: See `states.told_apart`.
    """
    lately = rates_now()
    error_percent = None if lately.error_rate is None else round(100 * lately.error_rate, 1)
    pickup = lately.pickup_p95_ms
    shown = [
        *(_jobs(state, apart) for state in SHOWN if state in {*WAITING, OUTAGE, JobState.IN_PROGRESS}),
        *([_scheduled(apart, scheduled)] if scheduled.jobs else []),
        {
            "id": "dead_letters",
            "label": "Dead letters",
            "value": letters.count,
            "more": letters.more,
            "unit": "open",
            "hint": "failed for good; they need a person",
            "tone": "bad" if letters.count else "",
            "href": list_link("jobs_deadletter"),
        },
        {
            "id": "throughput",
            "label": "Throughput",
            "value": round(lately.throughput, 2),
            "unit": "jobs/s",
            "hint": "completed, over the last minute",
            "href": list_link("jobs_job", state="completed"),
        },
        {
            "id": "error_rate",
            "label": "Error rate",
            "value": error_percent,
            "unit": "%",
            "hint": "of the attempts of the last minute",
            "tone": "warn" if (error_percent or 0) >= HIGH_ERROR_PERCENT else "",
            "href": list_link("jobs_job", state="failed"),
        },
        {
            "id": "too_many_requests",
            "label": "429 answers",
            "value": lately.too_many_requests,
            "unit": "in 1 h",
            "hint": "calls that a provider refused for quota",
            "tone": "warn" if lately.too_many_requests else "",
            "href": list_link("ratelimits_counter"),
        },
        {
            "id": "oldest_ready",
            "label": "Oldest ready job",
            "value": None,
            "since": iso(oldest),
            "unit": "",
            "hint": "ready to run since; no limit holds it",
            "href": list_link("jobs_job", state="queued"),
        },
        {
            "id": "pickup",
            "label": "Pick-up delay p95",
            "value": None if pickup is None else round(pickup, 1),
            "unit": "ms",
            "hint": "from ready to taken, over the last minute",
            "tone": "warn" if (pickup or 0) > LATE_PICKUP_MS else "",
            "href": list_link("jobs_executor"),
        },
        *spend_tiles(),
    ]
    columns = sparks()
    return [{"tone": "", **tile, "spark": columns.get(str(tile["id"]))} for tile in shown]


def _scheduled(apart: Mapping[str, int], part: Scheduled) -> dict[str, Any]:
    return {**_jobs(SCHEDULED, apart), "more": part.more, "until": iso(part.last)}


def _jobs(state: str, counts: Mapping[str, int]) -> dict[str, Any]:
    """Return the tile of a state; the tile of jobs in progress counts all that run."""
    runs, shown = state in RUNNING, SHOWN[state]
    count = sum(counts[one] for one in RUNNING) if runs else counts[state]
    is_outage = state == OUTAGE
    return {
        "id": "running" if runs else state,
        "label": shown.words.capitalize(),
        "value": count,
        "unit": "job" if count == 1 else "jobs",
        "hint": shown.meaning,
        "tone": "bad" if is_outage and count else "",
        "href": list_link("jobs_servicebreaker") if is_outage else list_link("jobs_job", state=state),
    }
