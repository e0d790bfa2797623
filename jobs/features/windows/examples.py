"""Examples in the API's description."""

from __future__ import annotations

NEW_WINDOW = {
    "reason": "their weekly maintenance",
    "weekdays": [5],
    "since": "22:00:00",
    "until": "02:00:00",
    "time_zone": "Europe/Berlin",
}
WINDOW = {
    "id": "01938a3c-7d2e-7b1a-9c55-0a4a1f0d2e14",
    "scope": "project",
    "key": "demo",
    **NEW_WINDOW,
    "begins_at": None,
    "ends_at": None,
    "is_open": False,
    "next_times": [{"begins_at": "2026-03-07T21:00:00Z", "ends_at": "2026-03-08T01:00:00Z"}],
    "created_at": "2026-02-01T10:00:00Z",
}
