"""32 real connections at one limit: what they are granted together is what one would have been."""

from __future__ import annotations

import random
from collections import Counter as Tally
from collections.abc import Callable
from typing import Any
from uuid import uuid4

import pytest

from jobs.models import Job
from jobs.services.claim.claim import claim_jobs
from jobs.services.claim.fair_share import ClassTurns
from jobs.services.submit.submit import submit_batch
from jobs.states import JobState
from ratelimits.limiter.decide import Call, decide
from ratelimits.limits import catalogue
from ratelimits.models import Counter, Limit
from ratelimits.subjects import Subject
from tests.factories import KIND, PAYLOAD, make_project
from tests.faults.records import database_time
from tests.ratelimits.one_counter import gauge
from tests.support.racing import at_once
from tests.support.saturation import limits_changed

pytestmark = pytest.mark.django_db(transaction=True)

CLAIMERS = 32
SERVICE = "http:127.0.0.1"  # that of PAYLOAD
HOUR = 3600.0
USERS = [f"00000000-0000-4000-8000-00000000000{number}" for number in range(8)]


def limit(name: str, *, capacity: float, scope: str = "project", **figures: Any) -> Limit:
    shape = {"algorithm": "sliding_window", "window_seconds": HOUR, **figures}
    made = Limit.objects.create(name=name, service=SERVICE, scope=scope, capacity=capacity, **shape)
    limits_changed()
    return made


def used(of: Limit) -> dict[str, float]:
    """What is used of a limit, by key."""
    now = database_time().timestamp()
    rule = catalogue.rule_of(of)
    counters = Counter.objects.filter(limit=of)
    return {one.key: round(gauge(rule.algorithm(one.key), one.state, now).used, 3) for one in counters}


def subject(user: str = "", project: str = "acme") -> Subject:
    return Subject(SERVICE, "write", project, user)


def together(ask: Callable[[random.Random], list[str]]) -> Tally[str]:
    """Let every claimer ask as it likes, with dice of its own; how often each kind of decision was made."""
    kinds: list[str] = []
    dice = [random.Random(seed) for seed in range(CLAIMERS)]  # noqa: S311 - draws loads
    at_once(*[lambda one=one: kinds.extend(ask(one)) for one in dice])
    return Tally(kinds)


@pytest.mark.parametrize("at_a_time", [1, 7])
@pytest.mark.parametrize("algorithm", ["sliding_window", "token_bucket", "fixed_window"])
def test_32_deciders_are_granted_exactly_the_capacity(algorithm, at_a_time):
    shared = limit("shared", capacity=50, algorithm=algorithm, refill_per_second=0.0001)

    def ask(dice: random.Random) -> list[str]:
        return [decision.kind for _ in range(5) for decision in decide([Call(subject())] * at_a_time)]

    kinds = together(ask)
    assert kinds == {"proceed": 50, "defer": CLAIMERS * 5 * at_a_time - 50}
    assert used(shared) == {"project:acme": pytest.approx(50, abs=0.1)}


def test_what_is_granted_under_several_limits_is_charged_to_all_of_them_or_to_none():
    users = limit("users", capacity=12, scope="project_user")
    project = limit("project", capacity=60)
    everyone = limit("everyone", capacity=100, scope="global")
    granted: Tally[str] = Tally()

    def ask(dice: random.Random) -> list[str]:
        kinds: list[str] = []
        for _ in range(4):
            calls = [Call(subject(dice.choice(USERS), dice.choice(["acme", "beta"]))) for _ in range(6)]
            decisions = decide(calls)  # each in an order of its own: unsorted locks would deadlock here
            for call, decision in zip(calls, decisions, strict=True):
                if decision.kind == "proceed":
                    granted[f"project:{call.subject.project}/user:{call.subject.user}"] += 1
            kinds += [decision.kind for decision in decisions]
        return kinds

    kinds = together(ask)
    assert kinds["proceed"] == 100
    assert set(kinds) == {"proceed", "defer"}
    assert {key: count for key, count in used(users).items() if count} == dict(granted)
    assert max(granted.values()) <= 12
    by_project: Tally[str] = Tally()
    for key, count in granted.items():
        by_project[key.split("/")[0]] += count
    assert used(project) == dict(by_project)
    assert max(by_project.values()) <= 60
    assert used(everyone) == {"*": 100}


@pytest.mark.parametrize(
    ("figures", "least"),
    [
        pytest.param({"algorithm": "fixed_window"}, 40, id="fixed_window"),
        pytest.param({"algorithm": "concurrency", "unit": "in_flight", "lease_seconds": HOUR}, 40, id="concurrency"),
        pytest.param({"algorithm": "sliding_window"}, 1, id="sliding_window"),  # lets a backlog out in a stream
    ],
)
def test_32_claimers_start_what_a_shared_limit_admits_and_not_one_more(figures, least):
    shared = limit("shared", capacity=40, **figures)
    per_user = limit("users", capacity=9, scope="project_user")
    make_project()
    lines = [f'{{"kind": "{KIND}", "payload": {PAYLOAD}, "user_id": "{USERS[number % 8]}"}}' for number in range(400)]
    submit_batch(lines, project_id="acme", actor="key:test")
    claimed: list[Any] = []

    def claim() -> None:
        turns, executor = ClassTurns(), uuid4()
        for _ in range(6):  # more than once: what one was refused, the next may get
            claimed.extend(claim_jobs(executor, wanted=5, lease_seconds=30, turns=turns))

    at_once(*[claim] * CLAIMERS)
    while rest := claim_jobs(uuid4(), wanted=5, lease_seconds=30, turns=ClassTurns()):
        claimed.extend(rest)
    assert least <= len(claimed) <= 40
    assert len(claimed) == len({job.id for job in claimed})
    assert Job.objects.filter(status=JobState.IN_PROGRESS).count() == len(claimed)
    assert used(shared) == {"project:acme": len(claimed)}
    by_user = Tally(f"project:acme/user:{job.user_id}" for job in claimed)
    assert {key: count for key, count in used(per_user).items() if count} == dict(by_user)
    assert max(by_user.values()) <= 9
