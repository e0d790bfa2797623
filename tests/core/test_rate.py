"""The one rate of what a process lets through, apart from the limiter."""

from __future__ import annotations

from itertools import product

import pytest

from queueops.core.values import rate
from queueops.core.values.rate import MAX_TRACKED, Rate
from tests.support.all_faults import all_faults


class Clock:
    def __init__(self) -> None:
        self.at = 54_321.987_654_321

    def monotonic(self) -> float:
        return self.at


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(rate, "time", clock)
    return clock


def test_a_windows_worth_goes_at_once_and_then_one_a_spacing(clock: Clock):
    with all_faults() as of:
        for amount, window_seconds in product((1, 3, 7, 30, 200, 60_000), (1.0, 60.0)):
            bucket = Rate(amount, window_seconds=window_seconds)
            with of(f"{amount} in {window_seconds} s"):
                assert [bucket.take() for _ in range(amount)] == [0.0] * amount
                for _ in range(5):
                    wait = bucket.take()
                    assert wait == pytest.approx(window_seconds / amount, abs=2e-6)
                    clock.at += wait
                    assert not bucket.take()


def test_each_identity_has_a_bucket_and_may_have_an_amount_of_its_own(clock: Clock):
    bucket = Rate(1)
    assert not bucket.take("ada")
    assert bucket.take("ada")
    assert not bucket.take("bob", 2)
    assert not bucket.take("bob", 2)
    assert bucket.take("bob", 2)


def test_the_oldest_identity_is_forgotten(clock: Clock):
    bucket = Rate(1)
    for number in range(MAX_TRACKED + 1):
        bucket.take(str(number))
    assert bucket.take(str(MAX_TRACKED))
    assert not bucket.take("0")
