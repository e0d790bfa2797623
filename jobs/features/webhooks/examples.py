"""Examples in the API's description."""

from __future__ import annotations

NEW_WEBHOOK = {
    "url": "https://app.example.org/hooks/queueops",
    "batches": False,
    "jobs": {"kinds": ["http.request"], "tags": ["nightly"], "outcomes": ["completed", "failed"]},
}
WEBHOOK = {
    "id": "01938a3c-7d2e-7b1a-9c55-0a4a1f0d2e15",
    "url": NEW_WEBHOOK["url"],
    "enabled": True,
    "batches": False,
    "jobs": {
        "kinds": ["http.request"],
        "tags": ["nightly"],
        "any_tag": [],
        "outcomes": ["completed", "failed"],
        "user_id": None,
        "batch_id": None,
    },
    "most_jobs": 100,
    "created_at": "2026-02-01T10:00:00Z",
    "failing_since": None,
    "paused_at": None,
    "paused_because": "",
    "two_signatures_until": None,
}
MADE_WEBHOOK = {**WEBHOOK, "secret": "whsec_…"}
CHANGED_SECRET = {**MADE_WEBHOOK, "two_signatures_until": "2026-02-02T10:00:00Z"}
WEBHOOK_DELIVERY = {
    "id": "01938a3c-7d2e-7b1a-9c55-0a4a1f0d2e16",
    "event": "jobs.ended",
    "batch_id": None,
    "jobs_told": 100,
    "job_id": "01938a3c-7d2e-7b1a-9c55-0a4a1f0d2e17",
    "state": "completed",
    "error_code": "",
    "created_at": "2026-02-01T10:00:00Z",
}
WEBHOOK_JOB = {
    "id": 8123,
    "job_id": "01938a3c-7d2e-7b1a-9c55-0a4a1f0d2e11",
    "delivery_id": WEBHOOK_DELIVERY["id"],
    "created_at": "2026-02-01T10:00:00Z",
}
