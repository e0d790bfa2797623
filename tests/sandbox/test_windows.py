import math
from datetime import UTC, datetime
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandbox.quotas import book as books
from sandbox.quotas.book import Quota, QuotaBook, QuotaCost
from sandbox.quotas.windows import WindowRule, midnight_after

# Start at a multiple of ten, five seconds in: where aligned and anchored windows differ.
AT = 1_000_000_005.0
MINUTE = 10.0


def admitted(mode, moments, *, capacity=2):
    window, kept = WindowRule(mode, MINUTE).make(), []
    for moment in moments:
        if window.wait_seconds(1, capacity=capacity, now=AT + moment) == 0:
            window.add(1, AT + moment)
            kept.append(moment)
    return kept


@pytest.mark.parametrize(
    ("mode", "kept"),
    [
        ("aligned", [0, 1, 5, 6, 15, 16]),  # windows start at 5 and 15
        ("anchored", [0, 1, 10, 11, 20]),  # the window of 0 ends at 10, that of 10 at 20
        ("sliding", [0, 1, 10, 11, 20]),
    ],
)
def test_each_kind_of_window_admits_its_own_way(mode, kept):
    assert admitted(mode, [0, 1, 2, 5, 6, 10, 11, 12, 15, 16, 20]) == kept


def test_a_sliding_window_takes_back_call_by_call_what_an_anchored_one_takes_back_at_once():
    moments = [0, 4, 10, 11, 14]
    assert admitted("sliding", moments) == [0, 4, 10, 14]
    assert admitted("anchored", moments) == [0, 4, 10, 11]


@pytest.mark.parametrize(("mode", "wait"), [("aligned", 2.0), ("anchored", 7.0), ("sliding", 9.0)])
def test_the_wait_is_until_there_is_room(mode, wait):
    window = WindowRule(mode, MINUTE).make()
    window.add(2, AT)
    window.add(8, AT + 2)
    now = AT + 3
    assert window.wait_seconds(5, capacity=10, now=now) == pytest.approx(wait)
    assert window.wait_seconds(11, capacity=10, now=now) == math.inf
    assert window.wait_seconds(5, capacity=10, now=now + wait) == 0


@pytest.mark.parametrize("mode", ["aligned", "anchored", "sliding"])
def test_a_cost_is_corrected_as_long_as_it_counts(mode):
    window = WindowRule(mode, MINUTE).make()
    window.add(8, AT)
    window.amend(at=AT, cost=8, actual=3, now=AT + 1)
    assert window.used(AT + 2) == 3
    window.add(5, AT + 12)
    window.amend(at=AT, cost=3, actual=0, now=AT + 12)
    assert window.used(AT + 12) == 5


@given(
    mode=st.sampled_from(["aligned", "anchored", "sliding"]),
    gaps=st.lists(st.floats(0, 8), max_size=60),
    costs=st.lists(st.integers(1, 6), min_size=60, max_size=60),
)
def test_no_window_admits_more_than_its_capacity(mode, gaps, costs):
    window, now, kept = WindowRule(mode, MINUTE).make(), AT, []
    for gap, cost in zip(gaps, costs, strict=False):
        now += gap
        if window.wait_seconds(cost, capacity=7, now=now) == 0:
            window.add(cost, now)
            kept.append((now, cost))
    # Two touching windows of the other kinds may be full at once; within one nothing may exceed it.
    most = 7 if mode == "sliding" else 14
    for start, _ in kept:
        assert sum(cost for at, cost in kept if start <= at < start + MINUTE - 1e-6) <= most


def test_a_day_ends_at_midnight_of_its_zone_also_when_the_clock_changes():
    zone = ZoneInfo("America/Los_Angeles")
    before_change = datetime(2026, 3, 8, 1, 0, tzinfo=zone).timestamp()
    assert midnight_after(before_change, zone) - before_change == 22 * 3600
    midnight = datetime(2026, 6, 1, 7, 0, tzinfo=UTC).timestamp()
    window = WindowRule("aligned", 86_400, "America/Los_Angeles").make()
    window.add(5, midnight - 60)
    assert window.wait_seconds(1, capacity=5, now=midnight - 59) == 59
    assert window.wait_seconds(1, capacity=5, now=midnight) == 0


def charges(*, requests=10, tokens=100, cost=10, mode="sliding", key="p1"):
    rule, owner = WindowRule(mode, MINUTE), (("project", key),)
    return [
        QuotaCost(Quota("llm", "RPM", "requests", requests, rule), owner),
        QuotaCost(Quota("llm", "TPM", "tokens", tokens, rule), owner, cost),
    ]


def test_a_call_is_charged_under_all_its_quotas_or_under_none():
    book = QuotaBook()
    assert book.charge(charges(cost=60), AT) == ()
    [violation] = book.charge(charges(cost=50), AT)
    assert (violation.charge.quota.name, violation.used, violation.wait_seconds) == ("TPM", 60, MINUTE)
    assert [quota["used_now"] for quota in book.report("llm", AT)["quotas"]] == [1, 60]


def test_rejected_calls_count_as_requests_but_not_as_tokens():
    book = QuotaBook()
    book.charge(charges(requests=2, tokens=10), AT, rejected_calls_count=True)
    for _ in range(2):
        assert len(book.charge(charges(requests=2, tokens=10), AT + 1, rejected_calls_count=True)) >= 1
    report = {quota["quota"]: quota for quota in book.report("llm", AT + 1)["quotas"]}
    assert (report["RPM"]["used_now"], report["TPM"]["used_now"]) == (3, 10)
    assert (report["RPM"]["accepted_calls"], report["RPM"]["rejected_calls"]) == (1, 1)
    assert report["TPM"]["rejected_calls"] == 2


def test_the_report_shows_each_window_and_the_fullest_interval():
    book = QuotaBook()
    for moment in (0, 1, 4, 6, 16):
        book.charge(charges(mode="aligned"), AT + moment)
    report = book.report("llm", AT + 16)["quotas"][0]
    assert [(span["starts_at"] - AT, span["used"]) for span in report["windows"]] == [(-5, 3), (5, 1), (15, 1)]
    assert (report["peak"], report["accepted_cost"], report["used_now"]) == (4, 5, 1)


def test_clearing_the_figures_gives_no_room_back():
    book = QuotaBook()
    book.charge(charges(requests=1), AT)
    book.clear_figures()
    assert len(book.charge(charges(requests=1), AT + 1)) == 1
    assert book.report("llm", AT + 1)["quotas"][0]["accepted_calls"] == 0


def test_the_keys_are_bounded_and_those_forgotten_are_counted(monkeypatch):
    monkeypatch.setattr(books, "MAX_COUNTED_KEYS", 20)
    book = QuotaBook()
    for number in range(11):
        book.charge(charges(key=str(number)), AT)
    report = book.report("llm", AT)
    assert (len(report["quotas"]), report["keys_dropped"]) == (20, 2)
