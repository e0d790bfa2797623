"""Prices of calls: looked up by the time of the call, and kept for some seconds."""

from __future__ import annotations

import math
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

from cachetools import TTLCache, cached

from queueops.core.clock import Now, database_now
from queueops.core.postgres.replica import from_primary
from ratelimits.costs import Usage
from ratelimits.models import Price, QuotaAlert, Spend, Via

from .amounts import cost_of

PRICES_KEPT_SECONDS = 5.0  # a price that another process stored is used at most this late
MAX_MODELS_KEPT = 5_000
TIER_KEPT = timedelta(days=7)  # how long a project counts as served by the priority tier after such a call


class DatedPrice(NamedTuple):
    """The price of a million units, for calls from `valid_from` on with more input than `above_tokens`; 0: for all."""

    valid_from: datetime
    above_tokens: int
    amount: int


@dataclass(frozen=True, slots=True)
class PriceList:
    """
    The past and present prices of one model and way (live or batch), by unit, the newest first.

    Attributes:
        most_output: The most output tokens that one call can bring, as the newest price of output says.
    """

    by_unit: Mapping[str, tuple[DatedPrice, ...]] = field(default_factory=dict)
    most_output: int | None = None

    def at(self, moment: datetime, input_tokens: int = 0) -> dict[str, int]:
        """The price of each unit that is valid at `moment` for a call with so much input."""
        return {unit: by_length[max(by_length)] for unit, by_length in self._valid(moment, input_tokens)}

    def most_at(self, moment: datetime, most_input_tokens: float = math.inf) -> dict[str, int]:
        """The highest price of each unit that is valid at `moment` for calls with at most so much input."""
        return {unit: max(by_length.values()) for unit, by_length in self._valid(moment, most_input_tokens)}

    def length_below(self, input_tokens: float) -> int:
        """The highest `above_tokens` of a price that a call with so much input exceeds; 0: none."""
        lengths = {one.above_tokens for history in self.by_unit.values() for one in history}
        return max((length for length in lengths if length < input_tokens), default=0)

    def _valid(self, moment: datetime, input_tokens: float) -> Iterator[tuple[str, dict[int, int]]]:
        for unit, history in self.by_unit.items():
            by_length: dict[int, int] = {}
            for one in history:
                if one.valid_from <= moment and (not one.above_tokens or one.above_tokens < input_tokens):
                    by_length.setdefault(one.above_tokens, one.amount)
            if by_length:
                yield unit, by_length


_lock = threading.Lock()
_kept: TTLCache[object, PriceList] = TTLCache(MAX_MODELS_KEPT, PRICES_KEPT_SECONDS)
_kept_served: TTLCache[object, bool] = TTLCache(MAX_MODELS_KEPT, PRICES_KEPT_SECONDS)
_kept_billing: TTLCache[object, frozenset[str]] = TTLCache(1, PRICES_KEPT_SECONDS)


def price_of(provider: str, model: str, usage: Usage, *, via: str = Via.LIVE, at: datetime) -> int | None:
    """
    Return what a call cost, in micro-units of the currency.

    Args:
        provider: The service of the call's job.
        at: When the call was made; the price that was valid then counts.

    Returns:
        None: a price is missing, or the provider did not say what the call used. Callers must not take None for 0.
    """
    return cost_of(usage, price_list(provider, model, via=via).at(at, usage.input_tokens or 0))


def price_list(provider: str, model: str, *, via: str = Via.LIVE) -> PriceList:
    """The prices of a model, as read at most PRICES_KEPT_SECONDS ago."""
    return _read(provider, model, via)


def bills(provider: str) -> bool:
    """Whether calls of a provider cost money, see `_billing`. Read at most PRICES_KEPT_SECONDS ago."""
    return provider in _billing()


def who_bills() -> frozenset[str]:
    """The providers whose calls cost money. Read at most PRICES_KEPT_SECONDS ago."""
    return _billing()


def is_served_by_priority(project: str, provider: str) -> bool:
    """
    Whether a provider has served a project's live calls by its priority tier of late. Then that is the default of the
    project's account there, which no request names. Read at most PRICES_KEPT_SECONDS ago.
    """
    return _served_by_priority(project, provider)


def forget() -> None:
    """Make the next call read the prices again. Call this after changing a price."""
    with _lock:
        _kept.clear()
        _kept_served.clear()
        _kept_billing.clear()


@cached(_kept, lock=_lock)
@from_primary
def _read(provider: str, model: str, via: str) -> PriceList:
    by_unit: dict[str, list[DatedPrice]] = {}
    rows = list(Price.objects.filter(provider=provider, model=model, via=via).order_by("-valid_from"))
    of_output = (row.most_tokens for row in rows if row.unit == Price.Unit.OUTPUT_TOKENS and not row.above_tokens)
    for row in rows:
        by_unit.setdefault(row.unit, []).append(DatedPrice(row.valid_from, row.above_tokens, row.amount))
    return PriceList({unit: tuple(history) for unit, history in by_unit.items()}, next(of_output, None))


@cached(_kept_served, lock=_lock)
@from_primary
def _served_by_priority(project: str, provider: str) -> bool:
    calls = Spend.objects.filter(project_id=project, provider=provider, via=Via.PRIORITY)
    return calls.filter(at__gt=Now() - TIER_KEPT).exists()


@cached(_kept_billing, lock=_lock)
@from_primary
def _billing() -> frozenset[str]:
    """The providers with a priced model, or with a call of known use that waits for a price."""
    unpriced = QuotaAlert.objects.filter(kind=QuotaAlert.Kind.MISSING_PRICE, resolved_at=None)
    priced = Price.objects.order_by().values_list("provider", flat=True).distinct()
    return frozenset(priced) | frozenset(unpriced.values_list("figures__provider", flat=True))


def now() -> datetime:
    """The database's time, from which a price that is stored now holds."""
    return datetime.fromtimestamp(database_now(), UTC)
