"""The rights of each role on limits, usage and alerts; see docs/reference/roles.md."""

from __future__ import annotations

SEEN = (
    "limit",
    "limitoverride",
    "counter",
    "quotaalert",
    "alertsilence",
    "resumeramp",
    "allowance",
    "allowanceoverride",
    "usagetracking",
    "usagereservation",
    "usageevent",
    "price",
    "budget",
    "spend",
)

VIEWER = frozenset(f"ratelimits.view_{model}" for model in SEEN)
OPERATOR = frozenset({"ratelimits.acknowledge_alert", "ratelimits.cancel_reservation"})
LIMITS_MANAGER = frozenset(
    {
        "ratelimits.acknowledge_alert",
        "ratelimits.steer_counter",
        "ratelimits.add_charge",  # asking the limiter spends quota
        *(f"ratelimits.{verb}_{model}" for verb in ("add", "change", "delete") for model in ("limit", "limitoverride")),
        "ratelimits.add_allowance",
        "ratelimits.change_allowance",
        "ratelimits.delete_allowance",
        *(f"ratelimits.{verb}_allowanceoverride" for verb in ("add", "change", "delete")),
        "ratelimits.cancel_reservation",
        "ratelimits.export_usage",
        "ratelimits.add_price",
        *(f"ratelimits.{verb}_budget" for verb in ("add", "change", "delete")),
        "ratelimits.price_spend",
        "ratelimits.export_spend",
    }
)
ADMINISTRATOR = frozenset(
    {
        "ratelimits.correct_usage",
        "ratelimits.add_usageevent",  # reporting over the API with a session
        "ratelimits.view_alertroute",
        "ratelimits.add_alertroute",
        "ratelimits.change_alertroute",
    }
)
