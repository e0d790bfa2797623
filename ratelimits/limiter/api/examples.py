"""Examples of decisions in the OpenAPI document. A test validates each against its schema."""

from typing import Any

from ratelimits.api.examples import LATER

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
