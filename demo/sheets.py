"""
The demo's limited work: the same time zones, written into a spreadsheet of the sandbox within Google's quotas.

Rows are sent together in few calls. Each append writes to a spreadsheet of its own, and needs a call of its own: there
are more appends than a user may send in a minute.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime
from http import HTTPStatus
from typing import Any

from queueops.core.outbound.client import OutboundClient, OutboundFailed
from queueops.core.outbound.policy import OutboundPolicy
from queueops.tenancy.models import Credential, Project

from .credentials import point_at
from .zones import ZoneFacts, facts_of

BATCH_NAME = "Time zones into a spreadsheet"
SERVICE = "google-sheets"
CREDENTIAL = "demo-sheets"
QUOTA_PROJECT, QUOTA_USER = "demo", "robot"
SPREADSHEET = "demo-time-zones"
APPENDED = 90  # calls, which take a minute and a half at a user's default of 60 a minute
USER_QUOTA = "WriteRequestsPerMinutePerUser"
MAX_USAGE_BYTES = 2_000_000


@dataclass(frozen=True, slots=True)
class CallCount:
    """Write calls of the demo's credential that the provider has counted since it started."""

    accepted: int
    refused: int


def ensure_credential(project: Project, base: str) -> Credential:
    """Give the project a credential for the sandbox's Google Sheets; see `point_at`."""
    secret = {"access_token": f"project:{QUOTA_PROJECT}/user:{QUOTA_USER}"}
    whose = {"service": SERVICE, "quota_project": QUOTA_PROJECT, "quota_user": QUOTA_USER}
    return point_at(base, project, name=CREDENTIAL, secret=secret, **whose)


def job_lines(names: Iterable[str], *, at: datetime) -> Iterator[dict[str, Any]]:
    """
    Yield one job for each zone's row, and one append for each of the APPENDED zones that change their clocks next.
    """
    facts = [facts_of(name, at=at) for name in names]
    for number, zone in enumerate(facts, start=1):
        yield _job("values_update", f"Sheet1!A{number}:E{number}", list(zone.row().values()))
    for zone in _changing_next(facts):
        own = f"{SPREADSHEET}-{zone.name.replace('/', '-').replace('+', '-')}"
        yield _job(
            "values_append", "Sheet1!A1", [zone.name, zone.row()["next_transition"], zone.offset_then], spreadsheet=own
        )


def count_calls(base: str) -> CallCount | None:
    """Ask the sandbox how many write calls of the credential it has counted; None: it does not answer."""
    return asyncio.run(_count_calls(base))


def _changing_next(facts: Iterable[ZoneFacts]) -> list[ZoneFacts]:
    changing = [(zone.next_change, zone.name, zone) for zone in facts if zone.next_change is not None]
    return [zone for _, _, zone in sorted(changing, key=lambda found: found[:2])[:APPENDED]]


def _job(kind: str, range_: str, cells: list[str | None], *, spreadsheet: str = SPREADSHEET) -> dict[str, Any]:
    return {
        "kind": f"google_sheets.{kind}",
        "payload": {
            "credential": CREDENTIAL,
            "spreadsheet_id": spreadsheet,
            "range": range_,
            "values": [cells],
        },
    }


async def _count_calls(base: str) -> CallCount | None:
    client = OutboundClient()
    try:
        answer = await client.send(
            "GET",
            f"{base}/_sandbox/usage?service=google_sheets",
            policy=OutboundPolicy.of(allow_loopback=True),
            timeout_seconds=5,
            max_response_bytes=MAX_USAGE_BYTES,
        )
    except OutboundFailed:
        return None
    finally:
        await client.close()
    if answer.status != HTTPStatus.OK:
        return None
    key = {"project": QUOTA_PROJECT, "user": QUOTA_USER}
    for row in json.loads(answer.body)["quotas"]:
        if row["quota"] == USER_QUOTA and row["key"] == key:
            return CallCount(row["accepted_calls"], row["rejected_calls"])
    return CallCount(0, 0)
