"""Loading a price map: what is taken, what is left out and why, and what an operator has set by hand."""

from __future__ import annotations

import json
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from django.core.management import CommandError, call_command

from queueops.audit.models import AuditEntry
from ratelimits.models import Price
from ratelimits.money import prices
from ratelimits.money.price_map import Key, ReadMap, read_map
from tests.support.cases import every_case

PRICE_MAP: dict[str, dict[str, Any]] = {
    "sample_spec": {"litellm_provider": "one of https://docs", "input_cost_per_token": 0},
    "small-1": {
        "litellm_provider": "openai",
        "input_cost_per_token": 1.5e-07,
        "output_cost_per_token": 6e-07,
        "cache_read_input_token_cost": 7.5e-08,
        "input_cost_per_token_batches": 7.5e-08,
        "output_cost_per_token_batches": 3e-07,
        "max_output_tokens": 16384,
        "input_cost_per_token_priority": 9e-06,
        "output_cost_per_token_flex": 3e-07,
        "cache_read_input_token_cost_above_200k_tokens_flex": 1e-07,
    },
    "gemini/flash": {"litellm_provider": "gemini", "input_cost_per_token": 1e-07, "output_cost_per_token": 4e-07},
    "pictures": {"litellm_provider": "openai", "output_cost_per_image": 0.04},
    "broken": {"litellm_provider": "openai", "input_cost_per_token": "cheap"},
    "below": {"litellm_provider": "openai", "input_cost_per_token": 1e-06, "output_cost_per_token": -1e-06},
    "huge": {"litellm_provider": "openai", "input_cost_per_token": 1e300},
    "odd\u0000": {"litellm_provider": "openai", "input_cost_per_token": 1e-06},
    "endless": {"litellm_provider": "openai", "input_cost_per_token_above_many_tokens": 1e-06},
    "nobodys": {"input_cost_per_token": 1e-06},
}
LONG = {
    "litellm_provider": "anthropic",
    "input_cost_per_token": 3e-06,
    "input_cost_per_token_above_200k_tokens": 6e-06,
    "output_cost_per_token": 1.5e-05,
    "output_cost_per_token_above_200k_tokens": 2.25e-05,
    "cache_read_input_token_cost": 3e-07,
    "cache_read_input_token_cost_above_200k_tokens": 6e-07,
    "cache_creation_input_token_cost": 3.75e-06,
    "cache_creation_input_token_cost_above_1hr": 6e-06,
    "cache_creation_input_token_cost_above_200k_tokens": 7.5e-06,
    "cache_creation_input_token_cost_above_1hr_above_200k_tokens": 1.2e-05,
}


def parsed(entries: dict[str, Any]) -> ReadMap:
    return read_map(json.loads(json.dumps(entries), parse_float=Decimal))


@pytest.fixture(autouse=True)
def fresh_prices(db: None) -> Iterator[None]:
    prices.forget()
    yield
    prices.forget()


@pytest.fixture
def load(tmp_path, capsys):
    def run(entries: Any, *options: str) -> str:
        path = tmp_path / "prices.json"
        path.write_text(entries if isinstance(entries, str) else json.dumps(entries))
        call_command("load_prices", path, *options)
        return str(capsys.readouterr().out)

    return run


def test_a_map_is_read_and_what_cannot_be_taken_is_told():
    read = parsed(PRICE_MAP)
    amounts = {(key.model, key.unit, key.via): rate.amount for key, rate in read.rates.items()}
    assert amounts == {
        ("small-1", "input_tokens", "live"): 150_000,
        ("small-1", "output_tokens", "live"): 600_000,
        ("small-1", "cached_tokens", "live"): 75_000,
        ("small-1", "input_tokens", "batch"): 75_000,
        ("small-1", "output_tokens", "batch"): 300_000,
        ("small-1", "input_tokens", "priority"): 9_000_000,
        ("small-1", "output_tokens", "flex"): 300_000,
        ("small-1", "cached_tokens", "flex"): 100_000,
        ("flash", "input_tokens", "live"): 100_000,
        ("flash", "output_tokens", "live"): 400_000,
    }
    assert read.rates[Key("openai", "small-1", "output_tokens", "live")].most_tokens == 16_384
    assert read.left_out == {
        "pictures": "it has no price by token or request",
        "broken": "no price can be read from input_cost_per_token: not a number",
        "below": "no price can be read from output_cost_per_token: below 0",
        "huge": "no price can be read from input_cost_per_token: too high",
        "odd\0": "its name is empty or has signs that cannot be stored",
        "endless": "no price can be read from input_cost_per_token_above_many_tokens: not a length",
        "nobodys": "it names no provider",
    }


def test_prices_by_length_and_of_caches_are_read():
    batches = {"input_cost_per_token_batches": 1e-06, "input_cost_per_token_above_272_tokens_batches": 2e-06}
    read = parsed({"long": LONG, "two": LONG | batches, "one": LONG | {"input_cost_per_token_batches": 1e-06}})
    amounts = {
        (key.unit, key.via, key.above_tokens): rate.amount for key, rate in read.rates.items() if key.model == "two"
    }
    assert amounts == {
        ("input_tokens", "live", 0): 3_000_000,
        ("input_tokens", "live", 200_000): 6_000_000,
        ("output_tokens", "live", 0): 15_000_000,
        ("output_tokens", "live", 200_000): 22_500_000,
        ("cached_tokens", "live", 0): 300_000,
        ("cached_tokens", "live", 200_000): 600_000,
        ("written_tokens", "live", 0): 3_750_000,
        ("written_tokens", "live", 200_000): 7_500_000,
        ("written_1h_tokens", "live", 0): 6_000_000,
        ("written_1h_tokens", "live", 200_000): 12_000_000,
        ("input_tokens", "batch", 0): 1_000_000,
        ("input_tokens", "batch", 272): 2_000_000,
    }
    assert read.left_out == {}
    assert read.notes == {
        "one": ["has one price by batch, and live another for long input: add that by batch if there is one"]
    }


def test_prices_by_tiers_are_those_by_length_and_a_tier_that_is_no_length_leaves_the_model_out():
    first = {"range": [0, 256000.0], "input_cost_per_token": 5e-08, "output_cost_per_token": 4e-07}
    second = {"range": [256000.0, 1e6], "input_cost_per_token": 2.5e-07, "output_cost_per_token": 2e-06}
    entry = {"litellm_provider": "dashscope", "tiered_pricing": [first, second]}
    flat = {"input_cost_per_token": 5e-08, "output_cost_per_token": 4e-07}
    read = parsed({
        "dashscope/qwen": entry,
        "flat": entry | flat,
        "none": entry | {"tiered_pricing": [first, {**second, "range": None}]},
        "down": entry | {"tiered_pricing": [{**first, "range": [-1, 5]}]},
        "text": entry | {"tiered_pricing": "cheap"},
        "search": entry | {"tiered_pricing": [{"input_cost_per_query": 1, "max_results_range": [0, 9]}]},
    })  # fmt: skip
    for model in ("qwen", "flat"):
        amounts = {(key.unit, key.above_tokens): rate.amount for key, rate in read.rates.items() if key.model == model}
        assert amounts == {
            ("input_tokens", 0): 50_000,
            ("output_tokens", 0): 400_000,
            ("input_tokens", 256_000): 250_000,
            ("output_tokens", 256_000): 2_000_000,
        }
    bad = "no price can be read from tiered_pricing: not lengths of the input with a price each"
    nothing = "it has no price by token or request"
    assert read.left_out == {"none": bad, "down": bad, "text": bad, "search": nothing}


def test_another_name_of_a_model_has_its_prices_and_one_of_none_is_told(load):
    entries = {
        "small-latest": {"alias_of": "small-1"},
        "big-latest": {"alias_of": "big-9"},
        "odd-latest": {"alias_of": 7},
        "flash-latest": {"alias_of": "gemini/flash"},
        "small-1": PRICE_MAP["small-1"],
        "gemini/flash": PRICE_MAP["gemini/flash"],
    }
    read = parsed(entries)
    for unit, amount in (("input_tokens", 150_000), ("output_tokens", 600_000)):
        assert read.rates[Key("openai", "small-latest", unit, "live")].amount == amount
    assert read.left_out == {
        "big-latest": "it is another name of big-9, which the map does not have",
        "odd-latest": "it names no provider",
    }
    load(entries, "--provider", "openai")
    assert set(Price.objects.values_list("model", flat=True)) == {"small-1", "small-latest"}


def test_what_a_model_costs_at_other_times_is_told_and_not_guessed():
    asks = {"litellm_provider": "x", "input_cost_per_token": 1e-06, "output_cost_per_token": 2e-06}
    read = parsed({
        "thinks": asks | {"output_cost_per_reasoning_token": 4e-06},
        "same": asks | {"output_cost_per_reasoning_token": 2e-06},
        "us": asks | {"provider_specific_entry": {"us": 1.1, "fast": 6}},
        "odd": asks | {"provider_specific_entry": {"us": "1.1"}},
        "looks": asks | {"search_context_cost_per_query": {"search_context_size_low": 0.01}},
        "night": asks | {"off_peak_pricing": {"windows": [], "input_cost_per_token": 5e-07}},
    })  # fmt: skip
    assert {name: len(notes) for name, notes in read.notes.items()} == {"thinks": 1, "night": 1, "us": 1, "looks": 1}
    assert "costs 1.1 times as much" in read.notes["us"][0]
    assert "each search of the web" in read.notes["looks"][0]
    assert "thoughts" in read.notes["thinks"][0]
    assert "hours" in read.notes["night"][0]


def test_loading_stores_what_is_new_and_changed_from_now_on_and_a_dry_run_stores_nothing(load):
    told = load(PRICE_MAP, "--dry-run")
    assert "10 prices would be new, 0 would be changed, 0 as they were, 0 set by hand kept; 7 models left out" in told
    assert not Price.objects.exists()
    load(PRICE_MAP, "--valid-from", "2026-01-01")
    changed = PRICE_MAP["small-1"] | {"input_cost_per_token": 2e-07, "max_output_tokens": 99}
    told = load(PRICE_MAP | {"small-1": changed}, "--provider", "openai")
    assert "changed: openai small-1 input_tokens: 0.15 USD a million before, 0.20 USD a million now" in told
    assert "output_tokens: 0.60 USD a million, 16,384 at most before, 0.60 USD a million, 99 at most now" in told
    assert "0 prices new, 4 changed, 4 as they were" in told
    history = Price.objects.filter(model="small-1", unit="input_tokens", via="live").order_by("valid_from")
    assert list(history.values_list("amount", flat=True)) == [150_000, 200_000]
    assert AuditEntry.objects.filter(action="load_prices").count() == 2
    load(PRICE_MAP, "--as", "openai=openai-eu", "--provider", "openai")
    assert Price.objects.filter(provider="openai-eu").count() == 8


def amount_now(unit: str, input_tokens: int = 0) -> int:
    prices.forget()
    return prices.price_list("anthropic", "long").at(prices.now(), input_tokens)[unit]


def test_what_was_set_by_hand_is_kept_and_told_and_taken_over_only_when_asked(load):
    given = {"provider": "anthropic", "model": "long"}
    Price.objects.create(**given, unit="output_tokens", amount=1, most_tokens=77)
    Price.objects.create(**given, unit="cached_tokens", amount=300_000)
    dry = load({"long": LONG}, "--dry-run")
    told = load({"long": LONG})
    for one in (dry, told):
        assert (
            "kept: anthropic long output_tokens: 0.000001 USD a million, 77 at most was set by hand; the map has 15.00"
        ) in one
        assert "kept: anthropic long output_tokens beyond 200,000 of input: 0.000001" in one
        assert "kept: anthropic long cached_tokens beyond 200,000 of input: 0.30 USD" in one
        assert "--replace" in one
    assert "6 prices new, 0 changed, 1 as they were, 3 set by hand kept" in told
    assert amount_now("output_tokens", 300_000) == 1
    assert prices.price_list("anthropic", "long").most_output == 77
    assert "0 prices new, 0 changed, 7 as they were, 3 set by hand kept" in load({"long": LONG})
    assert "2 prices new, 1 changed, 7 as they were, 0 set by hand kept" in load({"long": LONG}, "--replace")
    assert (amount_now("output_tokens"), amount_now("output_tokens", 200_001)) == (15_000_000, 22_500_000)
    assert "0 prices new, 0 changed, 10 as they were, 0 set by hand kept" in load({"long": LONG})


@every_case("name", ["x\0", "x\ud800", "x\x1b[31m"], undone=True)
def test_a_provider_whose_name_cannot_be_stored_is_left_out_and_the_others_are_stored(load, name):
    entry = {"input_cost_per_token": 1e-06}
    told = load(PRICE_MAP | {"odd": entry | {"litellm_provider": name}, name: entry | {"litellm_provider": "openai"}})
    for odd in ("odd", "x\ufffd"):
        assert f"left out: {odd}" in told
    assert told.encode().isascii() is False
    assert "\x1b" not in told
    assert Price.objects.count() == 10


def test_a_file_with_a_byte_order_mark_is_read(load):
    load("\ufeff" + json.dumps(PRICE_MAP))
    assert Price.objects.count() == 10


@every_case("text", ["{", "[]", '{"a": 1}', '{"name": "app", "scripts": {"x": "y"}}', None], undone=True)
def test_a_bad_file_is_refused_and_nothing_is_half_done(tmp_path: Path, text):
    path = tmp_path / "prices.json"
    if text is not None:
        path.write_text(text)
    with pytest.raises(CommandError, match=r"is no|cannot be read"):
        call_command("load_prices", path)
    assert not Price.objects.exists()


@every_case(("options", "message"), [
    (["--provider", "openia"], r"has no provider openia. It has, among others, openai\."),
    (["--as", "zzz=x"], "has no provider zzz. It has, among others, gemini, openai"),
    (["--as", "openai"], "write PROVIDER=SERVICE"), (["--rate", "0"], "is no rate"),
    (["--rate", "0.9"], "leave --rate out"), (["--valid-from", "soon"], "is no day"),
    (["--valid-from", "9999-12-31T23:59:59-12:00"], "outside the calendar"),
    (["--valid-from", "0001-01-01T00:00:00+12:00"], "outside the calendar"),
], undone=True)  # fmt: skip
def test_a_wrong_option_is_refused_with_what_is_wrong_and_stores_nothing(load, options, message):
    with pytest.raises(CommandError, match=message):
        load(PRICE_MAP, *options)
    assert not Price.objects.exists()
