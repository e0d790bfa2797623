"""The cheap choice among the jobs of the only queue: what it chooses is what the choice among all would choose."""

from __future__ import annotations

from datetime import timedelta
from typing import Any
from unittest import mock
from uuid import uuid4

import pytest
from django.contrib.postgres.functions import TransactionNow as Now
from django.db import transaction
from hypothesis import given
from hypothesis import strategies as st

from jobs.features.outages.models import ServiceBreaker
from jobs.models import AgingRule, Job, PauseSwitch
from jobs.services.claim import claim
from jobs.services.claim.claim import claim_jobs
from jobs.services.claim.fair_share import ClassTurns
from jobs.services.claim.scan_cursor import ScanCursor
from jobs.services.finish.claimed import ClaimedJob
from jobs.states import Priority
from queueops.core.sql import run_sql_as
from tests.factories import KIND, SERVICE, make_job, make_jobs, make_project

pytestmark = pytest.mark.django_db

FOR_ALL: dict[str, Any] = {
    "starved_after": 2.0, "starved_every": 2.0, "turn_classes": [2], "turn_projects": ["q"], "turn_passes": [1.0],
    "turn_nows": [0.0, 0.5], "lanes": [], "rooms": [], "passes": [], "resting": [], "flow_projects": [],
    "flow_passes": [], "known_projects": None, "known_priorities": None, "known_since": None, "everywhere": True,
}  # fmt: skip
JOBS = st.fixed_dictionaries(
    {
        "project": st.sampled_from(["p"] * 12 + ["q"]),
        "priority": st.sampled_from([Priority.NORMAL] * 12 + [Priority.LOW]),
        "age": st.integers(0, 60),
        "column": st.sampled_from(
            [{}] * 6
            + [
                {"held": True},
                {"crash_count": 2},
                {"fencing_token": 10**9},  # later than the one that a claim has drawn
                {"lane": "p/x"},
                {"expires_at": Now() - timedelta(seconds=1)},
                {"kind": "test.strange"},
            ]
        ),
    }
)
RULES = st.sampled_from([{}] * 4 + [{"first_after_seconds": 30}, {"promote_after_seconds": 20, "promote_to": "urgent"}])


def chosen(statement: str, **options: Any) -> list[ClaimedJob]:
    given = {"wanted": 5, "strange": [" test.strange"], "most_bytes": 16_000_000, "pool": "", **options}
    rows = run_sql_as(ClaimedJob, "jobs", statement, given, binary=True)
    return [row._replace(token=0) for row in rows]


def as_cheap(**options: Any) -> bool:
    """Whether the cheap choice found something; then it is what the other one finds."""
    cheap = chosen("choose_only_queue", **options)
    assert not cheap or cheap == chosen("choose_jobs", **FOR_ALL, **options)
    return bool(cheap)


@given(jobs=st.lists(JOBS, min_size=1, max_size=25), rule=RULES, most_bytes=st.sampled_from([16_000_000, 200, 1]))
def test_it_chooses_what_the_choice_among_all_does_or_nothing(jobs, rule, most_bytes):
    with transaction.atomic():
        for project, weight in (("p", 1.5), ("q", 1.0)):
            make_project(project, weight=weight)
        AgingRule.objects.filter(tier=Priority.NORMAL).update(**rule)
        for one in jobs:
            job = make_job(project=one["project"], priority=one["priority"])
            columns = {"eligible_since": Now() - timedelta(seconds=one["age"]), **one["column"]}
            Job.objects.filter(pk=job.pk).update(**columns)
        as_cheap(most_bytes=most_bytes)
        transaction.set_rollback(True)


def test_jobs_of_one_queue_are_chosen_by_their_age_with_what_turns_count():
    make_project("p", weight=2.5)
    made = make_jobs(7, project="p")
    for seconds, job in enumerate(made):
        Job.objects.filter(pk=job.pk).update(eligible_since=Now() - timedelta(seconds=seconds))
    assert as_cheap()
    found = chosen("choose_only_queue")
    assert [job.id for job in found] == [job.pk for job in reversed(made)][:5]
    assert {(job.weight, job.tier_class) for job in found} == {(2.5, 2)}


@pytest.mark.parametrize("other", [{"project": "q"}, {"project": "a"}, {"priority": Priority.URGENT}])
def test_where_a_second_queue_has_work_it_chooses_nothing(other):
    make_job(project="p")
    assert as_cheap()
    make_job(**{"project": "p", **other})
    assert not as_cheap()


@pytest.mark.parametrize(
    ("scope", "key"), [("global", ""), ("project", "p"), ("kind", KIND), ("service", SERVICE), ("kind", "another")]
)
def test_where_anything_is_paused_it_chooses_nothing(scope, key):
    make_job(project="p")
    PauseSwitch.objects.create(scope=scope, key=key)
    assert not as_cheap()


def test_where_a_target_does_not_answer_it_chooses_nothing():
    make_job(project="p")
    breaker = ServiceBreaker.objects.create(service=SERVICE, target="another", project_id="p")
    assert as_cheap()
    ServiceBreaker.objects.filter(pk=breaker.pk).update(opened_at=Now())
    assert not as_cheap()


@pytest.mark.parametrize(
    ("rule", "is_cheap"),
    [
        ({"first_after_seconds": 61}, True),
        ({"first_after_seconds": 59}, False),
        ({"promote_after_seconds": 59, "promote_to": Priority.URGENT}, False),
        ({"first_after_seconds": None, "first_score": None, "step_seconds": None}, True),
    ],
)
def test_where_a_job_has_waited_for_long_enough_to_rise_it_chooses_nothing(rule, is_cheap):
    job = make_job(project="p")
    Job.objects.filter(pk=job.pk).update(eligible_since=Now() - timedelta(seconds=60))
    AgingRule.objects.filter(tier=Priority.NORMAL).update(**rule)
    assert as_cheap() is is_cheap


def test_a_claim_asks_for_the_only_queue_where_the_last_look_found_no_other():
    heads, asked = ScanCursor(lambda: 0.0), []  # no look takes long
    real = claim._choose

    def told(statement: str, *given: Any) -> list[ClaimedJob]:
        asked.append(statement.removeprefix("choose_"))
        return real(statement, *given)

    def claims() -> int:
        asked.clear()
        return len(claim_jobs(uuid4(), wanted=2, lease_seconds=30, turns=ClassTurns(), heads=heads))

    with mock.patch.object(claim, "_choose", told):
        make_jobs(6, project="p")
        assert (claims(), asked) == (2, ["jobs"])
        assert (claims(), asked) == (2, ["only_queue"])
        make_job(project="q")
        assert (claims(), asked) == (2, ["only_queue", "jobs"])
        assert (claims(), asked) == (1, ["jobs"])
        assert (claims(), asked) == (0, ["only_queue", "jobs"])
        assert (claims(), asked) == (0, ["jobs"])


def test_an_urgent_job_of_an_open_lane_is_not_passed_over_for_those_of_the_only_queue():
    heads = ScanCursor(lambda: 0.0)
    make_jobs(6, project="p")
    claim_jobs(uuid4(), wanted=2, lease_seconds=30, turns=ClassTurns(), heads=heads)
    assert heads.had_one_queue
    urgent = make_job(project="p", priority=Priority.URGENT)
    Job.objects.filter(pk=urgent.pk).update(lane=f"{SERVICE}/write//p//p/")
    [first] = claim_jobs(uuid4(), wanted=1, lease_seconds=30, turns=ClassTurns(), heads=heads)
    assert first.id == urgent.pk
