"""The judge of the other tests here: it must see what they claim not to happen."""

import pytest

from tests.support.saturation import Quota, judge

QUOTA = Quota("sliding", 10, per_project=10)


def calls(times, project="p", cause=None):
    return [{"at": at, "project": project, "accepted": cause is None, "cause": cause} for at in times]


def test_even_use_of_the_whole_quota_is_all_of_it_but_for_the_call_that_begins_the_interval():
    assert judge(calls(range(100)), QUOTA).utilisation == pytest.approx(1, abs=1 / 30)


def test_a_pause_shows_however_much_is_used_before_and_after_it():
    found = judge(calls([*range(40), *range(55, 100)]), QUOTA)
    assert found.utilisation == pytest.approx((30 - 15) / 30, abs=1 / 30)


def test_the_worst_project_counts():
    found = judge(calls(range(100)) + calls(range(0, 100, 2), project="q"), QUOTA)
    assert found.utilisation == pytest.approx(0.5, abs=1 / 30)


def test_what_came_after_work_had_stopped_waiting_is_not_held_against_the_limiter():
    assert judge(calls([*range(50), 90]), QUOTA, until=49).utilisation > 0.9


def test_refusals_for_a_quota_are_counted_and_other_errors_are_not():
    found = judge(calls(range(100)) + calls([3, 4], cause="provider_quota") + calls([5], cause="caller"), QUOTA)
    assert found.above_quota == 2


def test_calls_of_less_than_three_windows_prove_nothing():
    with pytest.raises(AssertionError, match="say nothing"):
        judge(calls(range(25)), QUOTA)
