"""The dashboard's figures: what waits, runs and fails now, and how fast."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from jobs.services.health import OpenLetters
from jobs.states import RUNNING, JobState

from .wire import iso, list_link


def tiles(counts: Mapping[str, int], *, letters: OpenLetters, oldest: datetime | None) -> list[dict[str, Any]]:
    """
    Return the tiles in the order they are shown.

    Each has `id`, `label`, `value` (null: unknown or none), `unit` and `href`; some have `since` instead of a value,
    a moment that the screen counts from, `more` (there are more than `value`) and `tone`.
    """
    running = sum(counts[state] for state in RUNNING)
    return [
        _jobs("queued", "Queued", counts[JobState.QUEUED]),
        _jobs("running", "Running", running, state="in_progress"),
        _jobs("rate_limited", "Waiting for quota", counts[JobState.RATE_LIMITED]),
        _jobs("retried", "Retrying", counts[JobState.RETRIED]),
        {
            "id": "dead_letters",
            "label": "Dead letters",
            "value": letters.count,
            "more": letters.more,
            "unit": "open",
            "tone": "bad" if letters.count else "",
            "href": list_link("jobs_deadletter"),
        },
        {
            "id": "oldest_ready",
            "label": "Oldest ready job",
            "value": None,
            "since": iso(oldest),
            "unit": "",
            "href": list_link("jobs_job", state="queued"),
        },
    ]


def _jobs(tile: str, label: str, value: int, *, state: str = "") -> dict[str, Any]:
    return {
        "id": tile,
        "label": label,
        "value": value,
        "unit": "job" if value == 1 else "jobs",
        "href": list_link("jobs_job", state=state or tile),
    }
