"""The last hour, played again under other figures."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.db.models.functions import Now
from hypothesis import given
from hypothesis import strategies as st

from queueops.core.clock import database_now
from ratelimits.alerts.forecast import pace_of
from ratelimits.algorithms.admission import Algorithm, State
from ratelimits.algorithms.concurrency import Concurrency
from ratelimits.algorithms.fixed_window import FixedWindow
from ratelimits.algorithms.leaky_bucket import LeakyBucket
from ratelimits.algorithms.sliding_window import SlidingWindow
from ratelimits.algorithms.token_bucket import TokenBucket
from ratelimits.errors import InvalidLimit, NotSimulable
from ratelimits.limiter.calls import Call
from ratelimits.limiter.tallies import write_tallies
from ratelimits.limiter.view.gauges import top_users
from ratelimits.limits.catalogue import rule_of
from ratelimits.models import CallTally, Limit
from ratelimits.subjects import Subject
from ratelimits.tuning import simulate as simulating
from ratelimits.tuning.replay import Ask, replay
from ratelimits.tuning.simulate import Tallied, asks_of, simulate
from tests.ratelimits.one_counter import admit
from tests.support.cases import every_case

START = 1_732_118_400.0
TAKEN = {"input_tokens": 700, "cached_tokens": 500, "output_tokens": 250}

asks = st.lists(st.tuples(st.integers(0, 20), st.integers(1, 3)), min_size=1, max_size=80).map(
    lambda gaps: [
        Ask(START + sum(gap for gap, _ in gaps[: place + 1]) // 4, 1.0, calls) for place, (_, calls) in enumerate(gaps)
    ]
)
PAIRS = st.one_of(
    st.tuples(st.integers(3, 40), st.integers(0, 40)).map(
        lambda caps: (SlidingWindow(caps[0], 60), SlidingWindow(caps[0] + caps[1], 60))
    ),
    st.tuples(st.integers(3, 20), st.integers(0, 20), st.floats(0.05, 5), st.floats(0, 5)).map(
        lambda caps: (TokenBucket(caps[0], caps[2]), TokenBucket(caps[0] + caps[1], caps[2] + caps[3]))
    ),
    st.tuples(st.floats(0.05, 5), st.floats(0, 5)).map(
        lambda rates: (LeakyBucket(1, rates[0]), LeakyBucket(1, rates[0] + rates[1]))
    ),
    st.tuples(st.integers(3, 40), st.integers(0, 40)).map(
        lambda caps: (
            FixedWindow(caps[0], 60, guard_seconds=0.5),
            FixedWindow(caps[0] + caps[1], 60, guard_seconds=0.5),
        )
    ),
)


@given(pair=PAIRS, asked=asks)
def test_under_a_higher_cap_nobody_leaves_later(pair, asked):
    lower, higher = (replay(algorithm, asked) for algorithm in pair)
    assert len(lower.waits) == len(higher.waits) == len(asked)
    for (before, _), (after, _) in zip(lower.waits, higher.waits, strict=True):
        assert after <= before + 1e-5  # times are rounded to the microsecond


@given(pair=PAIRS, asked=asks)
def test_what_is_played_never_breaks_the_promise_of_its_algorithm(pair, asked):
    algorithm = pair[0]
    played = replay(algorithm, asked)
    state: State = {}
    for (left, calls), ask in zip(played.departures, asked, strict=True):
        assert left >= ask.at
        if not isinstance(algorithm, LeakyBucket):  # whose grants leave later than they are given
            admission = admit(algorithm, state, left, [float(calls)])
            assert admission.granted == 1
            state = admission.state


def test_a_call_that_can_never_fit_is_counted_and_holds_nobody_up():
    played = replay(SlidingWindow(10, 60), [Ask(START, 11.0), Ask(START, 1.0)])
    assert played.rejected == 1
    assert played.waits == [(0.0, 1)]


@every_case("algorithm", [SlidingWindow(0, 60), LeakyBucket(0, 1), Concurrency(0, 60)])
def test_a_cap_of_none_rejects_everything(algorithm):
    assert replay(algorithm, [Ask(START, 1.0, 5)]).rejected == 5


def lived(algorithm: Algorithm, arrivals: list[float]) -> list[Tallied]:
    """The tallies that decisions over these arrivals, each at the first possible time, would have left."""
    rows, waiting, state, clock = [], list(arrivals), dict[str, Any](), arrivals[0]
    while waiting:
        here = [asked for asked in waiting if asked <= clock]
        later = [asked for asked in waiting if asked > clock]
        admission = admit(algorithm, state, clock, [1] * len(here))
        state = admission.state
        if admission.granted:
            gone, waiting = waiting[: admission.granted], waiting[admission.granted :]
            waited = sum(clock - asked for asked in gone)
            asked_at = int(clock - waited / len(gone))
            rows.append(Tallied(Subject("s", "write", "acme"), asked_at, {}, len(gone), waited))
        clock = min([*later[:1], *([admission.retry_at] if admission.retry_at else [])], default=clock)
    return rows


def _tally(**fields: Any) -> CallTally:
    return CallTally(**{"service": "s", "call_type": "write", "project": "acme", "user": "u", **fields})


@given(capacity=st.integers(5, 60), bursts=st.lists(st.tuples(st.integers(0, 90), st.integers(1, 60)), max_size=8))
def test_the_same_cap_makes_the_calls_wait_as_they_did_to_the_second(capacity, bursts):
    algorithm = SlidingWindow(capacity, 60)
    arrivals, at = [START], START
    for gap, calls in bursts:
        at += gap
        arrivals += [at] * calls
    rows = lived(algorithm, arrivals)
    limit = Limit(name="x", service="s", capacity=capacity)
    played = replay(algorithm, asks_of(rows, limit)["project:acme"])
    really = sum(row.waited_seconds for row in rows)
    # The mean of a tally's times of asking is floored to the second.
    assert 0 <= sum(wait * calls for wait, calls in played.waits) - really <= len(arrivals)


@pytest.mark.django_db
class TestTheLastHour:
    @pytest.fixture
    def limit(self) -> Limit:
        return Limit.objects.create(name="sheets-write", service="s", call_type="write", capacity=60)

    def burst(self, calls: int, *, seconds_ago: float = 1800, **fields: Any) -> None:
        tally = _tally(calls=calls, tokens=calls, **fields)
        tally.at = Now() - timedelta(seconds=seconds_ago)
        tally.save()

    def test_a_halved_cap_makes_a_burst_wait_and_a_doubled_one_does_not(self, limit):
        self.burst(60)
        self.burst(60, seconds_ago=1700, project="globex")
        lower, higher = simulate(limit.pk, {"capacity": 30}), simulate(limit.pk, {"capacity": 120})
        assert (lower.calls, lower.keys) == (120, 2)
        assert lower.today.delayed == higher.today.delayed == higher.proposed.delayed == 0
        assert lower.proposed.delayed == 60
        assert 60 <= lower.proposed.p95_wait_seconds <= 62
        assert 60 * 60 <= lower.proposed.total_wait_seconds <= 60 * 62
        assert lower.proposed.longest_wait_seconds == lower.proposed.p95_wait_seconds

    def test_a_call_that_waited_is_played_from_when_it_asked(self, limit):
        self.burst(60)
        self.burst(60, seconds_ago=1735, waited_seconds=60 * 60)
        played = simulate(limit.pk, {"capacity": 120})
        assert played.waited_seconds == 3600
        assert played.today.delayed == 60
        assert 55 <= played.today.p95_wait_seconds <= 62
        assert played.proposed.delayed == 0

    @pytest.mark.parametrize("scope", ["global", "project", "user", "project_user"])
    def test_each_scope_is_played_by_its_own_keys(self, limit, scope):
        Limit.objects.update(scope=scope)
        for project in ("acme", "globex"):
            for user in ("u", "v"):
                self.burst(30, project=project, user=user)
        keys, together = {"global": (1, 120), "project": (2, 60), "user": (2, 60), "project_user": (4, 30)}[scope]
        played = simulate(limit.pk, {"capacity": 30})
        assert played.keys == keys
        assert played.proposed.delayed == keys * max(0, together - 30)

    def test_only_the_calls_that_the_limit_counts_are_played(self, limit):
        self.burst(5)
        self.burst(5, call_type="read")
        self.burst(5, service="other")
        self.burst(5, seconds_ago=3700)
        assert simulate(limit.pk, {}).calls == 5
        assert simulate(limit.pk, {}, hours=2).calls == 10

    def test_a_saturated_key_uses_its_whole_cap(self, limit):
        self.burst(600)
        played = simulate(limit.pk, {"capacity": 120})
        assert played.today.busiest_key == "project:acme"
        assert played.today.utilisation_percent == pytest.approx(100, abs=12)
        assert played.proposed.total_wait_seconds < played.today.total_wait_seconds / 1.9

    def test_what_would_still_wait_at_the_end_is_counted(self, limit):
        self.burst(60, seconds_ago=30)
        assert simulate(limit.pk, {"capacity": 30}).proposed.unfinished == 30

    def test_tokens_are_played_by_what_calls_cost(self):
        limit = Limit.objects.create(name="tpm", service="s", unit="tokens", capacity=30_000)
        self.burst(3)
        CallTally.objects.update(tokens=30_000)
        assert simulate(limit.pk, {}).proposed.delayed == 0
        assert simulate(limit.pk, {"capacity": 20_000}).proposed.delayed == 1
        assert simulate(limit.pk, {"capacity": 9_000}).proposed.rejected == 3

    @pytest.mark.parametrize(
        ("figures", "each"),
        [
            ({"unit": "requests"}, 1),
            ({"unit": "tokens"}, 900),
            ({"unit": "input_tokens"}, 700),
            ({"unit": "input_tokens", "counts_cached": False}, 200),
            ({"unit": "output_tokens"}, 250),
        ],
    )
    def test_each_unit_is_played_by_what_calls_took_of_it(self, figures, each):
        limit = Limit.objects.create(name="x", service="svc", capacity=10 * each, **figures)
        call = Call(Subject("svc", "write", "acme"), cost=900, known_cost=700, amounts=TAKEN, kind="k")
        write_tallies([call] * 10)
        write_tallies([call._replace(cost=0, known_cost=None, amounts={"enqueued_tokens": 10**6})], as_requests=False)
        went = database_now() - 1800
        CallTally.objects.update(at=datetime.fromtimestamp(went, UTC))
        played = simulate(limit.pk, {"capacity": 4 * each})
        assert (played.calls, played.today.delayed, played.proposed.delayed) == (10, 0, 6)
        assert simulate(limit.pk, {"capacity": each - 1}).proposed.rejected == 10
        # Four leave at once, four a window and the slack after the end of their second, two a window later.
        assert 60 <= played.proposed.longest_wait_seconds - 60 <= 64
        [user] = top_users(limit).users
        assert (user.name, user.calls, user.amount) == ("acme", 10, 10 * each)
        rule = rule_of(limit)
        pace = pace_of(rule, "project:acme", now=went + 5, fresh=0, window_seconds=60)
        assert pace == pytest.approx((10 * each / 5, 0), rel=0.001)

    def test_who_enqueued_most_is_told_by_what_batches_took_and_live_calls_are_left_out(self):
        limit = Limit.objects.create(
            name="x", service="svc", capacity=10**9, unit="enqueued_tokens", algorithm="concurrency"
        )
        live = Call(Subject("svc", "write", "acme"), cost=900, known_cost=700, amounts=TAKEN, kind="k")
        write_tallies([live] * 10)
        write_tallies([live._replace(cost=0, known_cost=None, amounts={"enqueued_tokens": 5000})], as_requests=False)
        [user] = top_users(limit).users
        assert (user.calls, user.amount) == (0, 5000)
        with pytest.raises(NotSimulable):
            simulate(limit.pk, {})

    def test_another_unit_is_played_by_its_own_amounts_beside_todays(self):
        limit = Limit.objects.create(name="x", service="svc", capacity=10, unit="requests")
        write_tallies([Call(Subject("svc", "write", "acme"), cost=900, known_cost=700, amounts=TAKEN)] * 10)
        played = simulate(limit.pk, {"unit": "input_tokens", "capacity": 3500})
        assert (played.today.delayed, played.proposed.delayed) == (0, 5)

    def test_calls_that_state_less_than_their_neighbours_of_a_decision_count_by_their_cost(self):
        limit = Limit.objects.create(name="x", service="svc", capacity=10**6, unit="output_tokens")
        said = Call(Subject("svc", "write", "acme"), cost=900, known_cost=700, amounts=TAKEN)
        write_tallies([said, said._replace(amounts={}), said._replace(known_cost=None, amounts={})])
        write_tallies([said._replace(known_cost=None, amounts={})])
        [user] = top_users(limit).users
        assert user.amount == 250 + 200 + 900 + 900

    def test_another_scope_counts_together_what_was_counted_apart(self, limit):
        self.burst(60)
        self.burst(60, project="globex")
        together = simulate(limit.pk, {"scope": "global"})
        assert (together.today.delayed, together.proposed.delayed) == (0, 60)
        Limit.objects.update(scope="global")
        apart = simulate(limit.pk, {"scope": "project"})
        assert (apart.today.delayed, apart.proposed.delayed) == (60, 0)

    @pytest.mark.parametrize("changes", [{"shadow": True}, {"enabled": False}])
    def test_a_limit_that_holds_nothing_back_delays_nobody(self, limit, changes):
        self.burst(600)
        assert simulate(limit.pk, changes).proposed.delayed == 0

    def test_more_calls_than_are_played_one_by_one_are_played_in_groups(self, limit, monkeypatch):
        Limit.objects.update(capacity=600)
        self.burst(6_000)
        alone = simulate(limit.pk, {"capacity": 1_200})
        monkeypatch.setattr(simulating, "MAX_CALLS_PLAYED", 600)
        grouped = simulate(limit.pk, {"capacity": 1_200})
        assert (alone.played_in_groups_of, grouped.played_in_groups_of) == (1, 10)
        assert grouped.proposed.total_wait_seconds == pytest.approx(alone.proposed.total_wait_seconds, rel=0.02)
        assert grouped.proposed.delayed == alone.proposed.delayed

    def test_the_oldest_calls_are_left_out_where_there_are_too_many_and_that_is_said(self, limit, monkeypatch):
        for minute in range(10):
            self.burst(10, seconds_ago=60 * minute + 1)
        monkeypatch.setattr(simulating, "MAX_ROWS_READ", 4)
        played = simulate(limit.pk, {})
        assert (played.calls, played.cut) == (40, True)
        monkeypatch.setattr(simulating, "MAX_ROWS_READ", 400)
        monkeypatch.setattr(simulating, "MAX_GROUPS_PLAYED", 75)
        played = simulate(limit.pk, {})
        assert (played.calls, played.cut) == (70, True)

    def test_an_empty_hour_is_played_too(self, limit):
        played = simulate(limit.pk, {"capacity": 1})
        assert (played.calls, played.proposed.delayed, played.proposed.p95_wait_seconds) == (0, 0, 0.0)

    def test_unsound_figures_and_calls_in_flight_are_not_played(self, limit):
        with pytest.raises(InvalidLimit):
            simulate(limit.pk, {"capacity": -1})
        with pytest.raises(NotSimulable):
            simulate(limit.pk, {"algorithm": "concurrency", "unit": "in_flight"})

    def test_nothing_is_written(self, limit):
        self.burst(600)
        before = list(Limit.objects.values())
        simulate(limit.pk, {"capacity": 1})
        assert list(Limit.objects.values()) == before
