"""Words for the cost of a job or a batch."""

from __future__ import annotations

from django.conf import settings

from jobs.features.forecast.delivery import WayPrices
from queueops.core.values.numbers import numbered
from ratelimits.money.amounts import shown
from ratelimits.money.reports import SpendSum


def prices_shown(prices: WayPrices | None) -> str | None:
    """`0.0125 USD live, 0.00625 USD by batch`, and whose usage the prices are for; None: there is only one way."""
    if prices is None:
        return None
    if prices.live is None and prices.batch is None:
        return "no price"
    live, batch = (shown(money, settings.QUEUEOPS.currency) for money in prices[:2])
    by = "by what its last call used" if prices.is_used else "by what calls like it have used"
    return f"{live} live, {batch} by batch, {by}"


def money_shown(spent: SpendSum | None, saved: int = 0) -> str | None:
    """
    `0.0125 USD for 3 calls`, and the part that is unknown; None: nothing was paid for.

    Args:
        saved: How much more the same calls would have cost live, in micro-units.
    """
    if spent is None:
        return None
    found = f"{shown(spent.money, settings.QUEUEOPS.currency)} for {numbered(spent.calls, 'call')}"
    if spent.unpriced:
        found += f", {spent.unpriced:,} of them without a price"
    if spent.unknown:
        most = shown(spent.unknown_money, settings.QUEUEOPS.currency)
        found += f", {spent.unknown:,} of them ({most}) at most: what they cost is not known"
    if saved:
        found += f"; {shown(saved, settings.QUEUEOPS.currency)} less than live"
    return found
