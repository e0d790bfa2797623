"""
The demo's allowance: tokens for each user of an app, and how many a few users have used this month.

The app is clients/python/examples/assistant.py, which reports its calls of the sandbox's language model as usage.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from uuid import UUID, uuid5

from ratelimits.models import Allowance
from ratelimits.usage.allowances import set_allowance
from ratelimits.usage.ingest import Reported, ingest

TOKENS_EACH = 5_000  # about sixty calls of the app
SHARES = {"ada": 0.85, "ben": 0.62, "cleo": 0.31, "dan": 0.06}  # used of TOKENS_EACH; ada and ben raise alerts
CALL_TOKENS = 80
SERVICE = "gemini"
NAMES = UUID("9c1e7a34-5d0e-4f6b-8a53-0d1f2b6f0c11")


def ensure_usage(project_id: str, *, actor: str, at: datetime) -> None:
    """
    Give the project its allowance, unless it has one, and report the users' usage up to now.

    Within a month each run reports the same calls, which are counted once.
    """
    if not Allowance.objects.filter(pk=project_id).exists():
        set_allowance(
            project_id,
            unit=Allowance.Unit.TOKENS,
            quota=TOKENS_EACH,
            policy=Allowance.Policy.STRICT,
            time_zone="UTC",
            reservation_seconds=300,
            actor=actor,
            reason="the demo",
        )
    ingest(list(_calls(at)), project_id=project_id)


def _calls(at: datetime) -> Iterator[Reported]:
    """Yield the users' calls of this month up to now, evenly spread."""
    begun = at.replace(day=1, hour=0, minute=0, second=0, microsecond=0)
    for name, share in SHARES.items():
        count = round(TOKENS_EACH * share / CALL_TOKENS)
        for number in range(count):
            yield Reported(
                event_id=uuid5(NAMES, f"{name} {begun:%Y-%m} {number}"),
                user_id=uuid5(NAMES, name),
                tokens=CALL_TOKENS,
                occurred_at=begun + (at - begun) * ((number + 1) / count),
                service=SERVICE,
            )
