"""Example bodies and answers of the OpenAPI document. A test validates each against its schema."""

from typing import Any

JOB_ID = "01938a3c-7d2e-7b1a-9c55-0a4a1f0d2e11"
NEW_JOB_ID = "01938a41-02aa-7c3e-8a10-4b7d6cb0f932"
BATCH_ID = "01938a3c-7cf0-7d44-b7c1-6a0f3d0c9a77"
DEAD_LETTER_ID = "01938a3e-11b4-7a90-8e2b-5f0c2c6f7d05"
OPERATION_ID = "01938a42-9f10-72c8-a4de-91e20cc41b60"
EPOCH = "8c1f0e5b7a924d36"
AT = "2026-03-02T09:15:04.120394Z"
LATER = "2026-03-02T09:15:09.120394Z"
MUCH_LATER = "2026-03-02T09:15:41.000000Z"

SPEC = {
    "kind": "http.request",
    "payload": {"method": "POST", "url": "https://api.example.org/rows", "json": {"row": 7}},
    "priority": "normal",
    "idempotency_key": "import-2026-03-02-row-7",
}
SUBMITTED = {"id": JOB_ID, "created": True, "outcome": "created", "url": f"/api/v1/jobs/{JOB_ID}/"}
ON_FINISH = {"kind": "http.request", "payload": {"method": "POST", "url": "https://api.example.org/imported"}}
BATCH = {"name": "import 2026-03-02", "partial": False, "on_finish": ON_FINISH, "jobs": [SPEC]}
LINES = '{"kind":"http.request","payload":{"url":"https://api.example.org/rows/7"}}\n'
SUBMITTED_BATCH = {
    "id": BATCH_ID,
    "accepted": 1,
    "duplicates": 0,
    "pending": 0,
    "replaced": 0,
    "error_count": 0,
    "errors": [],
    "known": [],
    "known_batches": [],
    "url": f"/api/v1/batches/{BATCH_ID}/",
}
FORECAST: dict[str, Any] = {
    "accepted": True,
    "jobs": {
        "count": 500,
        "duplicates": 0,
        "by_batch": 0,
        "by_model": [{"kind": "llm.generate", "service": "openai", "model": "gpt-5-mini", "jobs": 500}],
    },
    "tokens": {
        "input_tokens": {"known": 200_000, "expected": 204_000, "reserved": 200_000},
        "output_tokens": {"known": 0, "expected": 60_000, "reserved": 110_000},
        "tokens": {"known": 200_000, "expected": 264_000, "reserved": 310_000},
    },
    "learned": True,
    "currency": "USD",
    "live": {"price": 171_000, "price_range": None, "finish_at": "2026-03-02T10:21:40Z", "seconds": 1300.0, "why": ""},
    "batch": {
        "price": 85_500,
        "price_range": None,
        "finish_at": "2026-03-03T10:00:00Z",
        "seconds": 86_400.0,
        "why": "",
    },
    "missing_prices": [],
    "budgets": [{"budget": "march", "user_id": None, "policy": "wait", "needed": 171_000, "left": 150_000}],
    "binding": [
        {
            "limit": "openai-tokens",
            "key": "project=acme",
            "unit": "tokens",
            "needed": 264_000.0,
            "ahead": 40_000.0,
            "seconds": 1295.0,
            "share": 0.996,
        }
    ],
    "rejected": {"count": 0, "jobs": []},
}
JOB = {
    "id": JOB_ID,
    "batch": BATCH_ID,
    "user_id": None,
    "kind": "http.request",
    "service": "http:api.example.org",
    "model": None,
    "call_type": "write",
    "cost": 1,
    "costs": None,
    "priority": "normal",
    "state": "retried",
    "held": False,
    "progress": 0,
    "progress_message": "",
    "idempotency_key": "import-2026-03-02-row-7",
    "unique_key": None,
    "tags": ["import", "region:eu"],
    "retry_policy": None,
    "retry_count": 1,
    "crash_count": 0,
    "deferral_count": 0,
    "last_error_code": "http_429",
    "last_error_message": "The provider answered 429.",
    "scheduled_at": LATER,
    "expires_at": None,
    "complete_by": None,
    "via": None,
    "origin": None,
    "created_at": AT,
    "updated_at": AT,
    "started_at": AT,
    "finished_at": None,
}
PROVIDER_BATCH = {
    "id": "01938a44-1f2e-7d10-9a3b-7c5d20e1f604",
    "kind": "llm.generate",
    "service": "openai",
    "model": "small-1",
    "state": "open",
    "provider_id": "batch_67c41fa5a8a48190b3b6c8d8f5a0f3c1",
    "provider_state": "in_progress",
    "lines": 5000,
    "done": 1200,
    "succeeded": 0,
    "failed": 0,
    "handed_back": 0,
    "unanswered": 0,
    "dropped": 0,
    "enqueued_tokens": 2_400_000,
    "complete_by": "2026-03-03T09:15:04.120394Z",
    "live_at": "2026-03-03T08:45:04.120394Z",
    "cancel_requested_at": None,
    "cancel_reason": "",
    "error": "",
    "created_at": AT,
    "submitted_at": LATER,
    "ended_at": None,
    "closed_at": None,
}
RESULT = {
    **{name: JOB[name] for name in ("id", "kind", "user_id", "idempotency_key", "origin")},
    "state": "completed",
    "result": {"status": 200},
    "stored_result": None,
    "last_error_code": "",
    "last_error_message": "",
    "finished_at": LATER,
}
EVENT = {
    "id": 184467,
    "job_id": JOB_ID,
    "batch_id": BATCH_ID,
    "user_id": None,
    "event_type": "state_change",
    "from_status": "in_progress",
    "to_status": "retried",
    "message": "The provider answered 429.",
    "progress_percent": None,
    "data": {"delay_seconds": 5.0},
    "created_at": AT,
}
AUDIT_ENTRY = {
    "id": 4711,
    "created_at": AT,
    "project_id": "acme",
    "actor": "key:qo_4f9Xk2ab",
    "action": "cancel_jobs",
    "target": "3 jobs",
    "moved": 3,
    "reason": "wrong sheet",
    "address": "10.0.0.7",
    "before": None,
    "after": None,
}
LIMIT_REASON = {
    "code": "limit",
    "text": "api-writes-project has no room: 0 of 300 requests are free",
    "free_at": MUCH_LATER,
    "limit": "api-writes-project",
    "key": "project:acme",
    "unit": "requests",
    "needed": 1.0,
    "available": 0.0,
    "capacity": 300.0,
    "by": None,
}
HELD_LANE = {"user": "", "jobs": 500, "more": False, "reasons": [LIMIT_REASON], "last_starts_at": MUCH_LATER}
JOB_DETAIL = {
    **JOB,
    "payload": SPEC["payload"],
    "result": None,
    "stored_result": None,
    "attempts": 1,
    "eta": None,
    "effective_priority": 10,
    "waiting_for": "it is tried again after: The provider answered 429.",
    "waiting": {
        "reasons": [
            {
                "code": "retry_backoff",
                "text": "it is tried again after: The provider answered 429.",
                "free_at": LATER,
                "limit": None,
                "key": None,
                "unit": None,
                "needed": None,
                "available": None,
                "capacity": None,
                "by": None,
            },
            LIMIT_REASON,
        ],
        "position": None,
        "position_is_exact": None,
        "ahead": None,
        "predicted_start_at": MUCH_LATER,
        "forecast": "the time it waits for",
    },
    "recheck_after_seconds": 5.0,
    "ended_batch": None,
    "takes": [],
    "last_event": EVENT,
    "cost_money": None,
    "currency": "USD",
    "prices": None,
    "provider_batch": None,
    "cursor": 1_048_213,
    "epoch": EPOCH,
}
BATCH_ROW = {
    "id": BATCH_ID,
    "name": "import 2026-03-02",
    "tags": ["import"],
    "total": 1000,
    "paused": False,
    "submitted_by": "key:qo_k3Jx81Qz",
    "after": [JOB_ID],
    "on_failure": "hold",
    "on_finish_job": NEW_JOB_ID,
    "known_batches": [],
    "created_at": AT,
    "finished_at": None,
    "verdict": "running",
    "held_by": None,
    "guard": {"state": "passed", "percent": 20, "first": 50, "ended": None, "failed": None, "code": None},
    "counts": {
        "queued": 400,
        "rate_limited": 100,
        "dispatched": 0,
        "in_progress": 20,
        "retried": 5,
        "completed": 470,
        "failed": 5,
        "cancelled": 0,
    },
    "held_by_outage": 0,
    "scheduled": 0,
    "scheduled_until": None,
    "finished": 475,
    "progress": 47.5,
    "rate_per_second": 5.0,
    "eta": LATER,
    "eta_earliest": None,
    "recheck_after_seconds": 105.0,
}
BATCH_DETAIL = {**BATCH_ROW, "cost_money": 1_918_250, "currency": "USD", "cursor": 1_048_213, "epoch": EPOCH}
DEAD_LETTER = {
    "id": DEAD_LETTER_ID,
    "job": JOB_ID,
    "batch_id": BATCH_ID,
    "kind": "http.request",
    "service": "http:api.example.org",
    "payload": SPEC["payload"],
    "error_code": "http_404",
    "error_class": "HandlerError",
    "error_message": "The provider answered 404.",
    "http_status": 404,
    "remediation": "Check the identifiers.",
    "attempts": [{"attempt": 1, "at": AT, "error": "The provider answered 404."}],
    "retry_count": 0,
    "crash_count": 0,
    "fingerprint": "9f2c1be04d7a5c11",
    "created_at": AT,
    "resolution": None,
    "resolved_by": "",
    "resolved_at": None,
    "requeued_as": None,
    "note": "",
}
OPERATION = {
    "id": OPERATION_ID,
    "action": "requeue_dead_letters",
    "status": "running",
    "total": 50000,
    "done": 12000,
    "skipped": 3,
    "reason": "",
    "error": "",
    "canary": {"state": "passed", "rows": 20, "percent": 20, "jobs": 20, "ended": 20, "failed": 1, "code": "http_404"},
    "created_at": AT,
    "updated_at": AT,
    "finished_at": None,
}
STARTED = {
    "id": OPERATION_ID,
    "status": "running",
    "total": 50000,
    "url": f"/api/v1/operations/{OPERATION_ID}/",
}
MOVED = {"moved": [JOB_ID], "unmoved": [NEW_JOB_ID]}
REQUEUED = {"moved": {DEAD_LETTER_ID: NEW_JOB_ID}, "unmoved": []}
REQUEUED_ONE = {"id": NEW_JOB_ID, "origin": JOB_ID, "url": f"/api/v1/jobs/{NEW_JOB_ID}/"}
HANDLERS = {
    "results": [
        {
            "kind": "http.request",
            "service": None,
            "call_type": "write",
            "timeout_seconds": 60.0,
            "retry_policy": "moderate",
            "idempotent": None,
            "sends_effect_key": False,
            "description": "Send one HTTP request.",
            "payload_schema": {"type": "object"},
        }
    ]
}
OBJECTIVES = {
    "objectives": [
        {
            "id": 4,
            "name": "imports start soon",
            "aim": "start",
            "percent": 95.0,
            "within_seconds": 300,
            "kind": "google_sheets.batch_update",
            "service": "",
            "window_days": 28,
            "note": "",
            "words": "95 % start within 5 min: jobs of kind google_sheets.batch_update of demo",
            "jobs": 12_480,
            "missed": 312,
            "attained_percent": 97.5,
            "budget_left_percent": 50.0,
            "burn": [{"window": "1 h", "jobs": 40, "missed": 1, "rate": 0.5}],
        }
    ]
}
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
}
MADE_WEBHOOK = {**WEBHOOK, "secret": "whsec_…"}
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
PROJECT = {
    "id": "demo",
    "name": "Demo",
    "paused": False,
    "counts": BATCH_ROW["counts"],
    "scheduled": 0,
    "scheduled_until": None,
    "unfinished": 525,
    "max_waiting_jobs": 5_000_000,
    "encrypted": False,
}
AT_ONCE = {
    "id": 7,
    "name": "demo-http-request-at-once",
    "kind": "http.request",
    "service": "",
    "each_user": False,
    "at_most": 10,
    "used": 4,
    "enforced": True,
}
