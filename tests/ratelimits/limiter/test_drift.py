"""What providers say of their quotas when they answer: less left than our counter shows is somebody else's use."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from queueops.tenancy import accounts
from queueops.tenancy.models import PLATFORM, Credential, Project
from ratelimits.limiter.counters import usage
from ratelimits.limiter.decide import Call, Settlement, Statement, decide, settle
from ratelimits.limiter.provider_sync import rules_stated
from ratelimits.limits.catalogue import rule_of
from ratelimits.models import Counter, Limit
from ratelimits.rate_headers import StatedQuota, read_quotas
from tests.factories import make_project
from tests.ratelimits.counting import ADA, SERVICE, START, kinds, make_limit, used
from tests.support.cases import every_case

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("no_limits")]

ANTHROPIC = {
    "anthropic-ratelimit-requests-limit": "50",
    "anthropic-ratelimit-requests-remaining": "49",
    "anthropic-ratelimit-input-tokens-limit": "30000",
    "anthropic-ratelimit-input-tokens-remaining": "29000",
    "anthropic-ratelimit-input-tokens-reset": "2026-11-25T00:00:00Z",
    "anthropic-ratelimit-tokens-limit": "30000",
    "anthropic-ratelimit-tokens-remaining": "29000",
}


def stated(remaining: float | None, *, unit: str = "requests", capacity: float = 10, window: float | None = None):
    return Statement(ADA, (StatedQuota("", unit, capacity, window, remaining),))


def counted(limit: Limit, key: str = "project:acme", *, now: float = START) -> float:
    """What a counter shows as used, others' part with it."""
    return usage(rule_of(limit), key, Counter.objects.get(limit=limit, key=key).state, now)[0]


def answered(statement: Statement, holder: str = "h") -> None:
    settle([Settlement(holder, statement=statement)])


@pytest.fixture(autouse=True)
def at_the_start(clock):
    clock.at = START
    accounts.forget()
    yield
    accounts.forget()


def show(*shown: tuple[str, str], project: str = "acme") -> None:
    """Credentials of SERVICE that a project may use: each with its provider's project and user."""
    owner, _ = Project.objects.get_or_create(pk=project, defaults={"name": project})
    for number, (quota_project, quota_user) in enumerate(shown):
        row = Credential.objects.create(
            name=f"{project}-{number}", service=SERVICE, quota_project=quota_project, quota_user=quota_user, secret=b""
        )
        row.projects.add(owner)
    accounts.forget()


@every_case(("remaining", "expected"), [(9, 3), (7, 3), (6, 4), (2, 8), (None, 3)], undone=True)
def test_no_more_room_is_shown_than_the_provider_says_and_never_more_than_before(remaining, expected):
    limit = make_limit()
    decide([Call(ADA)] * 3)
    answered(stated(remaining))
    answered(stated(remaining))
    assert counted(limit) == expected


def test_calls_granted_after_the_provider_spoke_are_counted_once():
    limit = make_limit()
    decide([Call(ADA)] * 3)
    spoken = stated(4)  # three of ours, three of somebody else
    decide([Call(ADA)] * 2)  # on their way
    answered(spoken)
    assert counted(limit) == 6  # one of somebody else is seen for certain
    answered(stated(2))  # it has those, too
    assert counted(limit) == 8


@every_case("figures", [{"shadow": True}, {"window_seconds": 3600}, {"unit": "in_flight"}], undone=True)
def test_what_no_limit_stands_for_changes_nothing(figures):
    if figures.get("unit"):
        figures = {**figures, "algorithm": "concurrency"}
    limit = make_limit(**figures)
    decide([Call(ADA)])
    answered(stated(0, window=60))
    assert counted(limit) <= 1


def test_a_header_that_names_what_only_we_count_changes_nothing():
    limit = make_limit("slots", unit="in_flight", algorithm="concurrency", capacity=5)
    decide([Call(ADA, holder="h")])
    quotas = tuple(read_quotas({"RateLimit-Policy": '"a";q=1;qu=in_flight', "RateLimit": '"a";r=0'}))
    answered(Statement(ADA, quotas), "other")
    assert counted(limit) == 1


def test_a_quota_without_a_window_is_that_of_the_shortest():
    minute = make_limit("minute", capacity=500, window_seconds=60)
    hour = make_limit("hour", capacity=10_000, window_seconds=3600)
    decide([Call(ADA)])
    answered(stated(399, capacity=500))
    assert counted(hour) == 1
    assert counted(minute) == 101


def test_what_was_said_a_window_ago_closes_nothing():
    limit = make_limit(capacity=100)
    decide([Call(ADA)])
    said = StatedQuota("", "requests", 100, None, 0)
    answered(Statement(ADA, (replace(said, age_seconds=60),)))
    assert counted(limit) == 1
    answered(Statement(ADA, (replace(said, age_seconds=30),)))
    assert counted(limit) == 99


def test_each_unit_is_held_against_its_own_limit():
    units = ("requests", "input_tokens")
    limits = {unit: make_limit(unit.replace("_", "-"), unit=unit, capacity=100) for unit in units}
    decide([Call(ADA, amounts={"input_tokens": 30}, holder="h")])
    quotas = (StatedQuota("", "input_tokens", 100, None, 50), StatedQuota("", "output_tokens", 100, None, 0))
    answered(Statement(ADA, quotas))
    assert [counted(limits[unit]) for unit in units] == [1, 50]


def test_a_token_count_rounded_to_a_thousand_is_no_difference():
    limit = make_limit(unit="input_tokens", capacity=30_000)
    decide([Call(ADA, amounts={"input_tokens": 600}, holder="h")])
    answered(stated(29_000, unit="input_tokens", capacity=30_000))
    assert counted(limit) == 600
    answered(stated(20_000, unit="input_tokens", capacity=30_000))
    assert counted(limit) == 10_500


def test_what_others_used_is_kept_free_for_a_window_and_forgotten_in_the_next(clock):
    limit = make_limit(capacity=100)
    decide([Call(ADA)])
    answered(stated(39, capacity=100))
    assert counted(limit) == 61
    assert counted(limit, now=START + 119) == 60
    assert counted(limit, now=START + 121) == 0
    clock.at = START + 119
    assert kinds(decide([Call(ADA)] * 41)) == "p" * 40 + "d"
    clock.at = START + 121
    assert kinds(decide([Call(ADA)] * 61)) == "p" * 60 + "d"


def test_an_answer_keeps_free_what_it_shows_in_the_same_decision():
    make_limit(capacity=100)
    decide([Call(ADA)])
    found = decide([Call(ADA)] * 41, settlements=[Settlement("h", statement=stated(39, capacity=100))])
    assert kinds(found) == "p" * 39 + "dd"


def test_a_full_quota_of_the_provider_holds_calls_back_before_it_refuses_one():
    make_limit()
    assert kinds(decide([Call(ADA)])) == "p"
    answered(stated(0))
    assert kinds(decide([Call(ADA)])) == "d"


def test_a_bucket_is_lowered_to_what_is_left():
    limit = make_limit(algorithm="token_bucket", capacity=10, refill_per_second=1)
    decide([Call(ADA)])
    answered(stated(2))
    assert used(limit, now=START) == 9


def test_headers_by_unit_are_read_and_the_sum_that_repeats_one_is_left_out():
    found = {quota.unit: (quota.capacity, quota.remaining) for quota in read_quotas(ANTHROPIC)}
    assert found == {"requests": (50, 49), "input_tokens": (30_000, 29_000)}
    openai = {
        "x-ratelimit-limit-tokens": "30000",
        "x-ratelimit-remaining-tokens": "12",
        "x-ratelimit-reset-tokens": "6m",
    }
    assert read_quotas(openai) == [StatedQuota("tokens", "tokens", 30_000, None, 12, 360)]
    assert read_quotas({"content-type": "text/plain"}) == []


@every_case(
    ("limit", "remaining", "reset", "window"),
    [
        ("10000", "9999", "8.64s", 86_400),
        ("14400", "14399", "6s", 86_400),
        ("10000", "5000", "12h0m0s", 86_400),
        ("5000", "4999", "12ms", None),
        ("500", "499", "120ms", None),
        ("500", "500", "0s", None),
    ],
)
def test_a_quota_that_refills_at_a_days_pace_is_a_days(limit, remaining, reset, window):
    [quota] = read_quotas(
        {
            "x-ratelimit-limit-requests": limit,
            "x-ratelimit-remaining-requests": remaining,
            "x-ratelimit-reset-requests": reset,
        }
    )
    assert quota.window_seconds == window


@every_case(
    ("scope", "key", "credentials", "is_heard"),
    [
        ("global", "*", [("acme", "")], True),
        ("global", "*", [("acme", ""), ("acme", "")], True),  # two keys of one account
        ("global", "*", [("acme", ""), ("globex", "")], False),
        ("global", "*", [("", ""), ("", "")], False),  # nobody says that they are one account
        ("project", "project:acme", [("acme", ""), ("globex", "")], True),
        ("project", "project:acme", [("", ""), ("", "")], False),
        ("user", "user:ada", [("acme", "ada"), ("globex", "bob")], True),
        ("user", "user:ada", [("acme", ""), ("globex", "")], False),
        ("project_user", "project:acme/user:ada", [("acme", ""), ("globex", "")], True),
    ],
    undone=True,
)
def test_what_is_said_of_one_account_closes_nothing_that_counts_several(
    scope: str, key: str, credentials: Sequence[tuple[str, str]], is_heard: bool
):
    show(*credentials)
    limit = make_limit(scope=scope)
    decide([Call(ADA)])
    answered(stated(0))
    assert counted(limit, key) == (10 if is_heard else 1)
    assert bool(rules_stated(stated(0))) is is_heard


def test_keys_that_jobs_bring_along_are_an_account_for_each_project():
    limit = make_limit(scope="global")
    decide([Call(ADA)])
    for project in (PLATFORM, "acme"):
        make_project(project)
    answered(stated(6))
    assert counted(limit, "*") == 4
    make_project("globex")
    accounts.forget()
    answered(stated(0))
    assert counted(limit, "*") == 4
