"""What other tests wait and measure by, on a machine that stands still."""

from __future__ import annotations

import pytest

from tests.support import awake, processes
from tests.support.awake import LOOK_SECONDS, AwakeClock
from tests.support.processes import wait_for


class Moments:
    """A clock that goes on when it is told to, or when somebody sleeps by it."""

    def __init__(self) -> None:
        self.at = 1000.0

    def monotonic(self) -> float:
        return self.at

    def sleep(self, seconds: float) -> None:
        self.at += seconds


@pytest.fixture
def moments(monkeypatch: pytest.MonkeyPatch) -> Moments:
    moments = Moments()
    for module in (awake, processes):
        monkeypatch.setattr(module, "time", moments)
    return moments


def test_what_came_about_while_the_machine_stood_still_is_seen(moments: Moments):
    looks: list[bool] = []

    def comes_about_meanwhile() -> bool:
        looks.append(True)
        if len(looks) == 1:
            moments.at += 100
        return len(looks) > 1

    assert wait_for(comes_about_meanwhile, seconds=60)


def test_what_does_not_come_about_is_waited_for_no_longer(moments: Moments):
    with pytest.raises(AssertionError, match="the end did not come about within 60 s"):
        wait_for(lambda: False, seconds=60, what="the end")
    assert moments.at < 1061


def test_a_promise_in_seconds_counts_those_in_which_the_machine_worked(moments: Moments):
    clock = AwakeClock()
    began = clock.now()
    for _ in range(20):
        moments.at += 0.1
        clock.now()
    moments.at += 3
    assert clock.now() - began == pytest.approx(2 + LOOK_SECONDS)
    assert clock.stood_still(since=moments.at - 1) == pytest.approx(1)
    assert clock.stood_still(since=moments.at - 10) == pytest.approx(3 - LOOK_SECONDS)
    assert clock.stood_still(since=moments.at) == 0
