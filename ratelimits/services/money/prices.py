"""Prices of calls: looked up by the time of the call, and kept for some seconds."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime

from cachetools import TTLCache, cached

from queueops.core.clock import database_now
from queueops.core.postgres.replica import from_primary
from ratelimits.costs import Usage
from ratelimits.models import Price, QuotaAlert, Via
from ratelimits.money import cost_of

PRICES_KEPT_SECONDS = 5.0  # a price that another process stored is used this much later at most
MOST_MODELS_KEPT = 5_000


@dataclass(frozen=True, slots=True)
class PriceList:
    """
    The prices of one model by one way, as they were and are, by unit: (valid from, for a million), the newest first.

    Attributes:
        most_output: The most output tokens that one call can bring, as the newest price of output says.
    """

    by_unit: Mapping[str, tuple[tuple[datetime, int], ...]] = field(default_factory=dict)
    most_output: int | None = None

    def at(self, moment: datetime) -> dict[str, int]:
        """The price of each unit that is valid then."""
        found = {}
        for unit, history in self.by_unit.items():
            amount = next((amount for valid_from, amount in history if valid_from <= moment), None)
            if amount is not None:
                found[unit] = amount
        return found


_lock = threading.Lock()
_kept: TTLCache[object, PriceList] = TTLCache(MOST_MODELS_KEPT, PRICES_KEPT_SECONDS)
_kept_billing: TTLCache[object, frozenset[str]] = TTLCache(1, PRICES_KEPT_SECONDS)


def price_of(provider: str, model: str, usage: Usage, *, via: str = Via.LIVE, at: datetime) -> int | None:
    """
    Return what a call cost, in micro-units of the currency.

    Args:
        provider: The service of its job.
        at: When it was made: the price that was valid then counts.

    Returns:
        None: a price is missing, or its provider did not say what it used. Never to be taken for 0.
    """
    return cost_of(usage, price_list(provider, model, via=via).at(at))


def price_list(provider: str, model: str, *, via: str = Via.LIVE) -> PriceList:
    """The prices of a model, as read at most PRICES_KEPT_SECONDS ago."""
    return _read(provider, model, via)


def bills(provider: str) -> bool:
    """Whether calls of a provider cost money: one of its models has a price. Read at most PRICES_KEPT_SECONDS ago."""
    return provider in _billing()


def forget() -> None:
    """Read again at the next call; call it after changing a price."""
    with _lock:
        _kept.clear()
        _kept_billing.clear()


@cached(_kept, lock=_lock)
@from_primary
def _read(provider: str, model: str, via: str) -> PriceList:
    by_unit: dict[str, list[tuple[datetime, int]]] = {}
    most_output = None
    rows = Price.objects.filter(provider=provider, model=model, via=via).order_by("-valid_from")
    for row in rows:
        if row.unit == Price.Unit.OUTPUT_TOKENS and row.unit not in by_unit:
            most_output = row.most_tokens
        by_unit.setdefault(row.unit, []).append((row.valid_from, row.amount))
    return PriceList({unit: tuple(history) for unit, history in by_unit.items()}, most_output)


@cached(_kept_billing, lock=_lock)
@from_primary
def _billing() -> frozenset[str]:
    """Or one of its calls told what it used, and is waiting for a price."""
    unpriced = QuotaAlert.objects.filter(kind=QuotaAlert.Kind.MISSING_PRICE, resolved_at=None)
    priced = Price.objects.order_by().values_list("provider", flat=True).distinct()
    return frozenset(priced) | frozenset(unpriced.values_list("figures__provider", flat=True))


def now() -> datetime:
    """The time from which a price holds that is stored at this moment."""
    return datetime.fromtimestamp(database_now(), UTC)
