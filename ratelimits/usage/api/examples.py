"""Examples of allowances and of usage in the OpenAPI document. A test validates each against its schema."""

from ratelimits.api.examples import AT, LATER

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
