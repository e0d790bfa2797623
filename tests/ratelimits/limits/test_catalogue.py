"""Limits as the limiter reads them."""

from __future__ import annotations

import pytest

from ratelimits.algorithms.concurrency import Concurrency
from ratelimits.algorithms.fixed_window import FixedWindow
from ratelimits.algorithms.leaky_bucket import LeakyBucket
from ratelimits.algorithms.sliding_window import SlidingWindow
from ratelimits.algorithms.token_bucket import TokenBucket
from ratelimits.limiter.decide import Call, decide
from ratelimits.limits import catalogue
from ratelimits.limits.catalogue import Override, rule_of, seconds_to_send
from ratelimits.models import Limit
from tests.ratelimits.counting import ADA, change, kinds, make_limit, override
from tests.support.cases import every_case

KEY = "project:acme"
BUCKET = {"algorithm": "token_bucket", "refill_per_second": 2.0}
LEAKY = {"algorithm": "leaky_bucket", "refill_per_second": 2.0}
HOURLY = {"algorithm": "fixed_window", "window_seconds": 3600.0}
DAILY = {"algorithm": "fixed_window", "reset_zone": "America/Los_Angeles"}
SLOTS = {"algorithm": "concurrency", "unit": "in_flight", "lease_seconds": 30.0}


def limit(**figures):
    return Limit(pk=7, name="limit", service="svc", **{"capacity": 10.0, "window_seconds": 60.0, **figures})


@every_case(("figures", "pressure", "expected"), [
    ({"slack_seconds": 1.0}, 1, SlidingWindow(10, 60, 1.0, ceiling=10)),
    ({}, 0.5, SlidingWindow(5, 60, None, ceiling=10)),
    ({"headroom_percent": 20.0}, 0.5, SlidingWindow(4, 60, None, ceiling=8)),
    (BUCKET, 1, TokenBucket(10, 2, ceiling=10)),
    (BUCKET | {"headroom_percent": 50.0}, 0.5, TokenBucket(2.5, 0.5, ceiling=5)), (LEAKY, 0.5, LeakyBucket(1, 1)),
    (LEAKY | {"capacity": 0.0}, 1, LeakyBucket(0, 2)),
    (HOURLY, 0.5, FixedWindow(5, 3600, guard_seconds=0.5, ceiling=10)),
    (DAILY, 0.5, FixedWindow(10, None, "America/Los_Angeles", guard_seconds=0.5, ceiling=10)),
    (SLOTS, 1, Concurrency(10, 30, ceiling=10)), (SLOTS, 0.01, Concurrency(1, 30, ceiling=10)),
])  # fmt: skip
def test_a_limits_figures_become_an_algorithm(figures, pressure, expected):
    assert rule_of(limit(**figures)).algorithm(KEY, pressure) == expected


@every_case(("figures", "own", "expected"), [
    ({}, Override(4), SlidingWindow(4, 60, None, ceiling=4)),
    ({"headroom_percent": 50.0}, Override(4), SlidingWindow(2, 60, None, ceiling=2)),
    (BUCKET, Override(4), TokenBucket(4, 2, ceiling=4)), (BUCKET, Override(4, 0.5), TokenBucket(4, 0.5, ceiling=4)),
])  # fmt: skip
def test_an_override_replaces_the_figures_of_its_key(figures, own, expected):
    rule = rule_of(limit(**figures), {KEY: own})
    assert rule.algorithm(KEY) == expected
    assert rule.algorithm("project:beta") == rule_of(limit(**figures)).algorithm(KEY)


@every_case(("figures", "pressure", "pace"), [
    ({}, 1, 10 / 61), ({}, 0.5, 5 / 61), (BUCKET, 1, 2), (LEAKY, 0.5, 1), (HOURLY, 1, 10 / 3600),
    (DAILY, 0.5, 10 / 86_400), (SLOTS, 1, None),
])  # fmt: skip
def test_a_queue_drains_at_the_pace_of_its_limit(figures, pressure, pace):
    assert rule_of(limit(**figures)).rate_per_second(KEY, pressure) == pytest.approx(pace)


@every_case(
    ("figures", "hard"),
    [({}, False), (BUCKET, False), (HOURLY, False), (DAILY, True), (HOURLY | {"window_seconds": 86_400.0}, True)],
)
def test_only_a_daily_limit_comes_back_at_a_reset(figures, hard):
    assert rule_of(limit(**figures)).hard_reset is hard


@every_case(("figures", "seconds"), [
    ({}, 0.5), ({"window_seconds": 600.0}, 2.5), ({"slack_seconds": 1.5}, 0.75), ({"slack_seconds": 0.0}, 0.5),
    ({"window_seconds": 4.0}, 0.5), (BUCKET, 0.5), (LEAKY, 0.5), (HOURLY, 0.5), (HOURLY | {"guard_seconds": 2.0}, 1),
    (DAILY, None), (SLOTS, None),
])  # fmt: skip
def test_a_call_is_sent_within_half_its_limits_slack_or_half_a_second(figures, seconds):
    assert rule_of(limit(**figures)).seconds_to_send == seconds


@pytest.mark.django_db
@pytest.mark.usefixtures("no_limits")
def test_the_tightest_limit_says_how_soon_a_call_is_sent():
    assert seconds_to_send(ADA) is None
    make_limit("parallel", **SLOTS)
    catalogue.forget()
    assert seconds_to_send(ADA) is None
    make_limit("hour", window_seconds=3600.0)
    catalogue.forget()
    assert seconds_to_send(ADA) == 15
    make_limit("minute", slack_seconds=2.0)
    make_limit("watched", shadow=True)
    catalogue.forget()
    assert seconds_to_send(ADA) == 1


@pytest.mark.django_db
@pytest.mark.usefixtures("no_limits")
def test_the_limits_are_read_once_for_many_decisions(django_assert_num_queries):
    made = make_limit("on")
    make_limit("off", enabled=False, service="other")
    override(made, KEY, capacity=3)
    with django_assert_num_queries(2):
        assert [rule.name for rule in catalogue.rules()] == ["on"]
        assert [rule.name for rule in catalogue.rules_for(ADA)] == ["on"]
        assert catalogue.limited_services() == {"svc"}


@pytest.mark.django_db
@pytest.mark.usefixtures("no_limits")
def test_a_change_by_another_process_is_seen_after_half_a_second_and_by_this_one_at_once(monkeypatch):
    now = [100.0]
    monkeypatch.setattr("ratelimits.limits.catalogue.time.monotonic", lambda: now[0])
    made = make_limit(capacity=1)
    assert kinds(decide([Call(ADA)] * 2)) == "pd"
    Limit.objects.filter(pk=made.pk).update(capacity=3)
    now[0] += 0.4
    assert kinds(decide([Call(ADA)])) == "d"
    now[0] += 0.2
    assert kinds(decide([Call(ADA)])) == "p"
    change(made, capacity=9)
    assert kinds(decide([Call(ADA)] * 8)) == "p" * 7 + "d"


@pytest.mark.django_db
@pytest.mark.usefixtures("no_limits")
def test_what_was_read_last_is_known_without_the_database(django_assert_num_queries):
    make_limit()
    catalogue.rules()
    catalogue.forget()
    with django_assert_num_queries(0):
        assert [rule.name for rule in catalogue.last_known_rules()] == ["limit"]
