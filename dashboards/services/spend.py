"""Today's spending, for tiles and metrics."""

from __future__ import annotations

from typing import Any

from django.conf import settings

from dashboards.services.shared.cache import CachedRead
from dashboards.services.shared.wire import list_link
from queueops.core.values.numbers import numbered
from ratelimits.money.amounts import MICRO
from ratelimits.money.reports import spent_today_by_project

SPEND_KEPT_SECONDS = 30.0

kept_spend = CachedRead(spent_today_by_project, seconds=SPEND_KEPT_SECONDS)


def spend_tiles() -> list[dict[str, Any]]:
    """Return the tile of today's spend; empty: nothing was spent today."""
    found = [spent for _, _, spent in kept_spend.get()]
    if not found:
        return []
    unpriced = sum(spent.unpriced for spent in found)
    more = f"; {numbered(unpriced, 'call has no price', 'calls have no price')}" if unpriced else ""
    return [
        {
            "id": "spend",
            "label": "Spent today",
            "value": round(sum(spent.money for spent in found) / MICRO, 2),
            "unit": settings.QUEUEOPS.currency,
            "hint": f"since midnight in UTC{more}",
            "tone": "warn" if unpriced else "",
            "href": list_link("ratelimits_spend"),
        }
    ]
