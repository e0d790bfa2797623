"""
Loading LiteLLM's price map, `model_prices_and_context_window.json`: US dollars for one unit, by model.

Its format: docs.litellm.ai/docs/proxy/model_cost_map, as of November 2026.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from decimal import Decimal
from pathlib import Path
from typing import Any, NamedTuple

from django.db import transaction

from queueops.audit import trail
from queueops.core.errors import QueueOpsError
from ratelimits.models import Price, Via
from ratelimits.models.money import LONGEST_PROVIDER, MOST_MONEY
from ratelimits.money import per_million
from ratelimits.subjects import LONGEST_NAME

from . import prices

NO_MODELS = frozenset({"sample_spec", "fallback_generalizations"})  # entries that describe the file
FIELDS: Mapping[str, tuple[str, str]] = {
    "input_cost_per_token": (Price.Unit.INPUT_TOKENS, Via.LIVE),
    "output_cost_per_token": (Price.Unit.OUTPUT_TOKENS, Via.LIVE),
    "cache_read_input_token_cost": (Price.Unit.CACHED_TOKENS, Via.LIVE),
    "input_cost_per_request": (Price.Unit.REQUESTS, Via.LIVE),
    "input_cost_per_token_batches": (Price.Unit.INPUT_TOKENS, Via.BATCH),
    "output_cost_per_token_batches": (Price.Unit.OUTPUT_TOKENS, Via.BATCH),
    "cache_read_input_token_cost_batches": (Price.Unit.CACHED_TOKENS, Via.BATCH),
}
LONG_CONTEXT = "_cost_per_token_above_"
MOST_MAP_BYTES = 100_000_000


class BadPriceMap(QueueOpsError):
    """This is no price map. Nothing was changed."""

    code = "bad_price_map"
    status = 422


class Key(NamedTuple):
    """What a price is for."""

    provider: str
    model: str
    unit: str
    via: str

    def __str__(self) -> str:
        by = " by batch" if self.via == Via.BATCH else ""
        return f"{self.provider} {self.model} {self.unit}{by}"


class MapPrice(NamedTuple):
    """For a million, in micro-units; and the most tokens of one call's output, where the map says it."""

    amount: int
    most_tokens: int | None = None


@dataclass(slots=True)
class ReadMap:
    """
    Attributes:
        left_out: What was not taken, and why, by the map's name.
        dearer: Models that cost more beyond a length of the prompt; the price below it is taken.
    """

    rates: dict[Key, MapPrice] = field(default_factory=dict)
    left_out: dict[str, str] = field(default_factory=dict)
    dearer: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class LoadedPrices:
    """
    Attributes:
        new: Of what had no price.
        changed: With the amount before.
        same: How many are as they were.
    """

    new: tuple[tuple[Key, MapPrice], ...]
    changed: tuple[tuple[Key, int, MapPrice], ...]
    same: int
    left_out: Mapping[str, str]
    dearer: tuple[str, ...]


def load_prices(
    path: Path,
    *,
    providers: Collection[str] = (),
    services: Mapping[str, Collection[str]] | None = None,
    dollars: Decimal = Decimal(1),
    valid_from: datetime | None = None,
    dry_run: bool = False,
    actor: str,
) -> LoadedPrices:
    """
    Store the prices of a map that are new or changed; all or nothing. What the map does not name keeps its prices.

    Args:
        providers: Of these alone, as the map names them; none: all.
        services: By the map's provider, the services whose calls cost this; a provider that is not named is its own.
        dollars: What a US dollar is worth in the currency.
        valid_from: From when on they hold; None: now.

    Raises:
        BadPriceMap
    """
    read = read_map(_parsed(path), providers=providers, services=services or {}, dollars=dollars)
    moment = valid_from or prices.now()
    with transaction.atomic():
        stored = _valid_at(moment, {key.provider for key in read.rates})
        new = tuple((key, rate) for key, rate in read.rates.items() if key not in stored)
        changed = tuple(
            (key, stored[key].amount, rate) for key, rate in read.rates.items() if stored.get(key, rate) != rate
        )
        if not dry_run:
            _store([*new, *((key, rate) for key, _, rate in changed)], moment)
            if new or changed:
                trail.record(
                    actor=actor,
                    action="load_prices",
                    target=f"prices of {path.name}",
                    after={"new": len(new), "changed": len(changed), "valid_from": moment.isoformat()},
                    moved=len(new) + len(changed),
                )
    prices.forget()
    same = len(read.rates) - len(new) - len(changed)
    return LoadedPrices(new, changed, same, read.left_out, tuple(read.dearer))


def read_map(
    given: Mapping[str, Any],
    *,
    providers: Collection[str] = (),
    services: Mapping[str, Collection[str]] | None = None,
    dollars: Decimal = Decimal(1),
) -> ReadMap:
    """Take the prices out of a parsed map; what cannot be taken is told, and never guessed. Numbers are Decimals."""
    read = ReadMap()
    for name, entry in given.items():
        if name in NO_MODELS:
            continue
        provider = entry.get("litellm_provider") if isinstance(entry, dict) else None
        if not isinstance(provider, str) or not provider:
            read.left_out[name] = "it names no provider"
        elif not providers or provider in providers:
            _take(read, name, entry, tuple((services or {}).get(provider, (provider,))), dollars=dollars)
    return read


def _take(read: ReadMap, name: str, entry: Mapping[str, Any], services: Sequence[str], *, dollars: Decimal) -> None:
    provider = entry["litellm_provider"]
    model = name.removeprefix(f"{provider}/")
    stated = {field: entry[field] for field in FIELDS if entry.get(field) is not None}
    if not stated:
        read.left_out[name] = "it has no price by token or request"
        return
    if len(model) > LONGEST_NAME or any(len(service) > LONGEST_PROVIDER for service in services):
        read.left_out[name] = "its name is too long"
        return
    amounts = {field: _amount(value, dollars) for field, value in stated.items()}
    if bad := [field for field, amount in amounts.items() if amount is None]:
        read.left_out[name] = f"no price can be read from {', '.join(bad)}"
        return
    most = entry.get("max_output_tokens")
    most_output = int(most) if isinstance(most, int | Decimal) and 0 < most < 2**31 else None
    found = {
        Key(service, model, unit, via): MapPrice(amount, most_output if unit == Price.Unit.OUTPUT_TOKENS else None)
        for service in services
        for stated_field, (unit, via) in FIELDS.items()
        if (amount := amounts.get(stated_field)) is not None
    }
    if any(read.rates.get(key, rate) != rate for key, rate in found.items()):
        read.left_out[name] = f"{provider} {model} has another price under another name"
        return
    read.rates |= found
    if any(LONG_CONTEXT in one for one in entry):
        read.dearer.append(name)


def _amount(value: Any, dollars: Decimal) -> int | None:
    if isinstance(value, bool) or not isinstance(value, int | Decimal):
        return None
    price = Decimal(value)
    if not price.is_finite() or price < 0:
        return None
    amount = per_million(price * dollars)
    return amount if amount <= MOST_MONEY else None


def _parsed(path: Path) -> Mapping[str, Any]:
    try:
        if path.stat().st_size > MOST_MAP_BYTES:
            raise BadPriceMap(f"{path} has more than {MOST_MAP_BYTES:,} bytes.")
        given = json.loads(path.read_text(encoding="utf-8"), parse_float=Decimal)
    except OSError as error:
        raise BadPriceMap(f"{path} cannot be read: {error.strerror}.") from error
    except ValueError as error:
        raise BadPriceMap(f"{path} is no JSON: {error}.") from error
    if not isinstance(given, dict) or not any(isinstance(entry, dict) for entry in given.values()):
        raise BadPriceMap(f"{path} is no price map: an object with an object for each model is wanted.")
    return given


def _valid_at(moment: datetime, providers: Collection[str]) -> dict[Key, MapPrice]:
    rows = Price.objects.filter(provider__in=providers, valid_from__lte=moment).order_by("valid_from")
    return {Key(row.provider, row.model, row.unit, row.via): MapPrice(row.amount, row.most_tokens) for row in rows}


def _store(wanted: Iterable[tuple[Key, MapPrice]], moment: datetime) -> None:
    Price.objects.bulk_create(
        [Price(**key._asdict(), **rate._asdict(), valid_from=moment) for key, rate in wanted],
        batch_size=1000,
        update_conflicts=True,
        unique_fields=["provider", "model", "via", "unit", "valid_from"],
        update_fields=["amount", "most_tokens"],
    )
