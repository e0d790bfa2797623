"""Turns between projects, as pure arithmetic; test_claim.py shows that the claim takes them."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jobs.services.claim.fair_share import MAX_OWED, ClassTurns, LaneTurns, Turns
from tests.support.cases import every_case
from tests.support.examples import examples

WEIGHTS = st.sampled_from([0.25, 0.5, 1.0, 2.0, 3.0, 10.0])
NAMES = st.sampled_from("abcde")


def start_of(turns: Turns, project: str) -> float:
    return max(turns.passes.get(project, turns.now), turns.now)


def claim(turns: Turns, backlog: Counter[str], weights: dict[str, float], wanted: int) -> Counter[str]:
    """What choose_jobs.sql does among jobs of one class: the earliest starts, ties to the first name."""
    starts = sorted(
        (start_of(turns, project) + place / weights[project], project)
        for project, waiting in backlog.items()
        for place in range(min(waiting, wanted))
    )
    got = Counter(project for _, project in starts[:wanted])
    turns.served(got, weights)
    backlog.subtract(got)
    return got


@settings(max_examples=examples(200))
@given(
    weights=st.dictionaries(NAMES, WEIGHTS, min_size=2),
    steps=st.lists(
        st.tuples(st.integers(1, 9), st.lists(st.tuples(NAMES, st.integers(1, 20)), max_size=3)), max_size=12
    ),
)
def test_two_projects_with_work_get_claims_by_their_weights_to_within_a_turn_of_each(weights, steps):
    turns, backlog = Turns(), Counter(dict.fromkeys(weights, 0))
    done: Counter[str] = Counter()
    since: dict[str, Counter[str]] = {}
    for wanted, arrivals in steps:
        for project, count in arrivals:
            if project in weights:
                if not backlog[project]:
                    since[project] = Counter(done)
                backlog[project] += count
        # One job at a time: whoever has run dry inside a larger claim was not waiting for all of it.
        for _ in range(wanted):
            done += claim(turns, backlog, weights, 1)
            busy = [project for project in weights if backlog[project]]
            for one in busy:
                for other in busy:
                    begin = max(since[one], since[other], key=Counter.total)
                    shares = [(done[who] - begin[who]) / weights[who] for who in (one, other)]
                    assert abs(shares[0] - shares[1]) <= 1 / weights[one] + 1 / weights[other] + 1e-6


@every_case("wanted", [1, 7, 50])
def test_claims_divide_by_weight_however_many_are_taken_at_once(wanted):
    weights = {"heavy": 10.0, "middle": 3.0, "light": 1.0}
    turns, backlog = Turns(), Counter(dict.fromkeys(weights, 10_000))
    done: Counter[str] = Counter()
    for _ in range(1400 // wanted):
        done += claim(turns, backlog, weights, wanted)
    for project, weight in weights.items():
        assert done[project] == pytest.approx(100 * weight, abs=3)


@settings(max_examples=examples(200))
@given(
    weights=st.dictionaries(NAMES, WEIGHTS, min_size=1),
    before=st.integers(0, 20),
    wanted=st.integers(1, 50),
    weight=WEIGHTS,
)
def test_a_newcomer_waits_for_one_round_at_most(weights, before, wanted, weight):
    turns, backlog = Turns(), Counter(dict.fromkeys(weights, 10_000))
    for _ in range(before):
        claim(turns, backlog, weights, wanted)
    weights["newcomer"], backlog["newcomer"] = weight, 1
    overtaking: Counter[str] = Counter()
    while backlog["newcomer"]:
        overtaking += claim(turns, backlog, weights, 1)
    del overtaking["newcomer"]
    # A project's turn that began before the newcomer came, and those that start at the same time.
    assert not overtaking or all(count <= 1 for count in overtaking.values())


def test_a_project_that_was_idle_does_not_cash_in_its_absence():
    weights = {"old": 1.0, "back": 1.0}
    turns, backlog = Turns(), Counter(old=1000)
    claim(turns, backlog, weights, 500)
    backlog["back"] = 1000
    assert claim(turns, backlog, weights, 100)["back"] in {50, 51}


def test_a_flood_of_its_own_is_not_held_against_a_project_for_longer_than_a_round():
    turns = Turns()
    turns.served({"flood": 1000}, {})
    turns.served({"other": 1}, {})
    backlog = Counter(flood=1000, other=1000)
    assert claim(turns, backlog, {"flood": 1.0, "other": 1.0}, 10) == {"flood": 5, "other": 5}


@settings(max_examples=examples(50))
@given(rounds=st.integers(1, 5), projects=st.integers(1, 200))
def test_it_remembers_no_more_projects_than_had_a_turn_in_this_round(rounds, projects):
    turns = Turns()
    for number in range(rounds):
        for project in range(projects):
            turns.served({f"{number}-{project}": 1}, {})
        assert len(turns.passes) <= projects * (number + 1)
    turns.served({"one": 1}, {})
    turns.served({"one": 1}, {})
    assert set(turns.passes) == {"one"}


@every_case(
    ("granted", "share"),
    [(granted, share) for granted in [[1], [3], [10], [50], [0, 7, 1]] for share in [0.1, 0.25, 1 / 3, 0.0, 1.0]],
)
def test_the_starved_get_their_share_of_claims_to_the_job_however_few_of_a_claim_are_granted(granted, share):
    turns, owed, claims = ClassTurns(share), 0, 0
    for count in granted * 100:
        place = turns.starved_after()
        while place < count:  # as choose_jobs.sql sets them between the others
            owed += 1
            place += 1 + turns.starved_every()
        claims += count
        turns.served({(1, "a"): count}, {})
        assert owed == int(claims * share + 1e-9)


def test_a_claim_that_found_nothing_changes_no_turn():
    turns = Turns()
    turns.served({}, {})
    turns.served({"a": 0}, {})
    assert (turns.passes, turns.now) == ({}, 0.0)
    nobody = ClassTurns()
    nobody.served({}, {})
    assert (nobody.standing(), nobody.nows(), nobody.starved_after()) == ([], [], 9)


def test_what_one_class_gives_wipes_out_nothing_of_what_another_owes():
    turns = ClassTurns()
    turns.served({(2, "flood"): 10}, {})
    for _ in range(50):
        turns.served({(3, "busy"): 1}, {})
    assert turns.standing() == [(2, "flood", 10.0), (3, "busy", 50.0)]
    assert turns.nows() == [0.0, 9.0, 49.0]


def test_a_lane_without_room_is_owed_what_the_others_got_meanwhile():
    turns = LaneTurns()
    turns.wait(["closed", "open"])
    for _ in range(10):
        turns.served({"open": 1})
    turns.wait(["closed", "open"])
    for _ in range(9):
        turns.served({"closed": 1})
        assert turns.passes["closed"] <= turns.passes["open"]


def test_a_lane_is_owed_no_more_than_a_bound_and_nothing_for_the_time_it_had_no_work():
    turns = LaneTurns()
    turns.wait(["busy", "blocked"])
    turns.served({"busy": 10 * MAX_OWED})
    turns.wait(["busy", "blocked", "new"])
    assert turns.passes == {"busy": turns.now + 1, "blocked": turns.now - MAX_OWED, "new": turns.now}
    turns.wait(["busy"])
    turns.wait(["busy", "blocked"])
    assert turns.passes["blocked"] == turns.now
