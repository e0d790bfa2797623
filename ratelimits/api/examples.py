"""Example bodies and answers of the OpenAPI document. A test validates each against its schema."""

from typing import Any

AT = "2026-03-02T09:15:04.120394Z"
LATER = "2026-03-02T09:15:09.120394Z"
HOLDER = "api:demo:9f2c1be04d7a5c11.0"

DECIDE = {
    "calls": [{"service": "google-sheets", "call_type": "write", "user": "reports@demo.example"}],
    "hold_seconds": 600,
}
DECISIONS: dict[str, Any] = {
    "decisions": [
        {
            "kind": "defer",
            "retry_at": LATER,
            "retry_after_seconds": 5.0,
            "reason": "sheets-write-user has no room",
            "binding": {
                "limit": "sheets-write-user",
                "key": "user:reports@demo.example",
                "unit": "requests",
                "needed": 1,
                "available": 0,
                "capacity": 60,
                "hard_reset": False,
                "cooling": False,
            },
            "holder": None,
        }
    ],
    "degraded": False,
}
SETTLE = {"holder": HOLDER, "actual": 812}
SETTLED = {"holder": HOLDER, "settled": True}

GAUGE = {
    "counter_id": "00000001:project:demo",
    "key": "project:demo",
    "unit": "requests",
    "used": 210,
    "available": 90,
    "capacity": 300,
    "percent": 70,
    "level": 60,
    "pressure": 1,
    "share": 1,
    "blocked_until": None,
    "blocked_reason": "",
    "next_free_at": None,
    "per_second": 4.9,
    "shadow_denials": 0,
    "updated_at": AT,
    "proposed_capacity": None,
    "proposed_at": None,
    "override_ends_at": None,
}
FIGURES = {
    "name": "sheets-write-project",
    "service": "google-sheets",
    "call_type": "write",
    "scope": "project",
    "unit": "requests",
    "algorithm": "sliding_window",
    "capacity": 300,
    "window_seconds": 60,
}
OVERRIDE = {"key": "project:demo", "capacity": 600, "note": "raised by the provider"}
LIMIT = {
    "id": 1,
    **FIGURES,
    "model": "",
    "project": "",
    "kind": "",
    "per_model": False,
    "counts_cached": True,
    "reserves": "used",
    "refill_per_second": None,
    "provider_quota": 300,
    "slack_seconds": None,
    "reset_zone": "",
    "guard_seconds": 0.5,
    "lease_seconds": 600,
    "headroom_percent": 0,
    "notice_percent": 60,
    "warning_percent": 80,
    "clears_late_seconds": 3600,
    "fail_open": False,
    "shadow": False,
    "enabled": True,
    "learns_caps": False,
    "proposed_at": None,
    "proposed_reserves": "",
    "note": "",
    "updated_at": AT,
    "overrides": [
        {
            "key": "project:demo",
            "capacity": 600,
            "refill_per_second": None,
            "note": "raised by the provider",
            "ends_at": None,
        }
    ],
    "counters": [GAUGE],
}
SAVED = {"id": 1, "changed": ["capacity"], "warnings": [], "url": "/api/v1/limits/1/"}
OUTCOME = {
    "delayed": 120,
    "total_wait_seconds": 940,
    "p95_wait_seconds": 12,
    "longest_wait_seconds": 31,
    "rejected": 0,
    "utilisation_percent": 71.5,
    "busiest_key": "project:demo",
    "unfinished": 0,
}
SIMULATED = {
    "hours": 1,
    "calls": 9000,
    "keys": 1,
    "waited_seconds": 1200.5,
    "today": OUTCOME,
    "proposed": {**OUTCOME, "delayed": 0, "total_wait_seconds": 0, "p95_wait_seconds": 0, "longest_wait_seconds": 0},
    "played_in_groups_of": 1,
    "cut": False,
    "warnings": [],
}

USER_ID = "018f6a52-0000-7000-8000-000000000001"
EVENT_ID = "5f0c2c6f-7d05-4a90-8e2b-11b401938a3e"
RESERVATION_ID = "01938a41-02aa-7c3e-8a10-4b7d6cb0f932"
RESETS_AT = "2026-04-01T00:00:00Z"
RESERVE = {"amount": 800, "idempotency_key": "chat-41-message-7", "user_id": USER_ID}
RESERVED = {
    "reservation_id": RESERVATION_ID,
    "user_id": USER_ID,
    "month": "2026-03",
    "amount": 800,
    "expires_at": LATER,
    "remaining": 61_200,
    "resets_at": RESETS_AT,
    "over_limit": False,
}
EVENT = {
    "event_id": EVENT_ID,
    "user_id": USER_ID,
    "tokens": 612,
    "ts": AT,
    "reservation_id": RESERVATION_ID,
    "service": "gemini",
}
STANDING = {
    "user_id": USER_ID,
    "unit": "tokens",
    "policy": "strict",
    "month": "2026-03",
    "quota": 100_000,
    "used": 38_612,
    "reserved": 0,
    "overage": 0,
    "remaining": 61_388,
    "resets_at": RESETS_AT,
}
INGESTED = {
    "results": [
        {"event_id": EVENT_ID, "status": "accepted"},
        {"event_id": "7", "status": "rejected", "reason": "malformed", "message": "event_id must be a UUID"},
    ],
    "usage": [STANDING],
}
CANCELLED = {
    "reservation_id": RESERVATION_ID,
    "status": "cancelled",
    "released": True,
    "remaining": 62_000,
    "resets_at": RESETS_AT,
}
USER_MONTH = {
    "id": 7,
    "user_id": USER_ID,
    "month": "2026-03",
    "quota": 100_000,
    "used": 38_612,
    "reserved": 0,
    "overage": 0,
}
USAGE_EVENT = {
    "id": 184_467,
    "event_id": EVENT_ID,
    "user_id": USER_ID,
    "month": "2026-03",
    "service": "gemini",
    "tokens": 612,
    "amount": 612,
    "occurred_at": AT,
    "created_at": LATER,
    "reservation_id": RESERVATION_ID,
    "over_limit": False,
    "correction": False,
}
SPEND_SUM = {
    "calls": 412,
    "money": 1_918_250,
    "unpriced": 0,
    "unknown": 0,
    "unknown_money": 0,
    "input_tokens": 310_400,
    "cached_tokens": 88_000,
    "output_tokens": 98_715,
}
SPEND = {
    "currency": "USD",
    "from": "2026-03-02",
    "to": "2026-03-02",
    "total": SPEND_SUM,
    "groups": [{"key": "2026-03-02", **SPEND_SUM}],
}
ALLOWANCE_FIGURES = {"unit": "tokens", "quota": 500_000, "time_zone": "Europe/Vienna", "reason": "the new plan"}
ALLOWANCE = {
    "project": "acme",
    "unit": "tokens",
    "quota": 500_000,
    "policy": "strict",
    "time_zone": "Europe/Vienna",
    "reservation_seconds": 300,
    "set_by_operator": True,
    "updated_at": "2026-03-02T08:00:00Z",
}
SAVED_ALLOWANCE = {**ALLOWANCE, "months": 0, "warnings": []}
BUDGET_FIGURES = {
    "name": "pilot",
    "amount": 100_000_000,
    "period": "month",
    "policy": "wait",
    "reason": "for the pilot",
}
BUDGET = {
    "id": 3,
    "name": "pilot",
    "scope": "project",
    "user_id": None,
    "batch_id": None,
    "period": "month",
    "time_zone": "UTC",
    "policy": "wait",
    "note": "",
    "set_by_operator": True,
    "currency": "USD",
    "amount": 100_000_000,
    "key": "",
    "spent": 1_918_250,
    "unknown": 0,
    "held": 24_000,
    "left": 98_057_750,
    "ends_at": "2026-04-01T00:00:00Z",
}
