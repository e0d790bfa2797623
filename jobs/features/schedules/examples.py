"""Examples in the API's description."""

from __future__ import annotations

NEW_SCHEDULE = {
    "name": "nightly import",
    "cron": "30 2 * * MON-FRI",
    "time_zone": "Europe/Berlin",
    "jobs": [{"kind": "http.request", "payload": {"method": "GET", "url": "https://api.example.org/export"}}],
    "missed": "once",
}
FIRE = {
    "id": "01938a3c-7d2e-7b1a-9c55-0a4a1f0d2e14",
    "due_at": "2026-03-02T01:30:00Z",
    "outcome": "submitted",
    "job_id": "01938a3c-7d2e-7b1a-9c55-0a4a1f0d2e11",
    "batch_id": None,
    "error_code": "",
    "error_message": "",
    "left_out": 0,
    "asked_by": "",
    "created_at": "2026-03-02T01:30:00.412Z",
}
NEXT_DUE = [f"2026-03-0{day}T01:30:00Z" for day in (3, 4, 5, 6, 9)]
SCHEDULE = {
    "id": "01938a3c-7d2e-7b1a-9c55-0a4a1f0d2e13",
    **NEW_SCHEDULE,
    "most_missed": 10,
    "jitter_seconds": 0,
    "ends_at": None,
    "paused": False,
    "next_fire_at": NEXT_DUE[0],
    "next_due": NEXT_DUE,
    "refused_in_a_row": 0,
    "last_fire": FIRE,
    "created_at": "2026-02-01T10:00:00Z",
}
