"""One decision over every limit that applies."""

from __future__ import annotations

import math
import threading
from collections import defaultdict
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any

import pytest
from django.db import connection, transaction
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from queueops.site.diagnosis.finding import DoctorVerdict
from queueops.site.diagnosis.upkeep import examine_zones
from ratelimits.algorithms.fixed_window import LOST_SECONDS
from ratelimits.limiter import decide as deciding
from ratelimits.limiter.counters import OpenCounter, Place, lock_counters
from ratelimits.limiter.decide import Call, decide, unfit
from ratelimits.limits import catalogue
from ratelimits.limits.alternatives import Alternative
from ratelimits.models import CallTally, Charge, Counter, Limit
from ratelimits.subjects import counter_id
from tests.ratelimits.counting import (
    ADA,
    BOB,
    START,
    binding,
    change,
    database_time,
    kinds,
    make_limit,
    override,
    retry_at,
    used,
    versions,
)
from tests.support.cases import every_case
from tests.support.drawn_limits import histories, limits, with_limits
from tests.support.processes import wait_for

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("no_limits")]

OTHER = ADA._replace(project="beta")


def test_nothing_is_decided_for_nobody():
    assert decide([]) == []


def test_calls_without_a_limit_proceed_and_leave_no_trace():
    make_limit(service="another")
    [decision] = decide([Call(ADA, holder="h")])
    assert (decision.kind, decision.holds, decision.binding) == ("proceed", False, None)
    assert not Counter.objects.exists()
    assert not CallTally.objects.exists()


# All scopes or none


@every_case("full", ["global", "project", "user", "project_user"], undone=True)
def test_a_call_that_one_scope_refuses_is_charged_to_none_and_nothing_is_written(full):
    for scope in ("global", "project", "user", "project_user"):
        make_limit(scope, scope=scope, capacity=1 if scope == full else 5)
    assert kinds(decide([Call(ADA)])) == "p"
    before = versions()
    [decision] = decide([Call(ADA)])
    assert (decision.kind, binding(decision).limit) == ("defer", full)
    assert versions() == before
    assert CallTally.objects.count() == 1


def test_what_several_limits_grant_is_charged_to_each_of_their_counters():
    limits = [make_limit(scope, scope=scope) for scope in ("global", "project", "user", "project_user")]
    assert kinds(decide([Call(ADA), Call(BOB), Call(OTHER)])) == "ppp"
    expected = [
        {"*": 3},
        {"project:acme": 2, "project:beta": 1},
        {"user:ada": 2, "user:bob": 1},
        {"project:acme/user:ada": 1, "project:acme/user:bob": 1, "project:beta/user:ada": 1},
    ]
    for limit, keys in zip(limits, expected, strict=True):
        assert {key: used(limit, key) for key in keys} == keys
    assert Counter.objects.count() == sum(map(len, expected))


# Order


def test_a_claim_is_granted_in_part_in_the_order_asked():
    make_limit(capacity=3)
    decisions = decide([Call(ADA)] * 5)
    assert kinds(decisions) == "pppdd"
    assert retry_at(decisions[4]) >= retry_at(decisions[3]) > decisions[3].now


def test_a_limit_whose_zone_this_host_does_not_know_holds_its_own_calls_and_no_others():
    lost = make_limit("lost", service="another", algorithm="fixed_window", reset_zone="UTC")
    make_limit("other")
    Limit.objects.filter(pk=lost.pk).update(reset_zone="Mars/Olympus")  # as after its system's zones were replaced
    catalogue.forget()
    held, goes = decide([Call(ADA._replace(service="another")), Call(ADA)])
    assert (held.kind, binding(held).limit, goes.kind) == ("defer", "lost", "proceed")
    assert retry_at(held) == pytest.approx(held.now + LOST_SECONDS, abs=0.01)
    found = examine_zones()
    assert (found.verdict, found.observation) == (DoctorVerdict.FAIL, "limit lost: Mars/Olympus")


def test_denied_calls_are_told_times_behind_each_other():
    make_limit(algorithm="token_bucket", capacity=1, refill_per_second=0.5)
    _, second, third = decide([Call(ADA)] * 3)
    assert second.retry_at == pytest.approx(second.now + 2, abs=0.01)
    assert third.retry_at == pytest.approx(second.now + 4, abs=0.01)


def test_a_refused_large_call_is_not_overtaken_by_small_ones_of_its_counter_but_others_go():
    project = make_limit("project", unit="tokens", capacity=10)
    make_limit("user", unit="tokens", scope="project_user", capacity=10)
    calls = [Call(ADA, 6), Call(ADA, 6), Call(BOB, 1), Call(ADA, 1), Call(OTHER, 1)]
    assert kinds(decide(calls)) == "pdddp"
    assert used(project) == 6
    assert kinds(decide([Call(BOB, 1)])) == "p"


def test_a_call_refused_by_its_users_limit_does_not_close_the_projects():
    make_limit("project", capacity=10)
    make_limit("user", scope="project_user", capacity=1)
    assert kinds(decide([Call(ADA), Call(ADA), Call(BOB), Call(ADA)])) == "pdpd"


# Which limits count a call


@every_case(("figures", "subject", "key"), [
    ({}, ADA, "project:acme"), ({"call_type": "write"}, ADA, "project:acme"), ({"call_type": "read"}, ADA, None),
    ({"call_type": "read"}, ADA._replace(call_type="read"), "project:acme"),
    ({"model": "small"}, ADA, "project:acme"), ({"model": "large"}, ADA, None),
    ({"per_model": True}, ADA, "project:acme/model:small"),
    ({"per_model": True, "scope": "global"}, ADA._replace(model="large"), "*/model:large"),
    ({"scope": "user"}, ADA._replace(user=""), "user:-"), ({"service": "another"}, ADA, None),
    ({"enabled": False}, ADA, None),
], undone=True)  # fmt: skip
def test_a_limit_counts_the_calls_that_it_is_about_under_their_key(figures, subject, key):
    make_limit(**figures)
    assert kinds(decide([Call(subject)])) == "p"
    assert list(Counter.objects.values_list("key", flat=True)) == ([] if key is None else [key])


def test_a_call_counts_as_one_request_and_one_place_and_as_all_its_tokens():
    limits = {unit: make_limit(unit, unit=unit, capacity=100) for unit in ("requests", "tokens")}
    limits["in_flight"] = make_limit("in_flight", unit="in_flight", algorithm="concurrency", capacity=100)
    decide([Call(ADA, cost=30)])
    assert {unit: used(limit) for unit, limit in limits.items()} == {"requests": 1, "tokens": 30, "in_flight": 1}


# Figures


def test_an_override_holds_for_its_key_alone():
    limit = make_limit(capacity=2)
    override(limit, "project:acme", capacity=4)
    assert kinds(decide([Call(ADA)] * 5)) == "ppppd"
    assert kinds(decide([Call(OTHER)] * 5)) == "ppddd"


def test_an_override_may_close_one_key():
    limit = make_limit(capacity=2)
    override(limit, "project:acme", capacity=0)
    assert kinds(decide([Call(ADA), Call(OTHER)])) == "rp"


def test_headroom_is_left_unused():
    make_limit(capacity=10, headroom_percent=20)
    assert kinds(decide([Call(ADA)] * 10)) == "p" * 8 + "dd"


def test_the_cap_of_a_moment_ago_does_not_hold_any_more():
    limit = make_limit(capacity=1)
    assert kinds(decide([Call(ADA)] * 2)) == "pd"
    change(limit, capacity=3)
    assert kinds(decide([Call(ADA)] * 3)) == "ppd"
    change(limit, capacity=2)
    assert kinds(decide([Call(ADA)])) == "d"


@pytest.mark.parametrize("of_a_pool", [False, True])
def test_a_limit_that_is_set_amid_a_decision_counts_from_the_next_on(of_a_pool, monkeypatch):
    limit = make_limit("sooner", capacity=10)
    call = Call(ADA, alternatives=(Alternative("key", 1.0, ADA),) if of_a_pool else ())

    def locked(places: Iterable[Place]) -> dict[str, OpenCounter]:
        counters = lock_counters(places)
        make_limit("later", capacity=1)
        monkeypatch.undo()
        return counters

    monkeypatch.setattr(deciding, "lock_counters", locked)
    assert kinds(decide([call] * 3)) == "ppp"
    assert used(limit) == 3
    assert kinds(decide([call] * 2)) == "pd"


# Shadow limits


def test_a_shadow_limit_counts_what_it_would_refuse_and_blocks_nothing():
    limit = make_limit(capacity=2, shadow=True)
    assert kinds(decide([Call(ADA)] * 5)) == "ppppp"
    assert Counter.objects.get().shadow_denials == 3
    assert used(limit) == 5


@every_case("figures", [{"capacity": 0}, {"unit": "tokens", "capacity": 5}], undone=True)
def test_what_a_shadow_limit_would_reject_goes_too(figures):
    make_limit(shadow=True, **figures)
    assert kinds(decide([Call(ADA, cost=9)])) == "p"
    assert unfit(Call(ADA, cost=9)) is None


def test_a_shadow_limit_that_cools_down_holds_until_then_as_its_provider_said():
    make_limit(shadow=True)
    decide([Call(ADA)])
    cool_down(60)
    assert kinds(decide([Call(ADA)])) == "t"
    Counter.objects.update(blocked_until=None)
    assert kinds(decide([Call(ADA)])) == "p"
    assert Counter.objects.get().shadow_denials == 0


def test_a_shadow_limit_does_not_count_what_another_limit_refused_and_no_refusal_is_written():
    make_limit("shadow", capacity=1, shadow=True)
    make_limit("real", capacity=1)
    decide([Call(ADA)])
    before = versions()
    assert kinds(decide([Call(ADA)] * 3)) == "ddd"
    assert versions() == before


# Cooling and pressure


def cool_down(seconds: float, **figures: Any) -> float:
    until = database_time() + seconds
    Counter.objects.update(
        blocked_until=datetime.fromtimestamp(until, UTC), blocked_reason="svc refused: Quota", **figures
    )
    return until


def test_a_counter_that_cools_down_lets_nothing_go_until_its_end():
    make_limit(capacity=5)
    decide([Call(ADA)])
    until = cool_down(60)
    [decision] = decide([Call(ADA)])
    assert decision.kind == "retry"
    assert decision.retry_at == pytest.approx(until, abs=0.001)
    assert (binding(decision).cooling, decision.reason) == (True, "svc refused: Quota")


def test_a_cool_down_that_has_ended_does_not_matter():
    make_limit(capacity=5)
    decide([Call(ADA)])
    cool_down(-1)
    assert kinds(decide([Call(ADA)])) == "p"


def test_the_binding_limit_is_the_one_that_takes_longest():
    make_limit("minute", capacity=1)
    make_limit("hour", capacity=1, window_seconds=3600)
    make_limit("free", capacity=5)
    decide([Call(ADA)])
    [decision] = decide([Call(ADA)])
    assert [one.limit for one in decision.blocking] == ["hour", "minute"]
    assert decision.binding == decision.blocking[0]
    assert decision.retry_at == binding(decision).retry_at == max(one.retry_at or 0 for one in decision.blocking)
    assert (binding(decision).needed, binding(decision).available, binding(decision).capacity) == (1, 0, 1)


def test_pressure_slows_a_limit_and_wears_off(clock):
    clock.at = START
    make_limit(capacity=10)
    decide([Call(ADA)])
    press(0.5)
    assert kinds(decide([Call(ADA)] * 6)) == "ppppdd"
    clock.at = START + 5 * 60
    assert kinds(decide([Call(ADA)] * 11)) == "p" * 10 + "d"


def press(factor: float) -> None:
    Counter.objects.update(pressure=factor, pressure_changed_at=datetime.fromtimestamp(START, UTC))


@every_case("algorithm", ["sliding_window", "token_bucket", "fixed_window"], undone=True)
def test_pressure_rejects_nothing_that_the_full_size_admits(clock, algorithm):
    clock.at = START
    make_limit(unit="tokens", algorithm=algorithm, capacity=10, refill_per_second=0.1)
    decide([Call(ADA, cost=9)])
    press(0.3)
    [busy] = decide([Call(ADA, cost=8)])
    assert busy.kind == "defer"
    assert kinds(decide([Call(ADA, cost=11)])) == "r"
    while busy.kind == "defer":  # the slowed capacity recovers meanwhile, and this call needs all of it
        clock.at = retry_at(busy)
        [busy] = decide([Call(ADA, cost=8)])
    assert clock.at < START + 5 * 60  # and not only when all has recovered


def test_pressure_leaves_a_place_in_flight(clock):
    clock.at = START
    make_limit(unit="in_flight", algorithm="concurrency", capacity=2)
    decide([Call(OTHER)])
    Counter.objects.create(id=counter_id(Limit.objects.get().pk, "project:acme"), limit=Limit.objects.get())
    press(0.1)
    assert kinds(decide([Call(ADA)] * 2)) == "pd"


# Rejections


@every_case(("figures", "cost", "known", "reason"), [
    ({"capacity": 0}, 1, None, "capacity is 0"),
    ({"unit": "tokens", "capacity": 10}, 11, None, "above the limit's capacity of 10"),
    ({"unit": "tokens", "capacity": 10, "headroom_percent": 50}, 6, None, "above the limit's capacity of 5"),
    ({"unit": "tokens", "capacity": 10}, 12, 11, "above the limit's capacity of 10"),
    ({"unit": "tokens", "capacity": 10}, -1, None, "finite number"),
    ({"unit": "tokens", "capacity": 10}, math.nan, None, "finite number"),
    ({"unit": "tokens", "capacity": 10}, math.inf, None, "finite number"),
    ({"unit": "tokens", "capacity": 10}, True, None, "finite number"),
    ({"unit": "tokens", "capacity": 10}, "3", None, "finite number"),
    ({"unit": "tokens", "capacity": 10}, 4, math.nan, "finite number"),
    ({"unit": "tokens", "capacity": 10}, math.inf, 4, "finite number"),
], undone=True)  # fmt: skip
def test_what_no_wait_will_help_is_rejected_and_holds_nobody_up(figures, cost, known, reason):
    make_limit(scope="project_user", **figures)
    everyone = make_limit("everyone", scope="global")
    rejected, other = decide([Call(ADA, cost=cost, known_cost=known), Call(BOB, cost=1)])
    assert (rejected.kind, rejected.retry_at) == ("reject", None)
    assert reason in rejected.reason
    assert other.kind == ("reject" if figures["capacity"] == 0 else "proceed")
    assert used(everyone, "*") == (0 if figures["capacity"] == 0 else 1)


@every_case(
    ("cost", "known", "taken"),
    [(30, None, 30), (80, None, 80), (30, 10, 30), (80, 10, 50), (80, 60, 60), (300, 10, 50), (100, 100, 100)],
    undone=True,
)
def test_a_guess_takes_at_most_half_the_limit_and_what_is_known_is_never_cut(cost, known, taken):
    limit = make_limit(unit="tokens", capacity=100)
    assert kinds(decide([Call(ADA, cost=cost, known_cost=known)])) == "p"
    assert used(limit) == taken


@every_case("call", [Call(ADA, 11), Call(ADA, 20, 11), Call(ADA, 20, 3), Call(ADA, 5), Call(BOB, 11)], undone=True)
def test_what_is_foreseen_to_be_rejected_is_what_is_rejected(call):
    override(make_limit(unit="tokens", capacity=10, scope="user"), "user:bob", capacity=12)
    assert (unfit(call) is not None) is (decide([call])[0].kind == "reject")


# What is kept of a grant


def test_calls_that_hold_something_leave_a_charge_and_others_do_not():
    make_limit("requests")
    make_limit("tokens", unit="tokens", model="small", capacity=100)
    held, unnamed, none = decide(
        [Call(ADA, cost=7, holder="a"), Call(ADA, cost=7), Call(ADA._replace(model="large"), holder="b")]
    )
    assert [one.holds for one in (held, unnamed, none)] == [True, False, False]
    [charge] = Charge.objects.all()
    assert charge.holder == "a"
    assert [entry[1:3] for entry in charge.entries] == [["tokens", 7_000_000]]


def test_a_denied_call_leaves_no_charge():
    make_limit(unit="tokens", capacity=10)
    assert kinds(decide([Call(ADA, 8, holder="a"), Call(ADA, 8, holder="b"), Call(ADA, 11, holder="c")])) == "pdr"
    assert list(Charge.objects.values_list("holder", flat=True)) == ["a"]


def test_grants_are_tallied_by_subject_and_kind():
    make_limit(capacity=3)
    calls = [
        Call(ADA, cost=5, kind="a", waited_seconds=2),
        Call(ADA, cost=7, kind="a", waited_seconds=3),
        Call(ADA, kind="b"),
        Call(ADA, kind="b"),
    ]
    assert kinds(decide(calls)) == "pppd"
    rows = CallTally.objects.order_by("kind").values_list(
        "kind", "project", "user", "model", "calls", "tokens", "waited_seconds"
    )
    assert list(rows) == [("a", "acme", "ada", "small", 2, 12, 5), ("b", "acme", "ada", "small", 1, 1, 0)]


# A window that was full releases in a stream


def test_calls_of_a_queue_leave_a_full_window_in_a_stream_and_other_calls_as_they_come(clock):
    clock.at = START
    make_limit(capacity=100)
    assert kinds(decide([Call(ADA, paced=True)] * 101)) == "p" * 100 + "d"
    clock.at = START + 61.6
    decisions = decide([Call(ADA, paced=True)] * 3)
    assert kinds(decisions) == "pdd"
    assert retry_at(decisions[-1]) == pytest.approx(clock.at + 60 / 102)
    clock.at = retry_at(decisions[-1])
    assert kinds(decide([Call(ADA, paced=True)] * 2)) == "pd"
    clock.at += 2  # late, and not less than it would have been
    assert kinds(decide([Call(ADA, paced=True)] * 5)) == "pppdd"
    assert kinds(decide([Call(ADA)] * 96)) == "p" * 95 + "d"


def test_a_queue_longer_than_a_window_leaves_in_a_stream_from_its_first_call(clock):
    clock.at = START
    make_limit(capacity=100)
    assert kinds(decide([Call(ADA, paced=True, crowded=True)] * 3)) == "pdd"
    assert kinds(decide([Call(ADA)] * 100)) == "p" * 99 + "d"


def test_a_small_window_is_not_worth_a_stream(clock):
    clock.at = START
    make_limit(capacity=19)
    assert kinds(decide([Call(ADA, paced=True, crowded=True)] * 20)) == "p" * 19 + "d"


@pytest.mark.parametrize("crowded", [False, True])
@pytest.mark.parametrize("capacity", [60, 300])
def test_a_stream_uses_the_whole_window_and_never_passes_it(clock, capacity, crowded):
    make_limit(capacity=capacity)
    sent: list[float] = []
    for tick in range(6 * 60 * 2):
        clock.at = START + tick / 2
        sent += [tick / 2] * kinds(decide([Call(ADA, paced=True, crowded=crowded)] * 20)).count("p")
    assert all(sum(at <= other <= at + 60.5 for other in sent) <= capacity for at in dict.fromkeys(sent))
    for begin in range(61, 6 * 60 - 180):  # a queue that was short begins with a burst
        assert sum(begin <= at < begin + 180 for at in sent) >= 0.96 * 3 * capacity


def test_a_window_that_was_not_full_of_late_lets_a_queue_go_in_one_burst(clock):
    clock.at = START
    make_limit(capacity=100)
    decide([Call(ADA, paced=True)] * 101)
    clock.at = START + 4 * 60
    assert kinds(decide([Call(ADA, paced=True)] * 50)) == "p" * 50


def test_a_raised_cap_ends_a_stream_at_once(clock):
    clock.at = START
    limit = make_limit(capacity=100)
    decide([Call(ADA, paced=True)] * 101)
    change(limit, capacity=150)
    assert kinds(decide([Call(ADA, paced=True)] * 51)) == "p" * 50 + "d"


def test_a_call_larger_than_a_streams_share_goes_when_nothing_went_of_late(clock):
    clock.at = START
    make_limit(capacity=100, unit="tokens")
    assert kinds(decide([Call(ADA, cost=100, paced=True)])) == "p"
    clock.at = START + 61.6
    assert kinds(decide([Call(ADA, cost=60, paced=True), Call(ADA, cost=30, paced=True)])) == "pd"
    clock.at += 10
    assert kinds(decide([Call(ADA, cost=30, paced=True)])) == "p"


# The clock


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("locked", ["user:ada", "user:bob"])
def test_the_clock_is_read_after_the_last_lock(locked):
    make_limit(scope="user")
    decide([Call(ADA), Call(BOB)])
    decided: list[float] = []

    def ask() -> None:
        try:
            decided.append(decide([Call(ADA), Call(BOB)])[0].now)
        finally:
            connection.close()

    with transaction.atomic():
        Counter.objects.select_for_update().get(key=locked)
        asking = threading.Thread(target=ask)
        asking.start()
        wait_for(somebody_waits, what="the decision to wait for the lock")
        before = database_time()
    asking.join(timeout=20)
    assert decided[0] >= before


def somebody_waits() -> bool:
    """Whether another transaction waits for this one to end."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT count(*) FROM pg_locks WHERE transactionid = pg_current_xact_id()::xid AND NOT granted")
        return bool(cursor.fetchone()[0])


# Any limits, calls and times


@settings(suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture])
@given(drawn=st.lists(limits, min_size=1, max_size=4), history=histories, data=st.data())
def test_grants_never_pass_what_each_limit_promises_and_are_charged_to_all_or_none(clock, drawn, history, data):
    rules = with_limits(drawn)
    granted: dict[tuple[int, str], list[tuple[float, float]]] = defaultdict(list)
    clock.at = START + data.draw(st.floats(0, 60), label="begins")
    for moves, asked in history:
        clock.at += moves
        before = {name: row for name, (_, row) in versions().items()}
        decisions = decide(asked)
        touched = set()
        for call, decision in zip(asked, decisions, strict=True):
            if decision.kind != "proceed":
                continue
            for rule in catalogue.rules_for(call.subject):
                key = rule.key(call.subject)
                cost = 1.0 if rule.per_call else clamped_cost(call, rule, rule.algorithm(key).capacity)
                granted[rule.id, key].append((clock.at, cost))
                if cost or rule.unit == "tokens":
                    touched.add(counter_id(rule.id, key))
        after = {name: row for name, (_, row) in versions().items()}
        assert {name for name in before if before[name] != after[name]} <= touched
        assert touched <= after.keys()
    for rule in rules:
        for (limit_id, key), grants in granted.items():
            if limit_id == rule.id:
                assert_promise(rule, key, grants)


def clamped_cost(call: Call, rule: catalogue.Rule, capacity: float) -> float:
    """What a call takes of a limit of tokens: what it states of that unit, or what follows from its cost."""
    stated, known = call.amounts.get(rule.unit), call.known_cost
    if stated is not None:
        cached = 0 if rule.counts_cached else call.amounts.get("cached_tokens", 0)
        taken = {"tokens": stated, "input_tokens": max(0, stated - cached), "output_tokens": min(stated, capacity / 2)}
        return taken[rule.unit]
    if known is None:
        return call.cost
    output = min(max(0, call.cost - known), capacity / 2)
    return {"tokens": max(known, min(call.cost, capacity / 2)), "input_tokens": known, "output_tokens": output}[
        rule.unit
    ]


def assert_promise(rule: catalogue.Rule, key: str, grants: list[tuple[float, float]]) -> None:
    limit = rule.algorithm(key)
    most, rate = limit.capacity + 1e-6, rule.rate_per_second(key) or 0.0
    for begin, (first, _) in enumerate(grants):
        total = 0.0
        for at, cost in grants[begin:]:
            total += cost
            match rule.algorithm_name:
                case "sliding_window":
                    assert at - first > (rule.window_seconds or 0) or total <= most
                case "concurrency":
                    assert at - first >= rule.lease_seconds or total <= most
                case "fixed_window":
                    assert at // 10 != first // 10 or total <= most
                case _:
                    assert total <= most + rate * (at - first)
