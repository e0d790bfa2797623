"""Effective priority: the specification's table, and the claim's SQL against the pure function."""

from __future__ import annotations

from dataclasses import replace
from uuid import UUID, uuid4

import pytest
from django.db import connection, transaction
from hypothesis import given, settings
from hypothesis import strategies as st

from jobs.aging import DEFAULT_RULES, TierGrowth, age_of_score, class_of, effective_priority
from jobs.models import AgingRule
from jobs.services.claim.claim import claim_jobs
from jobs.services.claim.fair_share import ClassTurns
from jobs.services.explain.position import aging_rules
from jobs.states import Priority
from tests.factories import make_job
from tests.support.cases import every_case
from tests.support.examples import examples

URGENT, NORMAL, LOW = Priority.URGENT, Priority.NORMAL, Priority.LOW
MINUTE, HOUR, DAY = 60, 3600, 86_400
JUST_UNDER = 1e-6  # what the database's clock tells apart

TABLE = [
    (URGENT, 0, 100),
    (URGENT, 30 * DAY, 100),
    (NORMAL, 0, 10),
    (NORMAL, 15 * MINUTE - JUST_UNDER, 10),
    (NORMAL, 15 * MINUTE, 20),
    (NORMAL, 15 * MINUTE + HOUR - JUST_UNDER, 20),
    (NORMAL, 15 * MINUTE + HOUR, 21),
    (NORMAL, 15 * MINUTE + 78 * HOUR, 98),
    (NORMAL, 15 * MINUTE + 79 * HOUR, 99),
    (NORMAL, 15 * MINUTE + 80 * HOUR, 99),
    (NORMAL, 365 * DAY, 99),
    (LOW, 0, 1),
    (LOW, 30 * MINUTE - JUST_UNDER, 1),
    (LOW, 30 * MINUTE, 5),
    (LOW, 60 * MINUTE - JUST_UNDER, 5),
    (LOW, 60 * MINUTE, 6),
    (LOW, 90 * MINUTE, 7),
    (LOW, 2 * HOUR - JUST_UNDER, 7),
    (LOW, 2 * HOUR, 10),
    (LOW, 2 * HOUR + 15 * MINUTE - JUST_UNDER, 10),
    (LOW, 2 * HOUR + 15 * MINUTE, 20),
    (LOW, 2 * HOUR + 15 * MINUTE + HOUR, 21),
    (LOW, 365 * DAY, 99),
]


@every_case(("tier", "age", "score"), TABLE)
def test_a_job_rises_exactly_as_the_table_says(tier, age, score):
    assert effective_priority(tier, age) == score


@pytest.mark.django_db
def test_the_rows_of_a_new_database_are_the_table():
    assert aging_rules() == DEFAULT_RULES


@given(tier=st.sampled_from(Priority), age=st.floats(0, 400 * DAY), more=st.floats(0, 400 * DAY))
def test_waiting_never_lowers_a_job(tier, age, more):
    assert effective_priority(tier, age) <= effective_priority(tier, age + more) <= max(99, DEFAULT_RULES[tier].cap)


@given(tier=st.sampled_from(Priority), score=st.integers(0, 110))
def test_the_age_of_a_score_is_the_first_instant_that_has_it(tier, score):
    age = age_of_score(tier, score)
    if age is None:
        assert effective_priority(tier, 400 * DAY) < score
    else:
        assert effective_priority(tier, age) >= score
        assert age == 0 or effective_priority(tier, age - JUST_UNDER) < score


@given(age=st.floats(0, 400 * DAY), other=st.floats(0, 400 * DAY), tier=st.sampled_from([NORMAL, LOW]))
def test_an_aged_job_never_reaches_the_urgent(tier, age, other):
    assert effective_priority(tier, age) < effective_priority(URGENT, other)
    assert class_of(effective_priority(tier, age)) != URGENT


@every_case(
    ("score", "tier"),
    [(0, LOW), (1, LOW), (9, LOW), (10, NORMAL), (20, NORMAL), (99, NORMAL), (100, URGENT), (1000, URGENT)],
)
def test_a_class_is_the_tier_whose_base_the_score_has_reached(score, tier):
    assert class_of(score) == tier


def test_promotion_happens_once():
    circle = {
        NORMAL: TierGrowth(base=10, cap=50, promote_after=5, promote_to=LOW),
        LOW: TierGrowth(base=1, cap=9, promote_after=5, promote_to=NORMAL),
    }
    assert effective_priority(LOW, 100, circle) == 10
    assert effective_priority(NORMAL, 100, circle) == 1


@st.composite
def any_rules(draw: st.DrawFn) -> dict[Priority, TierGrowth]:
    rules = {}
    for tier, base in zip(Priority, draw(st.permutations([1, 10, 100])), strict=True):
        rule = TierGrowth(base=base, cap=base + draw(st.integers(0, 120)))
        if draw(st.booleans()):
            first = draw(st.integers(0, 2000))
            step = draw(st.none() | st.integers(1, 2000))
            rule = replace(rule, first_after=first, first_score=base + draw(st.integers(0, 60)), step=step)
        if draw(st.booleans()):
            rule = replace(rule, promote_after=draw(st.integers(0, 4000)), promote_to=draw(st.sampled_from(Priority)))
        rules[tier] = rule
    return rules


def ages_of(rules: dict[Priority, TierGrowth]) -> st.SearchStrategy[float]:
    """Ages near the boundaries of these rules, and others."""
    marks: set[float] = {0}
    for rule in rules.values():
        first, step, promoted = rule.first_after or 0, rule.step or 0, rule.promote_after or 0
        marks |= {first, first + step, first + 3 * step, promoted}
        marks |= {promoted + (other.first_after or 0) + (other.step or 0) for other in rules.values()}
    near = st.tuples(st.sampled_from(sorted(marks)), st.sampled_from([-JUST_UNDER, 0.0, JUST_UNDER])).map(sum)
    return (near | st.integers(0, 10_000).map(float)).filter(lambda age: age >= 0)


@pytest.mark.django_db
@settings(max_examples=examples(40))
@given(data=st.data())
def test_the_claim_orders_one_projects_jobs_by_the_same_function(data):
    rules = data.draw(any_rules())
    waiting = data.draw(st.lists(st.tuples(st.sampled_from(Priority), ages_of(rules)), min_size=2, max_size=6))
    with transaction.atomic():
        AgingRule.objects.all().delete()
        AgingRule.objects.bulk_create(_row(tier, rule) for tier, rule in rules.items())
        jobs = {age_job(make_job(priority=tier).pk, age): (tier, age) for tier, age in waiting}
        claimed = [jobs[claim_one()] for _ in jobs]
        transaction.set_rollback(True)

    def place(job: tuple[Priority, float]) -> tuple[int, int, float]:
        score = effective_priority(*job, rules)
        return rules[class_of(score, rules)].base, score, job[1]

    assert [place(job) for job in claimed] == sorted(map(place, claimed), reverse=True)


@pytest.mark.django_db
@every_case(("tier", "age", "score"), [row for row in TABLE if 1 < row[2] < 100], undone=True)
def test_the_claim_prefers_a_job_by_a_single_point_of_the_table(tier, age, score):
    """Against an older one whose tier is fixed at the score and at one point less."""
    rules = {tier: DEFAULT_RULES[tier], LOW: DEFAULT_RULES[LOW], NORMAL: DEFAULT_RULES[NORMAL]}
    for fixed, first in ((score, "other"), (score - 1, "mine")):
        with transaction.atomic():
            AgingRule.objects.all().delete()
            AgingRule.objects.bulk_create(_row(name, rule) for name, rule in rules.items())
            AgingRule.objects.create(tier="fixed", base=fixed, cap=fixed)
            jobs = {age_job(make_job(priority=tier).pk, age): "mine"}
            other = age_job(make_job().pk, age + 1000)
            with connection.cursor() as cursor:
                cursor.execute("UPDATE jobs_job SET priority = 'fixed' WHERE id = %s", [other])
            jobs[other] = "other"
            assert jobs[claim_one()] == first
            transaction.set_rollback(True)


def age_job(job_id: UUID, seconds: float) -> UUID:
    """Move the job back in time instead of waiting; now() stands still inside the test's transaction."""
    with connection.cursor() as cursor:
        cursor.execute(
            "UPDATE jobs_job SET eligible_since = now() - %s * interval '1 microsecond' WHERE id = %s",
            [round(seconds * 1_000_000), job_id],
        )
    return job_id


def claim_one() -> UUID:
    [job] = claim_jobs(uuid4(), wanted=1, lease_seconds=30, turns=ClassTurns(starved_share=0.0))
    return job.id


def _row(tier: str, rule: TierGrowth) -> AgingRule:
    return AgingRule(
        tier=tier,
        base=rule.base,
        cap=rule.cap,
        first_after_seconds=rule.first_after,
        first_score=rule.first_score,
        step_seconds=rule.step,
        promote_after_seconds=rule.promote_after,
        promote_to=rule.promote_to,
    )
