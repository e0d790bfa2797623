"""What calls cost: whole micro-units, rounded half up once a call; a missing price is told and never taken for 0."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import pytest
from django.core.management import CommandError, call_command
from hypothesis import given
from hypothesis import strategies as st

from queueops.audit.models import AuditEntry
from ratelimits.costs import Usage
from ratelimits.models import Price, QuotaAlert, Spend
from ratelimits.money import MICRO, cost_of, most_of, per_million, shown
from ratelimits.services.money import prices, reports
from ratelimits.services.money.price_map import Key, read_map
from ratelimits.services.money.spend import MadeCall, Payer, price_unpriced, record_calls
from tests.factories import make_project

NOW = datetime(2026, 11, 20, 12, tzinfo=UTC)
RATES = {"input_tokens": 3_000_000, "cached_tokens": 300_000, "output_tokens": 15_000_000}
TABLE = [
    (Usage(1_000_000, 0, 0), RATES, 3_000_000),
    (Usage(1_000_000, 1_000_000, 0), RATES, 300_000),
    (Usage(1_000, 400, 200), RATES, 600 * 3 + 120 + 3_000),
    (Usage(1_000, 400, 200), {"input_tokens": 3_000_000, "output_tokens": 15_000_000}, 3_000 + 3_000),
    (Usage(1_000, None, 0), RATES, 3_000),
    (Usage(1, 0, 0), {"input_tokens": 500_000}, 1),  # half a micro-unit is one
    (Usage(1, 0, 0), {"input_tokens": 499_999}, 0),
    (Usage(1, 0, 1), {"input_tokens": 250_000, "output_tokens": 250_000}, 1),  # rounded once, not by unit
    (Usage(requests=3), {"requests": 5_000 * MICRO}, 15_000),
    (Usage(10, 0, 0), {"requests": MICRO, "input_tokens": MICRO}, 11),
    (Usage(10, 0, 0), {"input_tokens": 0}, 0),  # free, and said to be
    (Usage(10, 0, 0), {}, None),
    (Usage(10, 0, 5), {"input_tokens": MICRO}, None),
    (Usage(None, None, 5), RATES, None),
    (Usage(tokens=5), RATES, None),
]


@pytest.mark.parametrize(("usage", "rates", "cost"), TABLE)
def test_a_call_costs_what_each_unit_costs(usage, rates, cost):
    assert cost_of(usage, rates) == cost


counts = st.integers(0, 10**9)
amounts = st.integers(0, 10**9)


@given(fresh=counts, cached=counts, output=counts, rates=st.tuples(amounts, amounts, amounts))
def test_it_is_the_exact_cost_to_half_a_micro_unit_and_never_above_its_bound(fresh, cached, output, rates):
    by_unit = dict(zip(("input_tokens", "cached_tokens", "output_tokens"), rates, strict=True))
    cost = cost_of(Usage(fresh + cached, cached, output), by_unit)
    exact = sum(
        (Fraction(count * rate, MICRO) for count, rate in zip((fresh, cached, output), rates, strict=True)), Fraction()
    )
    assert cost is not None
    assert abs(cost - exact) <= Fraction(1, 2)
    most = most_of(fresh + cached, output, by_unit)
    assert most is not None
    assert cost <= most


@given(fresh=counts, more=counts, rate=amounts)
def test_more_tokens_never_cost_less(fresh, more, rate):
    rates = {"input_tokens": rate}
    less, all_of_it = cost_of(Usage(fresh, 0, 0), rates), cost_of(Usage(fresh + more, 0, 0), rates)
    assert less is not None
    assert all_of_it is not None
    assert less <= all_of_it


def test_a_price_for_a_token_is_kept_for_a_million_to_a_millionth():
    assert [per_million(Decimal(text)) for text in ("3e-06", "0.00000015", "1e-12", "5e-13", "4e-13")] == [
        3_000_000, 150_000, 1, 1, 0,
    ]  # fmt: skip
    assert [shown(micro, "USD") for micro in (1_234_560_000, 125, 1_500_000, None)] == [
        "1,234.56 USD", "0.000125 USD", "1.50 USD", "no price",
    ]  # fmt: skip


@pytest.fixture
def fresh_prices(db):
    prices.forget()
    yield
    prices.forget()


def set_price(unit: str, amount: int, *, since: datetime = NOW, via: str = "live", model: str = "small-1") -> None:
    Price.objects.create(provider="openai", model=model, unit=unit, via=via, amount=amount, valid_from=since)
    prices.forget()


@pytest.mark.usefixtures("fresh_prices")
def test_the_price_that_was_valid_when_the_call_was_made_counts():
    set_price("input_tokens", 2_000_000)
    set_price("input_tokens", 4_000_000, since=NOW + timedelta(days=1))
    set_price("input_tokens", 1_000_000, via="batch")
    usage = Usage(1_000, 0, None)

    def cost(days: float, via: str = "live") -> int | None:
        return prices.price_of("openai", "small-1", usage, via=via, at=NOW + timedelta(days=days))

    assert [cost(-1), cost(0), cost(0.5), cost(1), cost(2)] == [None, 2_000, 2_000, 4_000, 4_000]
    assert cost(2, "batch") == 1_000
    assert prices.price_of("openai", "other", usage, at=NOW) is None


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
        "input_cost_per_token_above_200k_tokens": 3e-07,
    },
    "gemini/flash": {"litellm_provider": "gemini", "input_cost_per_token": 1e-07, "output_cost_per_token": 4e-07},
    "pictures": {"litellm_provider": "openai", "output_cost_per_image": 0.04},
    "broken": {"litellm_provider": "openai", "input_cost_per_token": "cheap"},
    "below": {"litellm_provider": "openai", "input_cost_per_token": -1e-06},
    "nobodys": {"input_cost_per_token": 1e-06},
}


def test_a_map_is_read_and_what_cannot_be_taken_is_told():
    read = read_map(json.loads(json.dumps(PRICE_MAP), parse_float=Decimal))
    amounts = {(key.model, key.unit, key.via): rate.amount for key, rate in read.rates.items()}
    assert amounts == {
        ("small-1", "input_tokens", "live"): 150_000,
        ("small-1", "output_tokens", "live"): 600_000,
        ("small-1", "cached_tokens", "live"): 75_000,
        ("small-1", "input_tokens", "batch"): 75_000,
        ("small-1", "output_tokens", "batch"): 300_000,
        ("flash", "input_tokens", "live"): 100_000,
        ("flash", "output_tokens", "live"): 400_000,
    }
    assert read.rates[Key("openai", "small-1", "output_tokens", "live")].most_tokens == 16_384
    assert set(read.left_out) == {"pictures", "broken", "below", "nobodys"}
    assert read.dearer == ["small-1"]


@pytest.mark.usefixtures("fresh_prices")
def test_loading_stores_what_is_new_and_changed_from_now_on_and_a_dry_run_stores_nothing(tmp_path, capsys):
    path = tmp_path / "prices.json"
    path.write_text(json.dumps(PRICE_MAP))
    call_command("load_prices", path, "--dry-run")
    assert "7 prices would be new, 0 would be changed, 0 as they were; 4 models left out" in capsys.readouterr().out
    assert not Price.objects.exists()
    call_command("load_prices", path, "--valid-from", "2026-01-01")
    changed = PRICE_MAP["small-1"] | {"input_cost_per_token": 2e-07}
    path.write_text(json.dumps(PRICE_MAP | {"small-1": changed}))
    call_command("load_prices", path, "--provider", "openai")
    told = capsys.readouterr().out
    assert "changed: openai small-1 input_tokens: 0.15 USD a million before, 0.20 USD now" in told
    assert "0 prices new, 1 changed, 4 as they were" in told
    history = Price.objects.filter(model="small-1", unit="input_tokens", via="live").order_by("valid_from")
    assert list(history.values_list("amount", flat=True)) == [150_000, 200_000]
    assert AuditEntry.objects.filter(action="load_prices").count() == 2
    call_command("load_prices", path, "--as", "openai=openai-eu", "--provider", "openai")
    assert Price.objects.filter(provider="openai-eu").count() == 5


@pytest.mark.usefixtures("fresh_prices")
@pytest.mark.parametrize("text", ["{", "[]", '{"a": 1}', None])
def test_a_bad_file_is_refused_and_nothing_is_half_done(tmp_path: Path, text):
    path = tmp_path / "prices.json"
    if text is not None:
        path.write_text(text)
    with pytest.raises(CommandError, match=r"is no|cannot be read"):
        call_command("load_prices", path)
    assert not Price.objects.exists()


def a_call(usage: Usage, *, job: UUID | None = None, token: int = 1, model: str = "small-1") -> MadeCall:
    payer = Payer(make_project("acme").pk, None, None)
    return MadeCall(job or uuid4(), token, payer, "openai", model, NOW.timestamp(), usage)


@pytest.mark.usefixtures("fresh_prices")
def test_a_call_is_written_once_and_a_corrected_price_does_not_rewrite_it():
    set_price("input_tokens", 2_000_000)
    call = a_call(Usage(500, 0, None))
    for _ in range(2):
        record_calls([call])
    record_calls([call._replace(usage=Usage(9_999, 0, None))])
    Price.objects.update(amount=9)
    prices.forget()
    record_calls([call])
    assert list(Spend.objects.values_list("money", "input_tokens", "kind")) == [(1_000, 500, "call")]


@pytest.mark.django_db(transaction=True)
def test_a_missing_price_is_told_once_a_model_and_filled_when_there_is_one():
    prices.forget()
    record_calls([a_call(Usage(500, 0, None)), a_call(Usage(1_000, 0, None)), a_call(Usage(7, 0, None), model="odd")])
    alerts = QuotaAlert.objects.filter(kind="missing_price", resolved_at=None)
    assert sorted(alerts.values_list("subject", flat=True)) == ["openai/odd/live", "openai/small-1/live"]
    assert reports.total(Spend.objects.all()).unpriced == 3
    set_price("input_tokens", 2_000_000)
    done = price_unpriced(actor="user:1")
    assert (done.filled, done.left) == (2, 1)
    assert reports.total(Spend.objects.all()).money == 3_000
    assert alerts.get().subject == "openai/odd/live"
