"""Examples of budgets and of spend in the OpenAPI document. A test validates each against its schema."""

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
