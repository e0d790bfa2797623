"""What calls cost: whole micro-units, rounded half up once a call; a missing price is told and never taken for 0."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from decimal import Decimal
from fractions import Fraction
from uuid import UUID, uuid4

import pytest
from django.db.models import QuerySet
from hypothesis import given
from hypothesis import strategies as st

from ratelimits.costs import Usage
from ratelimits.models import Price, QuotaAlert, Spend
from ratelimits.money import prices, reports, spend
from ratelimits.money.amounts import MICRO, cost_of, most_of, per_million, shown
from ratelimits.money.spend import MadeCall, Payer, price_unpriced, record_calls, resolve_priced, usage_of
from tests.factories import make_project
from tests.support.cases import every_case

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


@every_case(("usage", "rates", "cost"), TABLE)
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


def set_long_prices(length: int = 200) -> None:
    """One price to 200 tokens of input, the double beyond; of output and of input from a cache as well."""
    for unit, amount in (("input_tokens", MICRO), ("cached_tokens", MICRO // 10), ("output_tokens", 5 * MICRO)):
        for above in (0, length):
            Price.objects.create(
                provider="openai", model="small-1", unit=unit, above_tokens=above, amount=amount * (2 if above else 1),
                valid_from=NOW,
            )  # fmt: skip
    prices.forget()


@pytest.mark.usefixtures("fresh_prices")
@every_case(
    ("usage", "cost"),
    [
        (Usage(200, 0, 10), 250),
        (Usage(201, 0, 10), 502),  # all of it at the higher price, not what is beyond alone
        (Usage(201, 200, 0), 2 + 40),  # what came from a cache is input
        (Usage(0, 0, 201), 1005),  # output makes no input longer
    ],
    undone=True,
)
def test_a_call_whose_input_is_longer_pays_the_price_of_its_length_for_all_of_it(usage, cost):
    set_long_prices()
    assert prices.price_of("openai", "small-1", usage, at=NOW) == cost


@pytest.mark.usefixtures("fresh_prices")
def test_the_newest_price_of_a_length_counts_and_a_unit_without_one_keeps_its_own():
    set_price("input_tokens", MICRO)
    set_price("output_tokens", MICRO)
    for days, amount in ((0, 9), (1, 3)):
        Price.objects.create(
            provider="openai", model="small-1", unit="input_tokens", above_tokens=100, amount=amount * MICRO,
            valid_from=NOW + timedelta(days=days),
        )  # fmt: skip
    prices.forget()
    costs = [prices.price_of("openai", "small-1", Usage(101, 0, 7), at=NOW + timedelta(days=d)) for d in (0, 1)]
    assert costs == [101 * 9 + 7, 101 * 3 + 7]


@given(tokens=st.integers(0, 500), cached=st.integers(0, 500), output=st.integers(0, 500), beyond=st.integers(0, 300))
def test_the_bound_holds_for_every_shorter_input_whichever_length_is_dearer(tokens, cached, output, beyond):
    lengths = (prices.DatedPrice(NOW, 0, 7 * MICRO), prices.DatedPrice(NOW, 200, 3 * MICRO))
    known = prices.PriceList({"input_tokens": lengths, "output_tokens": lengths})
    cost = cost_of(Usage(tokens, min(cached, tokens), output), known.at(NOW, tokens))
    most = most_of(tokens + beyond, output, known.most_at(NOW, tokens + beyond))
    assert cost is not None
    assert most is not None
    assert cost <= most


@pytest.mark.usefixtures("fresh_prices")
def test_what_is_put_into_a_cache_has_a_price_of_its_own_in_the_ledger_too():
    set_price("input_tokens", MICRO)
    set_price("written_tokens", 3 * MICRO)
    call = a_call(Usage(100, None, None, written_tokens=40))
    record_calls([call])
    assert Spend.objects.values_list("money", "written_tokens").get() == (60 + 3 * 40, 40)
    assert most_of(100, 0, prices.price_list("openai", "small-1").most_at(NOW)) == 300
    assert usage_of(Spend.objects.get()) == call.usage


@pytest.mark.usefixtures("fresh_prices")
def test_what_a_cache_keeps_for_an_hour_has_a_price_of_its_own_or_that_of_the_rest():
    set_price("input_tokens", MICRO)
    set_price("written_tokens", 3 * MICRO)
    call = a_call(Usage(100, 10, None, written_tokens=40, written_1h_tokens=30))
    assert prices.price_of("openai", "small-1", call.usage, at=NOW) == 60 + 3 * 40
    set_price("written_1h_tokens", 7 * MICRO)
    record_calls([call])
    assert Spend.objects.values_list("money", "written_1h_tokens").get() == (60 + 3 * 10 + 7 * 30, 30)
    assert usage_of(Spend.objects.get()) == call.usage
    assert most_of(100, 0, prices.price_list("openai", "small-1").most_at(NOW)) == 700
    alone = Usage(100, None, None, written_1h_tokens=30)  # a server that leaves the sum out
    assert prices.price_of("openai", "small-1", alone, at=NOW) == 70 + 7 * 30


@pytest.mark.usefixtures("fresh_prices")
def test_a_live_call_costs_what_the_tier_costs_that_its_answer_states():
    for via, amount in (("live", 4), ("flex", 2), ("priority", 8), ("batch", 1)):
        set_price("input_tokens", amount * MICRO, via=via)
    calls = [a_call(Usage(10, tier=tier)) for tier in ("", "flex", "priority", "batch")]
    by_batch = a_call(Usage(10, tier="priority"))._replace(via="batch")
    odd = a_call(Usage(10, tier="priority"), model="odd")
    record_calls([*calls, by_batch, odd])
    told = {row.job_id: (row.via, row.money) for row in Spend.objects.all()}
    assert [told[call.job_id] for call in (*calls, by_batch, odd)] == [
        ("live", 40), ("flex", 20), ("priority", 80), ("batch", 10), ("batch", 10), ("priority", None),
    ]  # fmt: skip
    alert = open_alerts().get()
    assert (alert.subject, "odd has no price by the priority tier:" in alert.message) == ("openai/odd/priority", True)
    assert not Usage(10, tier="urgent").is_sound


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


def open_alerts() -> QuerySet[QuotaAlert]:
    return QuotaAlert.objects.filter(kind="missing_price", resolved_at=None)


@pytest.mark.usefixtures("fresh_prices")
def test_a_missing_price_is_told_until_every_unit_that_calls_used_has_one():
    set_price("input_tokens", 2_000_000)
    record_calls([a_call(Usage(500, 0, 20)), a_call(Usage(500, 0, 0), model="odd"), a_call(Usage(7, 0, 0))])
    alert = open_alerts().get(subject="openai/small-1/live")
    assert alert.figures["units"] == ["input_tokens", "output_tokens"]
    assert "small-1 has no price of output tokens live:" in alert.message
    assert resolve_priced() == 0
    set_price("output_tokens", 8_000_000, via="batch")
    assert resolve_priced() == 0
    record_calls([a_call(Usage(500, 0, 0), model="odd"), a_call(Usage(0, 0, 9), model="odd")])
    record_calls([a_call(Usage(500, 0, 0), model="odd")])
    set_price("input_tokens", 2_000_000, model="odd")
    assert resolve_priced() == 0, "an earlier call of it lacks a price of output"
    set_price("output_tokens", 8_000_000)
    assert resolve_priced() == 1
    assert open_alerts().get().subject == "openai/odd/live"


@pytest.mark.usefixtures("fresh_prices")
def test_alerts_of_models_that_nobody_prices_keep_no_other_open(monkeypatch):
    monkeypatch.setattr(spend, "FILLED_AT_ONCE", 1)
    record_calls([a_call(Usage(7, 0, 0))])
    alert = open_alerts().get()
    alert.figures.pop("units")  # as before an upgrade
    alert.save()
    record_calls([a_call(Usage(7, 0, 0), model="odd")])
    set_price("input_tokens", 2_000_000)
    assert resolve_priced() == 1
    assert open_alerts().get().subject == "openai/odd/live"


@pytest.mark.usefixtures("fresh_prices")
def test_a_missing_price_is_told_once_a_model_and_filled_when_there_is_one():
    record_calls([a_call(Usage(500, 0, None)), a_call(Usage(1_000, 0, None)), a_call(Usage(7, 0, None), model="odd")])
    alerts = QuotaAlert.objects.filter(kind="missing_price", resolved_at=None)
    assert sorted(alerts.values_list("subject", flat=True)) == ["openai/odd/live", "openai/small-1/live"]
    assert reports.total(Spend.objects.all()).unpriced == 3
    set_price("input_tokens", 2_000_000)
    done = price_unpriced(actor="user:1")
    assert (done.filled, done.left) == (2, 1)
    assert reports.total(Spend.objects.all()).money == 3_000
    assert alerts.get().subject == "openai/odd/live"
