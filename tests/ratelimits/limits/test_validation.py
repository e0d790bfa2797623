"""What is refused of a limit's figures, and what is only warned of."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from ratelimits.algorithms.admission import State
from ratelimits.limits.catalogue import rule_of
from ratelimits.limits.validation import KINDS, check_limit, check_override, figure, safe_figures
from ratelimits.models import Limit
from tests.ratelimits.one_counter import admit
from tests.support.cases import every_case


def limit(**figures: Any) -> Limit:
    return Limit(**{"name": "x", "service": "s", "capacity": 300, **figures})


def bucket(**figures: Any) -> Limit:
    return limit(**{"algorithm": "token_bucket", "refill_per_second": 5, **figures})


def test_the_figures_of_a_plain_window_are_sound():
    found = check_limit(limit())
    assert not found.faults
    assert not found.warnings


def test_a_bucket_that_lets_more_than_the_quota_through_in_a_minute_is_refused_with_figures_that_fit():
    found = check_limit(bucket(provider_quota=300))
    [fault] = found.faults["capacity"]
    assert "Up to 600 calls may pass in one provider window of 60 s: 300 at once and 300 refilled" in fault
    assert "a burst of 9 and a refill of 4.82987 a second, or a sliding window of 300" in fault


def test_a_bucket_whose_quota_is_not_stated_is_only_warned_of():
    found = check_limit(bucket())
    assert not found.faults
    assert "Up to 600 calls" in found.warnings[0]


def test_the_safe_bucket_of_300_a_minute_is_accepted_as_people_type_it():
    assert not check_limit(bucket(capacity=9, refill_per_second=4.85, provider_quota=300)).faults
    assert check_limit(bucket(capacity=9.01, refill_per_second=4.85, provider_quota=300)).faults


@given(
    quota=st.integers(2, 600),
    window=st.sampled_from([1, 30, 60, 100, 3600]),
    unit=st.sampled_from(["requests", "tokens"]),
)
def test_the_figures_offered_for_a_quota_are_accepted_and_keep_it(quota, window, unit):
    given = bucket(provider_quota=quota, window_seconds=window, unit=unit)
    figures = safe_figures(given, quota)
    for name, value in figures.items():
        setattr(given, name, value)
    assert not check_limit(given).faults
    algorithm = rule_of(given).algorithm("*")
    now, state, sent = 1_000_000.0, dict[str, Any](), 0
    while now < 1_000_000.0 + window and sent <= quota:
        answer = admit(algorithm, state, now, [1.0, 1.0])  # until the second is told to wait
        state, sent = answer.state, sent + answer.granted
        now = answer.retry_at or now
    assert sent <= quota


def test_a_quota_too_small_for_a_bucket_is_told_to_take_a_window():
    [fault] = check_limit(bucket(provider_quota=1)).faults["capacity"]
    assert fault.endswith("Take a sliding window of 1.")


@every_case(("figures", "field"), [
    ({"capacity": None}, "capacity"), ({"capacity": float("nan")}, "capacity"),
    ({"capacity": float("inf")}, "capacity"), ({"capacity": -1}, "capacity"), ({"capacity": 1e13}, "capacity"),
    ({"capacity": 0.5}, "capacity"), ({"capacity": 1, "headroom_percent": 10}, "capacity"),
    ({"window_seconds": None}, "window_seconds"), ({"window_seconds": 0}, "window_seconds"),
    ({"window_seconds": 1e9}, "window_seconds"), ({"slack_seconds": 60}, "slack_seconds"),
    ({"provider_quota": 299}, "capacity"), ({"algorithm": "token_bucket"}, "refill_per_second"),
    ({"algorithm": "leaky_bucket"}, "refill_per_second"),
    ({"algorithm": "leaky_bucket", "refill_per_second": 6, "provider_quota": 300}, "refill_per_second"),
    ({"algorithm": "leaky_bucket", "refill_per_second": 1, "unit": "tokens"}, "unit"),
    ({"algorithm": "leaky_bucket", "refill_per_second": 1, "headroom_percent": 5}, "headroom_percent"),
    ({"algorithm": "fixed_window", "window_seconds": None}, "reset_zone"),
    ({"algorithm": "fixed_window", "reset_zone": "Mars/Olympus"}, "reset_zone"),
    ({"algorithm": "fixed_window", "reset_zone": "localtime"}, "reset_zone"),
    ({"algorithm": "fixed_window", "reset_zone": "../etc/passwd"}, "reset_zone"),
    ({"algorithm": "fixed_window", "reset_zone": "America"}, "reset_zone"),
    ({"algorithm": "fixed_window", "guard_seconds": 30}, "guard_seconds"),
    ({"algorithm": "fixed_window", "reset_zone": "UTC", "guard_seconds": 42_000}, "guard_seconds"),
    ({"algorithm": "concurrency"}, "unit"), ({"unit": "in_flight"}, "unit"),
    ({"algorithm": "concurrency", "unit": "in_flight", "lease_seconds": 0}, "lease_seconds"),
    ({"notice_percent": 90}, "warning_percent"),
])  # fmt: skip
def test_figures_that_cannot_be_are_refused_at_their_field(figures, field):
    assert set(check_limit(limit(**figures)).faults) == {field}


@every_case("figures", [
    {"algorithm": "leaky_bucket", "refill_per_second": 5, "provider_quota": 300},
    {"algorithm": "fixed_window", "reset_zone": "America/Los_Angeles", "window_seconds": None},
    {"algorithm": "concurrency", "unit": "in_flight", "window_seconds": None}, {"unit": "tokens", "capacity": 30_000},
    {"capacity": 0},
])  # fmt: skip
def test_figures_that_an_algorithm_can_take_make_a_rule_that_works(figures):
    sound = limit(**figures)
    assert not check_limit(sound).faults
    state: State = {}
    assert admit(rule_of(sound).algorithm("*"), state, 1e9, [1]).granted == (0 if figures.get("capacity") == 0 else 1)


@every_case(("figures", "words"), [
    ({"capacity": 0}, "rejects every call"), ({"shadow": True}, "blocks nothing"),
    ({"algorithm": "fixed_window"}, "twice the cap"),
    ({"unit": "tokens", "capacity": 30_000, "headroom_percent": 10}, "more than 27,000 tokens"),
])  # fmt: skip
def test_what_may_surprise_is_warned_of(figures, words):
    found = check_limit(limit(**figures))
    assert not found.faults
    assert any(words in warning for warning in found.warnings)


@every_case(("scope", "per_model", "key", "fits"), [
    ("global", False, "*", True), ("global", False, "project:acme", False), ("project", False, "project:acme", True),
    ("project", False, "acme", False), ("project", False, "project:acme/user:u", False),
    ("user", False, "user:-", True), ("project_user", False, "project:acme/user:reports@acme.example", True),
    ("project", True, "project:acme/model:gemini-2.5-pro", True), ("project", True, "project:acme", False),
    ("project", False, "project:ac\0me", False),
])  # fmt: skip
def test_an_override_is_for_a_key_that_its_limit_can_count(scope, per_model, key, fits):
    found = check_override(limit(scope=scope, per_model=per_model), key, 10, None)
    assert ("key" not in found.faults) is fits


def test_an_overrides_refill_is_for_buckets_and_its_burst_is_warned_of():
    assert "refill_per_second" in check_override(limit(), "project:acme", 10, 5).faults
    found = check_override(bucket(provider_quota=300), "project:acme", 600, 10)
    assert not found.faults
    assert "Up to 1,200 calls" in found.warnings[0]


def test_every_algorithm_reads_figures_that_limits_have():
    names = {field.name for field in Limit._meta.get_fields()}
    assert set(KINDS) == set(Limit.Algorithm)
    assert all(algorithm.reads <= names for algorithm in KINDS.values())


@every_case(("value", "shown"), [(300.0, "300"), (4.85, "4.85"), (30_000, "30,000"), (59 / 60, "0.983333"), (0, "0")])
def test_figures_are_written_as_people_write_them(value, shown):
    assert figure(value) == shown
