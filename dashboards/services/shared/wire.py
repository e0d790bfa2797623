"""The form of moments and addresses in the data of screens."""

from __future__ import annotations

from datetime import datetime
from typing import Any
from urllib.parse import urlencode

from django.contrib.admin.utils import quote
from django.urls import reverse

from jobs.states import RUNNING, SHOWN, TERMINAL, WAITING


def iso(moment: datetime | None) -> str | None:
    return None if moment is None else moment.isoformat(timespec="milliseconds")


def link(screen: str, identifier: object) -> str:
    """Return the address of one row's page in the admin: `link("jobs_batch", id)`."""
    return reverse(f"admin:{screen}_change", args=[quote(str(identifier))])


def list_link(screen: str, **chosen: str) -> str:
    """Return the address of an admin list, with these filters set."""
    address = reverse(f"admin:{screen}_changelist")
    return f"{address}?{urlencode(chosen)}" if chosen else address


def shown_states() -> list[dict[str, Any]]:
    """Return for blocks.js how pages draw each state, in the order of jobs/states.py."""
    groups = {"waiting": WAITING, "running": RUNNING, "ended": TERMINAL}
    return [
        {
            "state": str(state),
            "group": next((name for name, states in groups.items() if state in states), "apart"),
            "words": one.words,
            "tone": one.tone,
            "sign": one.sign,
            "colour": one.colour,
        }
        for state, one in SHOWN.items()
    ]
