"""Estimates: what is guessed is bounded, what is known is not, and what was learned is shared."""

from __future__ import annotations

import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import pytest
from django.db import connection
from hypothesis import given
from hypothesis import strategies as st

from ratelimits.algorithms.estimates import clamped, p90
from ratelimits.limiter import estimates
from ratelimits.limiter.estimates import Alike
from ratelimits.models import CostEstimate

amounts = st.floats(0, 1e9, allow_nan=False)


@given(known=amounts, unknown=amounts, capacity=st.floats(0.001, 1e9))
def test_a_guess_never_takes_a_call_above_half_the_limit(known, unknown, capacity):
    assert clamped(known + unknown, known, capacity) <= max(known, capacity / 2)


@given(known=amounts, unknown=amounts, capacity=st.floats(0.001, 1e9))
def test_the_reserved_cost_lies_between_the_known_and_the_whole(known, unknown, capacity):
    assert known <= clamped(known + unknown, known, capacity) <= known + unknown


@given(cost=amounts, capacity=st.floats(0.001, 1e9))
def test_a_cost_that_is_no_guess_is_never_cut(cost, capacity):
    assert clamped(cost, None, capacity) == cost
    assert clamped(cost, cost, capacity) == cost


@given(known=st.floats(0, 0.25), unknown=st.floats(0, 0.25))
def test_an_estimate_within_half_the_limit_is_reserved_whole(known, unknown):
    assert clamped(known + unknown, known, 1.0) == known + unknown


def test_a_call_whose_output_is_a_guess_still_fits_while_one_whose_input_is_too_long_does_not():
    assert clamped(1_000 + 200_000, 1_000, 30_000) == 15_000
    assert clamped(31_000 + 64, 31_000, 30_000) == 31_000


@given(samples=st.lists(amounts, min_size=1, max_size=200))
def test_nine_in_ten_samples_are_at_most_the_p90_and_no_smaller_sample_is(samples):
    found = p90(samples)
    assert found in samples
    assert sum(sample <= found for sample in samples) * 10 >= len(samples) * 9
    assert sum(sample < found for sample in samples) * 10 < len(samples) * 9


def test_there_is_no_p90_of_nothing():
    with pytest.raises(ValueError, match="no samples"):
        p90([])


@pytest.fixture
def nothing_cached():
    estimates.forget()
    yield
    estimates.forget()


LIKE = Alike("acme", "openai", "llm.generate", "m")


def record(*costs, alike=LIKE):
    estimates.record_actuals([(alike, cost) for cost in costs])


def learned(alike=LIKE):
    estimates.forget()
    return estimates.learned_unknown(alike)


@pytest.mark.django_db
def test_nothing_is_learned_from_fewer_than_ten_calls(nothing_cached):
    assert learned() is None
    record(*range(9))
    assert learned() is None
    record(100)
    assert learned() == 8


@pytest.mark.django_db
def test_projects_services_kinds_and_models_are_learned_apart(nothing_cached):
    apart = [
        LIKE, LIKE._replace(project="beta"), LIKE._replace(service="own"), LIKE._replace(kind="other"),
        LIKE._replace(model="n"), LIKE._replace(model=None),
    ]  # fmt: skip
    estimates.record_actuals([(alike, float(place)) for place, alike in enumerate(apart)] * 10)
    assert [learned(alike) for alike in apart] == [0, 1, 2, 3, 4, 5]
    assert learned(LIKE._replace(model="")) == 5


@pytest.mark.django_db
def test_only_the_last_two_hundred_calls_count(nothing_cached):
    record(*[1_000] * 200)
    record(*[10] * 150)
    assert learned() == 1_000
    record(*[10] * 31)
    assert learned() == 10
    assert len(CostEstimate.objects.get().samples) == 200


@pytest.mark.django_db
def test_a_call_cheaper_than_what_was_known_counts_as_no_unknown_cost(nothing_cached):
    record(*[-50] * 10)
    assert learned() == 0


@pytest.mark.django_db
def test_what_was_learned_is_read_once_in_a_while(nothing_cached, django_assert_num_queries):
    record(*[7] * 10)
    with django_assert_num_queries(1):
        assert [estimates.learned_unknown(LIKE) for _ in range(100)] == [7] * 100


@pytest.mark.django_db
def test_recording_takes_the_same_few_statements_however_many_calls(nothing_cached, django_assert_num_queries):
    with django_assert_num_queries(5):  # savepoint, insert, lock, update, release
        estimates.record_actuals([(LIKE._replace(kind=f"kind{number % 20}"), 1.0) for number in range(500)])


@pytest.mark.matrix  # with fewer kinds or steps it seldom sees the deadlock
@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("steps", [3, pytest.param(10, marks=pytest.mark.soak)])
def test_writers_at_the_same_moment_lose_no_sample_and_never_deadlock(nothing_cached, steps):
    """Half give the kinds backwards, and all are new to all: without the sorting they would insert crosswise."""
    start = threading.Barrier(4)

    def write(turn):
        try:
            for step in range(steps):
                kinds = [f"kind{step}.{number}" for number in range(100)]
                start.wait(timeout=30)
                for _ in range(2):
                    chosen = kinds[::-1] if turn % 2 else kinds
                    estimates.record_actuals([(LIKE._replace(kind=kind), float(turn)) for kind in chosen])
        except BaseException:
            start.abort()
            raise
        finally:
            connection.close()

    with ThreadPoolExecutor(4) as pool:
        for done in [pool.submit(write, turn) for turn in range(4)]:
            done.result(timeout=60)
    for row in CostEstimate.objects.all():
        assert Counter(row.samples) == {0.0: 2, 1.0: 2, 2.0: 2, 3.0: 2}
    assert CostEstimate.objects.count() == 100 * steps


@pytest.mark.django_db
def test_the_ratio_of_a_model_is_the_median_of_its_recent_calls():
    other = LIKE._replace(model="other")
    few = [(LIKE, ratio) for ratio in (1.2, 1.3, 1.4) * 3]
    estimates.record_actuals([], few)
    assert estimates.measured_ratio(LIKE) is None
    estimates.record_actuals([(LIKE, 5.0)], [(LIKE, 1.3), (other, 9.0)])
    assert estimates.measured_ratio(LIKE) == pytest.approx(1.3)
    assert estimates.measured_ratio(other) is None
