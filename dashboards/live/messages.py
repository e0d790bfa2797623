"""The messages of the websocket protocol, version 1, as text. docs/reference/live-protocol.md describes them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from enum import IntEnum, StrEnum
from typing import Any

from django.utils import timezone
from rest_framework.utils.encoders import JSONEncoder

from jobs.services.explain.event_log import Cursor

SUBPROTOCOL = "queueops.v1"
MAX_CLIENT_BYTES = 4_096
MAX_SIGN_IN_BYTES = 9_000  # the longest token, with the JSON around it
MAX_TEXT = 1_000  # characters of an event's message
MAX_DATA_BYTES = 8_000  # of an event's data; beyond it the data is left out and `cut` says so


class Kind(StrEnum):
    SNAPSHOT = "snapshot"  # the whole state
    STATS = "stats"  # the whole state, sent while it changes, at most once a second
    STATE = "state"  # the whole state, in place of events that a slow socket missed


class CloseCode(IntEnum):
    """Close codes; the `error` message before the close says the same in words."""

    BAD_MESSAGE = 4400
    NOT_SIGNED_IN = 4401
    FORBIDDEN = 4403
    NOT_FOUND = 4404
    SILENT = 4408
    TOO_SLOW = 4409
    TOO_MANY = 4429
    UNAVAILABLE = 4503

    @property
    def code(self) -> str:
        return self.name.lower()


PING = '{"type":"ping"}'


def dumped(data: Mapping[str, Any]) -> str:
    """Return the data as JSON text, as the API writes it."""
    return json.dumps(data, cls=JSONEncoder, separators=(",", ":"), ensure_ascii=False)


def whole(kind: Kind, cursor: Cursor, data: str) -> str:
    """
    Return a message whose data replaces all that was known of the subject.

    Args:
        data: The text that `dumped` returned.
    """
    at = timezone.now().isoformat().replace("+00:00", "Z")
    return f'{{"type":"{kind}",{_place(cursor)},"at":"{at}","data":{data}}}'


def error(refusal: CloseCode, detail: str) -> str:
    return json.dumps({"type": "error", "code": refusal.code, "detail": detail}, separators=(",", ":"))


def event(cursor: Cursor, body: str, *, skipped: int = 0) -> str:
    """
    Args:
        body: The text that `event_body` returned, the same for every socket.
        skipped: How many events that the socket's filter lets through were left out since the last one sent.
    """
    left_out = f'"skipped":{skipped},' if skipped else ""
    return f'{{"type":"event",{_place(cursor)},{left_out}"event":{body}}}'


def _place(cursor: Cursor) -> str:
    return f'"cursor":{cursor.id},"epoch":"{cursor.epoch}"'


def event_body(
    *,
    event_id: int,
    job: str,
    project: str,
    user: str | None,
    batch: str | None,
    event_type: str,
    from_status: str | None,
    to_status: str | None,
    message: str,
    percent: int | None,
    at: datetime,
    data: str | None,
) -> str:
    """
    Args:
        data: JSON as text, put in as it is.
    """
    fields: dict[str, Any] = {
        "id": event_id,
        "job": job,
        "project": project,
        "user": user,
        "batch": batch,
        "type": event_type,
        "from": from_status,
        "to": to_status,
        "message": message[:MAX_TEXT],
        "percent": percent,
        "at": at.astimezone(UTC).isoformat().replace("+00:00", "Z"),
    }
    is_cut = data is not None and len(data) > MAX_DATA_BYTES
    if is_cut:
        fields["cut"] = True
    text = json.dumps(fields, separators=(",", ":"), ensure_ascii=False)
    return f'{text[:-1]},"data":{"null" if data is None or is_cut else data}}}'
