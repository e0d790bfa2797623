"""
Loading LiteLLM's price map, `model_prices_and_context_window.json`: US dollars for one unit, by model.

Its format: docs.litellm.ai/docs/proxy/model_cost_map, as of November 2026.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from decimal import Decimal
from difflib import get_close_matches
from pathlib import Path
from typing import Any, NamedTuple

from django.db import transaction

from queueops.audit import trail
from queueops.core.errors import QueueOpsError
from ratelimits.models import Price, Via
from ratelimits.subjects import MAX_NAME_LENGTH

from . import prices
from .amounts import per_million
from .models import MAX_MONEY, MAX_PROVIDER_LENGTH

NO_MODELS = frozenset({"sample_spec", "fallback_generalizations"})  # entries that describe the file
FIELDS: Mapping[str, str] = {
    "input_cost_per_token": Price.Unit.INPUT_TOKENS,
    "output_cost_per_token": Price.Unit.OUTPUT_TOKENS,
    "cache_read_input_token_cost": Price.Unit.CACHED_TOKENS,
    "cache_creation_input_token_cost": Price.Unit.WRITTEN_TOKENS,
    "cache_creation_input_token_cost_above_1hr": Price.Unit.WRITTEN_1H_TOKENS,
    "input_cost_per_request": Price.Unit.REQUESTS,
}
# For example input_cost_per_token_above_200k_tokens_batches.
WAYS: Mapping[str, Via] = {"batches": Via.BATCH, "flex": Via.FLEX, "priority": Via.PRIORITY}
FIELD = re.compile(rf"(?P<base>{'|'.join(FIELDS)})(_above_(?P<length>[^_]+)_tokens)?(_(?P<way>{'|'.join(WAYS)}))?")
LENGTH = re.compile(r"(\d{1,9})(k?)")
MAX_MAP_BYTES = 100_000_000


class BadPriceMap(QueueOpsError):
    """This is no price map. Nothing was changed."""

    code = "bad_price_map"
    status = 422


class Key(NamedTuple):
    """The calls and the unit that a price is for."""

    provider: str
    model: str
    unit: str
    via: str
    above_tokens: int = 0

    def __str__(self) -> str:
        by = "" if self.via == Via.LIVE else f" {Via(self.via).label}"
        beyond = f" beyond {self.above_tokens:,} of input" if self.above_tokens else ""
        return f"{self.provider} {self.model} {self.unit}{by}{beyond}"


class MapPrice(NamedTuple):
    """The price of a million units, in micro-units; and the most output tokens of one call, if the map states them."""

    amount: int
    most_tokens: int | None = None


@dataclass(slots=True)
class ReadMap:
    """
    Attributes:
        left_out: Why a model was not taken, by the model's name in the map.
        notes: What to look at for a model that was taken but sometimes has another price, by its name in the map.
    """

    rates: dict[Key, MapPrice] = field(default_factory=dict)
    left_out: dict[str, str] = field(default_factory=dict)
    notes: dict[str, list[str]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class LoadedPrices:
    """
    Attributes:
        new: Prices for keys that had no price.
        changed: The prices that changed, each with the price before and the new price.
        kept: The operators' prices that stay, each with the map's different price.
        same: How many prices stay as they were.
    """

    new: tuple[tuple[Key, MapPrice], ...]
    changed: tuple[tuple[Key, MapPrice, MapPrice], ...]
    kept: tuple[tuple[Key, MapPrice, MapPrice], ...]
    same: int
    left_out: Mapping[str, str]
    notes: Mapping[str, Sequence[str]]


def load_prices(
    path: Path,
    *,
    providers: Collection[str] = (),
    services: Mapping[str, Collection[str]] | None = None,
    dollars: Decimal = Decimal(1),
    valid_from: datetime | None = None,
    replace: bool = False,
    dry_run: bool = False,
    actor: str,
) -> LoadedPrices:
    """
    Store the new and changed prices of a map; all or nothing. Models that the map does not name keep their prices.

    An operator's prices stay, too; an operator's price for any length of the input stands for every length.

    Args:
        providers: Load only these, as the map names them; none: all.
        services: The services that have a provider's prices, by the provider's name in the map. By default the service
            has that name.
        dollars: What a US dollar is worth in the currency.
        valid_from: The time from which the prices hold; None: now.
        replace: Also replace prices that were set by hand.

    Raises:
        BadPriceMap
    """
    given = _parsed(path)
    _check_names(given, {*providers, *(services or {})}, path)
    read = read_map(given, providers=providers, services=services or {}, dollars=dollars)
    moment = valid_from or prices.now()
    with transaction.atomic():
        stored = _valid_at(moment, {key.provider for key in read.rates})
        own = {} if replace else {key: row for key in read.rates if (row := _by_hand(stored, key))}
        kept = tuple((key, row.price, read.rates[key]) for key, row in own.items() if row.price != read.rates[key])
        free = [(key, rate) for key, rate in read.rates.items() if key not in own]
        new = tuple((key, rate) for key, rate in free if key not in stored)
        changed = tuple((key, stored[key].price, rate) for key, rate in free if key in stored)
        changed = tuple(one for one in changed if one[1] != one[2])
        if not dry_run:
            _store([*new, *((key, rate) for key, _, rate in changed)], moment)
            if new or changed:
                trail.record(
                    actor=actor,
                    action="load_prices",
                    target=f"prices of {path.name}",
                    after={
                        "new": len(new),
                        "changed": len(changed),
                        "kept": len(kept),
                        "replace": replace,
                        "valid_from": moment.isoformat(),
                    },
                    moved=len(new) + len(changed),
                )
    prices.forget()
    same = len(read.rates) - len(new) - len(changed) - len(kept)
    return LoadedPrices(new, changed, kept, same, read.left_out, read.notes)


def read_map(
    given: Mapping[str, Any],
    *,
    providers: Collection[str] = (),
    services: Mapping[str, Collection[str]] | None = None,
    dollars: Decimal = Decimal(1),
) -> ReadMap:
    """Read the prices of a parsed map. Entries that cannot be read are reported, not guessed. Numbers are Decimals."""
    read = ReadMap()
    for name, said in given.items():
        if name in NO_MODELS:
            continue
        alias = said.get("alias_of") if isinstance(said, dict) else None
        if isinstance(alias, str) and alias not in given:
            read.left_out[name] = f"it is another name of {alias}, which the map does not have"
            continue
        entry = given[alias] if isinstance(alias, str) else said
        provider = entry.get("litellm_provider") if isinstance(entry, dict) else None
        if not isinstance(provider, str) or not provider:
            read.left_out[name] = "it names no provider"
        elif not providers or provider in providers:
            _take(read, name, entry, tuple((services or {}).get(provider, (provider,))), dollars=dollars)
    return read


def _take(read: ReadMap, name: str, entry: Mapping[str, Any], services: Sequence[str], *, dollars: Decimal) -> None:
    provider = entry["litellm_provider"]
    model = name.removeprefix(f"{provider}/")
    try:
        given = _by_length(entry)
    except ValueError:
        read.left_out[name] = "no price can be read from tiered_pricing: not lengths of the input with a price each"
        return
    stated = {field: FIELD.fullmatch(field) for field, value in given.items() if value is not None}
    fields = {field: match for field, match in stated.items() if match}
    if not fields:
        read.left_out[name] = "it has no price by token or request"
        return
    if len(model) > MAX_NAME_LENGTH or any(len(service) > MAX_PROVIDER_LENGTH for service in services):
        read.left_out[name] = "its name is too long"
        return
    if not model or not all(text.isprintable() for text in (model, *services)):
        read.left_out[name] = "its name is empty or has signs that cannot be stored"
        return
    amounts = {field: _amount(given[field], dollars) for field in fields}
    lengths = {field: _length(match["length"]) for field, match in fields.items()}
    if bad := [field for field in fields if isinstance(amounts[field], str) or lengths[field] is None]:
        why = next((amounts[field] for field in bad if isinstance(amounts[field], str)), "not a length")
        read.left_out[name] = f"no price can be read from {', '.join(bad)}: {why}"
        return
    most = entry.get("max_output_tokens")
    most_output = int(most) if isinstance(most, int | Decimal) and 0 < most < 2**31 else None
    found = {
        Key(service, model, unit, WAYS.get(match["way"], Via.LIVE), length): MapPrice(
            amount, most_output if unit == Price.Unit.OUTPUT_TOKENS else None
        )
        for service in services
        for field, match in fields.items()
        if (unit := FIELDS[match["base"]])
        and isinstance(amount := amounts[field], int)
        and (length := lengths[field]) is not None
    }
    if any(read.rates.get(key, rate) != rate for key, rate in found.items()):
        read.left_out[name] = f"{provider} {model} has another price under another name"
        return
    read.rates |= found
    if notes := list(_notes(given, found)):
        read.notes[name] = notes


def _by_length(entry: Mapping[str, Any]) -> dict[str, Any]:
    """
    Return the entry with its tiers as separate fields; the map may write the same prices either way.

    A tier holds for calls with more input than its beginning, and then for the whole call. LiteLLM counts so in
    litellm_core_utils/llm_cost_calc/tiered_pricing.py of 1.110.

    Raises:
        ValueError: A tier with a price by token has no beginning.
    """
    tiers = entry.get("tiered_pricing") or []
    if not isinstance(tiers, list) or not all(isinstance(tier, dict) for tier in tiers):
        raise ValueError("no list of tiers")
    fields = dict(entry)
    for tier in tiers:
        for name in FIELDS.keys() & tier.keys():
            match tier.get("range"):
                case [int() | Decimal() as first, _] if first == 0:
                    fields[name] = tier[name]
                case [int() | Decimal() as first, _] if 0 < first < 2**31:
                    fields[f"{name}_above_{int(first)}_tokens"] = tier[name]
                case _:
                    raise ValueError("a tier without a beginning")
    return fields


def _notes(given: Mapping[str, Any], found: Collection[Key]) -> Iterator[str]:
    by_length = {via: any(key.above_tokens for key in found if key.via == via) for via in Via}
    if by_length[Via.LIVE] and not by_length[Via.BATCH] and any(key.via == Via.BATCH for key in found):
        yield "has one price by batch, and live another for long input: add that by batch if there is one"
    thoughts = given.get("output_cost_per_reasoning_token")
    if thoughts is not None and thoughts != given.get("output_cost_per_token"):
        yield "has another price for thoughts, which are counted as output: set that price by hand if jobs let it think"
    if given.get("search_context_cost_per_query"):
        yield "has a price for each search of the web, which is not counted: calls with searches cost more than is told"
    specific = given.get("provider_specific_entry")
    factor = specific.get("us") if isinstance(specific, dict) else None
    if isinstance(factor, int | Decimal) and factor != 1:
        yield f"costs {factor} times as much where it has to run in the US (inference_geo), which is not counted"
    if given.get("off_peak_pricing"):
        yield "costs less at some hours, and is counted by the price of the others"


def _amount(value: Any, dollars: Decimal) -> int | str:
    """Return the price for a million, in micro-units; or say why it is no price."""
    if isinstance(value, bool) or not isinstance(value, int | Decimal):
        return "not a number"
    if value < 0:
        return "below 0"
    try:
        amount = per_million(Decimal(value) * dollars)
    except ArithmeticError:
        return "too high"
    return amount if amount <= MAX_MONEY else "too high"


def _length(text: str | None) -> int | None:
    """Read `200k` as 200,000, and None as 0. Returns None for text that cannot be read."""
    if text is None:
        return 0
    found = LENGTH.fullmatch(text)
    length = int(found[1]) * (1000 if found[2] else 1) if found else 0
    return length if 0 < length < 2**31 else None


def _parsed(path: Path) -> Mapping[str, Any]:
    try:
        if path.stat().st_size > MAX_MAP_BYTES:
            raise BadPriceMap(f"{path} has more than {MAX_MAP_BYTES:,} bytes.")
        given = json.loads(path.read_text(encoding="utf-8-sig"), parse_float=Decimal)
    except OSError as error:
        raise BadPriceMap(f"{path} cannot be read: {error.strerror}.") from error
    except (ValueError, RecursionError, ArithmeticError) as error:
        raise BadPriceMap(f"{path} is no JSON: {error}.") from error
    if not isinstance(given, dict) or not _providers(given):
        raise BadPriceMap(
            f"{path} is no price map: an object for each model is wanted, with its litellm_provider and its prices."
        )
    return given


def _providers(given: Mapping[str, Any]) -> set[str]:
    named = (
        entry.get("litellm_provider")
        for name, entry in given.items()
        if isinstance(entry, dict) and name not in NO_MODELS
    )
    return {provider for provider in named if isinstance(provider, str)}


def _check_names(given: Mapping[str, Any], names: Collection[str], path: Path) -> None:
    known = _providers(given)
    if unknown := sorted(set(names) - known):
        near = get_close_matches(unknown[0], known, n=5) or sorted(known)[:10]
        raise BadPriceMap(f"{path} has no provider {unknown[0]}. It has, among others, {', '.join(near)}.")


class _Stored(NamedTuple):
    price: MapPrice
    by_hand: bool


def _valid_at(moment: datetime, providers: Collection[str]) -> dict[Key, _Stored]:
    rows = Price.objects.filter(provider__in=providers, valid_from__lte=moment).order_by("valid_from")
    return {
        Key(row.provider, row.model, row.unit, row.via, row.above_tokens): _Stored(
            MapPrice(row.amount, row.most_tokens), row.by_hand
        )
        for row in rows
    }


def _by_hand(stored: Mapping[Key, _Stored], key: Key) -> _Stored | None:
    """The operator's price for a key, or else for any length of the input; None: there is none."""
    row = stored.get(key) or stored.get(key._replace(above_tokens=0))
    return row if row and row.by_hand else None


def _store(wanted: Iterable[tuple[Key, MapPrice]], moment: datetime) -> None:
    Price.objects.bulk_create(
        [Price(**key._asdict(), **rate._asdict(), valid_from=moment, by_hand=False) for key, rate in wanted],
        batch_size=1000,
        update_conflicts=True,
        unique_fields=["provider", "model", "via", "unit", "above_tokens", "valid_from"],
        update_fields=["amount", "most_tokens", "by_hand"],
    )
