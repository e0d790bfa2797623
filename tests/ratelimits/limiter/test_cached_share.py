"""The part of the input that a cache usually has is learned, and not reserved of a limit that leaves it out."""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from random import Random

import pytest

from ratelimits.costs import Usage
from ratelimits.limiter import estimates
from ratelimits.limiter.decide import Call, Settlement, decide
from ratelimits.limiter.estimates import MIN_SAMPLES, Alike, record_actuals, with_cached
from ratelimits.models import CostEstimate
from tests.ratelimits.counting import ADA, START, make_limit

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("no_limits")]

LIKE = Alike("acme", "svc", "llm.generate", "small")
WINDOW = 60.0
CAPACITY = 60_000
RUN_SECONDS = 2.0  # of a call
WINDOWS = 4


@pytest.fixture(autouse=True)
def nothing_kept():
    estimates.forget()
    yield
    estimates.forget()


def taught(*shares: float) -> None:
    record_actuals([], cached_shares=[(LIKE, share) for share in shares])
    estimates.forget()


def test_the_share_that_nine_of_ten_calls_had_is_taken_for_cached():
    asked = {"input_tokens": 1000, "output_tokens": 50}
    taught(*[0.9] * (MIN_SAMPLES - 1))
    assert with_cached(asked, LIKE) == asked
    taught(0.5, *[0.8] * 8, 0.0)
    assert with_cached(asked, LIKE) == {**asked, "cached_tokens": 500}
    assert (
        with_cached(asked, LIKE._replace(project="beta")) == with_cached(asked, LIKE._replace(model="other")) == asked
    )


def test_what_a_call_says_of_its_cache_itself_stands():
    taught(*[0.9] * MIN_SAMPLES)
    for said in ({"input_tokens": 1000, "cached_tokens": 10}, {"output_tokens": 50}, {}):
        assert with_cached(said, LIKE) == said


def test_the_last_calls_alone_are_remembered():
    taught(*[0.9] * estimates.MAX_SAMPLES)
    taught(*[0.1] * estimates.MAX_SAMPLES)
    row = CostEstimate.objects.get()
    assert (len(row.cached_shares), row.cached_p10) == (estimates.MAX_SAMPLES, 0.1)


def test_a_call_that_only_its_cache_makes_fit_is_let_through():
    make_limit(unit="input_tokens", counts_cached=False, capacity=2000)
    call = Call(ADA, amounts={"input_tokens": 9000})
    assert [decide([call])[0].kind] == ["reject"]
    taught(*[0.8] * MIN_SAMPLES)
    assert decide([call._replace(amounts=with_cached(call.amounts, LIKE))])[0].kind == "proceed"


@pytest.mark.parametrize("spread", [0.0, 0.05])
def test_the_quota_of_uncached_input_is_used_and_not_passed(clock, spread):
    """Calls of 9,000 to 11,000 tokens, nine tenths of them cached, more or less, against 60,000 uncached a minute."""
    make_limit(unit="input_tokens", counts_cached=False, capacity=CAPACITY, window_seconds=WINDOW)
    dice = Random(7)  # noqa: S311
    shares = [0.9 + dice.uniform(-spread, spread) for _ in range(600)]
    taught(*shares[:100])
    went = replay(clock, [(dice.randint(9_000, 11_000), share) for share in shares[100:]])
    times, sums = [at for at, _ in went], [0]
    for _, uncached in went:
        sums.append(sums[-1] + uncached)
    most = max(sums[bisect_right(times, at + WINDOW)] - sums[place] for place, at in enumerate(times))
    used = sums[bisect_right(times, START + WINDOWS * WINDOW)] - sums[bisect_right(times, START + WINDOW)]
    assert most <= CAPACITY
    assert used / CAPACITY / (WINDOWS - 1) >= 0.96


def replay(clock, calls: list[tuple[int, float]]) -> list[tuple[float, int]]:
    """Let an endless queue ask, each call as soon as it may go; returns when each went and what it took."""
    clock.at = START
    waiting, running, went = deque(calls), deque[tuple[float, str, Usage]](), list[tuple[float, int]]()
    while clock.at <= START + WINDOWS * WINDOW:
        ended = []
        while running and running[0][0] <= clock.at:
            _, holder, usage = running.popleft()
            ended.append(Settlement(holder, None, usage.amounts()))
        tokens, share = waiting[0]
        holder = f"h{len(went)}"
        amounts = with_cached({"input_tokens": tokens, "output_tokens": 10}, LIKE)
        asked = Call(ADA, holder=holder, amounts=amounts, paced=True, crowded=True)
        [decision] = decide([asked], settlements=ended)
        if decision.kind == "proceed":
            waiting.popleft()
            cached = int(tokens * share)
            running.append((clock.at + RUN_SECONDS, holder, Usage(tokens, cached, 10, tokens + 10)))
            went.append((clock.at, tokens - cached))
            continue
        assert decision.retry_at is not None
        clock.at = min([decision.retry_at, *(end for end, *_ in list(running)[:1])])
    return went
