"""Examples of limits in the OpenAPI document. A test validates each against its schema."""

from ratelimits.api.examples import AT

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
