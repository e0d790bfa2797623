"""
The demo's work: every time zone of Python's database, written row by row to the sandbox's sheet.

The data is on every machine, and the jobs are submitted like any producer's batch.
"""

from __future__ import annotations

import asyncio
import json
import time
import zoneinfo
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from http import HTTPStatus
from typing import Any
from urllib.parse import quote
from zoneinfo import ZoneInfo

from queueops.core.errors import QueueOpsError
from queueops.core.outbound.client import OutboundClient, OutboundFailed
from queueops.core.outbound.policy import OutboundPolicy

PROJECT = "demo"
BATCH_NAME = "Time zones of Python's database"
SHEET = "timezones"

# These are no zones of places: links to the machine's own zone, and a stand-in for a machine without one.
NOT_ZONES = frozenset({"Factory", "localtime", "posixrules"})

START_INTERVAL_SECONDS = 0.065  # spreads about 600 jobs over 40 s, so that a person can watch them
KNOBS: dict[str, Any] = {
    "seed": 1,
    "latency": {"mode": "lognormal", "median_milliseconds": 400, "sigma": 0.7},
    "error_rates": {"429": 0.06, "503": 0.03},
    "retry_after": "seconds",
    "retry_after_seconds": 2,
    "row_errors": [
        {"pattern": "Antarctica/*", "status": 403},
        {"pattern": "Etc/GMT*", "status": 400},
    ],
    "faulty_providers": ["plain"],  # otherwise appends to spreadsheets could end with an unknown outcome
}

LOOK_AHEAD = timedelta(days=400)
SANDBOX_START_SECONDS = 30.0


class SandboxSilent(QueueOpsError):
    """The sandbox provider does not answer."""

    code = "sandbox_silent"
    status = 503


class NoTimeZones(QueueOpsError):
    """Python finds no time zones on this machine: install the system's tzdata, or the package tzdata."""

    code = "no_time_zones"
    status = 500


@dataclass(frozen=True, slots=True)
class ZoneFacts:
    """A zone at one moment. `offset` as in `+05:45`; `next_change` is None without a change within LOOK_AHEAD."""

    name: str
    abbreviation: str
    offset: str
    next_change: datetime | None
    offset_then: str | None

    def row(self) -> dict[str, str | None]:
        return {
            "zone": self.name,
            "abbreviation": self.abbreviation,
            "utc_offset": self.offset,
            "next_transition": self.next_change.isoformat() if self.next_change else None,
            "utc_offset_then": self.offset_then,
        }


def zone_names() -> list[str]:
    """
    Return the names of all time zones that Python finds on this machine, sorted; about 600.

    Raises:
        NoTimeZones: Python finds no time zones.
    """
    names = sorted(zoneinfo.available_timezones() - NOT_ZONES)
    if not names:
        raise NoTimeZones
    return names


def facts_of(name: str, *, at: datetime) -> ZoneFacts:
    zone = ZoneInfo(name)
    local = at.astimezone(zone)
    change = next_transition(zone, after=at)
    return ZoneFacts(
        name=name,
        abbreviation=local.tzname() or "",
        offset=offset_text(_offset(zone, at)),
        next_change=change,
        offset_then=offset_text(_offset(zone, change)) if change else None,
    )


def next_transition(zone: ZoneInfo, *, after: datetime) -> datetime | None:
    """
    Return the first second, in UTC, at which the zone's offset differs from before, within LOOK_AHEAD.

    The standard library has no function for it: this looks day by day, then searches the day of the change by halving.
    """
    low = after.astimezone(UTC).replace(microsecond=0)
    offset, end = _offset(zone, low), low + LOOK_AHEAD
    high = low
    while _offset(zone, high) == offset:
        low, high = high, high + timedelta(days=1)
        if low >= end:
            return None
    while high - low > timedelta(seconds=1):
        middle = low + timedelta(seconds=(high - low) // timedelta(seconds=2))
        low, high = (middle, high) if _offset(zone, middle) == offset else (low, middle)
    return high


def offset_text(offset: timedelta) -> str:
    """Write an offset as `+05:45`; seconds, which historical offsets have, are dropped."""
    sign = "-" if offset < timedelta(0) else "+"
    minutes = abs(offset) // timedelta(minutes=1)
    return f"{sign}{minutes // 60:02}:{minutes % 60:02}"


def row_url(base: str, row: str) -> str:
    """
    Return the address of a row.

    All characters but letters, digits and `_.-~` are encoded: `America/New_York` has a slash, and names in other data
    may have any character.
    """
    return f"{base}/plain/sheets/{SHEET}/rows/{quote(row, safe='')}"


def job_lines(base: str, names: Iterable[str], *, at: datetime) -> Iterator[dict[str, Any]]:
    """Yield one job for each zone: a PUT of its facts to its row."""
    for name in names:
        yield {
            "kind": "http.request",
            "payload": {
                "method": "PUT",
                "url": row_url(base, name),
                "json": facts_of(name, at=at).row(),
                "timeout_seconds": 20,
            },
        }


def prepare_sandbox(base: str, knobs: Mapping[str, Any]) -> None:
    """
    Wait until the sandbox answers, and set its knobs.

    Raises:
        SandboxSilent: The sandbox does not answer, or something else answers there.
    """
    asyncio.run(_turn_knobs(base, knobs))


async def _turn_knobs(base: str, knobs: Mapping[str, Any]) -> None:
    client = OutboundClient()
    deadline = time.monotonic() + SANDBOX_START_SECONDS
    try:
        while True:
            try:
                answer = await client.send(
                    "PATCH",
                    f"{base}/_sandbox/knobs",
                    policy=OutboundPolicy.of(allow_loopback=True),
                    body=json.dumps(knobs).encode(),
                    timeout_seconds=5,
                    max_response_bytes=10_000,
                )
                break
            except OutboundFailed as error:
                if time.monotonic() > deadline:
                    raise SandboxSilent(
                        f"The sandbox does not answer at {base}. Start it: "
                        f"python -m sandbox --port {base.rpartition(':')[2]}"
                    ) from error
            await asyncio.sleep(0.2)
    finally:
        await client.close()
    if answer.status != HTTPStatus.OK:
        raise SandboxSilent(f"What answers at {base} is not the sandbox: it refused the knobs.")


def _offset(zone: ZoneInfo, at: datetime) -> timedelta:
    return at.astimezone(zone).utcoffset() or timedelta(0)
