"""Estimates: what is guessed is bounded, what is known is not, and what was learned is shared."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ratelimits.algorithms.estimates import clamped, p90

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
