"""Example bodies and answers of the OpenAPI document. A test validates each against its schema."""

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
