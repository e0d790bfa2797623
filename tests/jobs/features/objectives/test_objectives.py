"""Objectives: attained as an independent count of the jobs says, and told of within a minute when they are missed."""

from __future__ import annotations

import random
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any
from uuid import UUID, uuid4

import psycopg
import pytest
from django.db.models import F
from django.db.models.functions import Now
from django.utils import timezone

from jobs.executor import duties
from jobs.executor.duties import Duties
from jobs.features.objectives import watch
from jobs.features.objectives.change import BadObjective, delete_objective, save_objective
from jobs.features.objectives.objectives import (
    AN_HOUR,
    FIVE_MINUTES,
    WINDOWS,
    ObjectiveStanding,
    Reckoning,
    count_objectives,
    forget_old_reckonings,
    standings_of,
    words_of,
)
from jobs.features.objectives.watch import BURN_RULES, begin_objectives, watch_objectives
from jobs.models import Job, Objective, ObjectiveSample
from jobs.services.operate.job_actions import cancel_jobs, schedule_jobs
from queueops.audit.models import AuditEntry
from queueops.core.clock import database_now
from queueops.core.sql import run_sql
from ratelimits.models import QuotaAlert
from tests.factories import make_jobs, make_project, move_along
from tests.support.cases import every_case
from tests.support.flow import count_all
from tests.support.objectives import MINUTE, an_objective, jobs_that
from tests.support.processes import database_url

pytestmark = pytest.mark.django_db(transaction=True)

LATER = datetime(2100, 1, 1, tzinfo=UTC)


@pytest.fixture(autouse=True)
def counted() -> None:
    count_all()


def standing(objective: Objective, *, at: float | None = None) -> ObjectiveStanding:
    count_all()
    return standings_of([objective], at=at)[objective.pk]


def told() -> list[tuple[str, str]]:
    rows = QuotaAlert.objects.filter(kind="objective", resolved_at=None).order_by("subject")
    return [(row.severity, row.message) for row in rows]


def by_hand(objective: Objective, at: float, freed: set[UUID]) -> Reckoning:
    """What the rows of the jobs say, without the log and without our SQL."""
    due = met = 0
    within = timedelta(seconds=objective.within_seconds or 0)
    since = (at - 86_400 * objective.window_days) // 3600 * 3600
    for job in Job.objects.all():
        if objective.project_id not in {None, job.project_id} or objective.kind not in {"", job.kind}:
            continue
        if objective.service not in {"", job.service}:
            continue
        has_ended_by_itself = job.status in {"completed", "failed"}
        if objective.aim == "succeed":
            deadline, is_due, is_met = job.finished_at or LATER, has_ended_by_itself, job.status == "completed"
        else:
            began_at = min(job.eligible_since, job.first_attempt_at or job.eligible_since)
            deadline = began_at + within
            was_scheduled = job.eligible_since > job.created_at
            is_due = not was_scheduled or job.pk in freed or job.first_attempt_at is not None
            if objective.aim == "start":
                reached = job.first_attempt_at
                was_taken_back = job.status == "cancelled" and job.first_attempt_at is None
            else:
                reached = job.finished_at if has_ended_by_itself else None
                was_taken_back = job.status == "cancelled"
            is_met = reached is not None and reached <= deadline
            if was_taken_back and (job.finished_at or LATER) < deadline:
                is_due = False
        if is_due and since <= deadline.timestamp() < at // 10 * 10:
            due += 1
            met += is_met
    return Reckoning(due, met)


OBJECTIVES: tuple[dict[str, Any], ...] = (
    {"aim": "start"},
    {"aim": "start", "kind": "a.read", "within_seconds": 100},
    {"aim": "start", "project": "beta"},
    {"aim": "end", "within_seconds": 400},
    {"aim": "end", "service": "mail", "project": "acme", "within_seconds": 900},
    {"aim": "succeed", "within_seconds": None},
    {"aim": "succeed", "within_seconds": None, "kind": "b.write"},
)


def a_random_history(chance: random.Random, *, jobs: int = 160, counted_amid: bool = True) -> set[UUID]:
    """Jobs of several kinds, projects and services, at every stage and age; returns the scheduled that were freed."""
    freed: set[UUID] = set()
    for number in range(jobs):
        [pk] = jobs_that(
            began_ago=chance.uniform(0, 1500),
            kind=chance.choice(["a.read", "b.write"]),
            project=chance.choice(["acme", "beta"]),
            service=chance.choice(["mail", "http"]),
        )
        if chance.random() < 0.3:
            schedule_it(chance, pk, freed)
        ways: list[list[str]] = [
            [],
            ["cancel"],
            ["dispatch", "start"],
            ["dispatch", "start", "complete"],
            ["dispatch", "start", "fail"],
            ["dispatch", "start", "cancel"],
            ["dispatch", "start", "retry", "free", "dispatch", "start"],
        ]
        is_free = Job.objects.get(pk=pk).scheduled_at is None
        # One that is not free yet starts when the batch that it went by has its answer.
        for edge in chance.choice(ways if is_free else [[], ["cancel"], ["reject"], ["dispatch", "start", "complete"]]):
            if counted_amid and chance.random() < 0.1:
                count_all()
            free(pk) if edge == "free" else move_along(edge, [pk])
        if counted_amid and number % 40 == 0:
            count_all()
    return freed


def schedule_it(chance: random.Random, pk: UUID, freed: set[UUID]) -> None:
    """As one that was submitted for a later time: still to come, come, put off once more, or called in at once."""
    Job.objects.filter(pk=pk).update(created_at=F("eligible_since") - timedelta(seconds=500))
    fate = chance.choice(["to come", "freed", "freed twice", "now"])
    if fate in {"to come", "now"}:
        later = timezone.now() + timedelta(hours=1)
        Job.objects.filter(pk=pk).update(scheduled_at=later, eligible_since=later)
        if fate == "now":
            schedule_jobs([pk], delay=timedelta(), actor="user:1")
            freed.add(pk)
        return
    freed.add(pk)
    for _ in range(1 + (fate == "freed twice")):
        free(pk)


def free(pk: UUID) -> None:
    """Its time has come."""
    Job.objects.filter(pk=pk).update(scheduled_at=Now())
    run_sql("jobs", "promote_jobs", {"most": 1000, "target": "queued"})


@pytest.mark.parametrize("seed", [1, *(pytest.param(seed, marks=pytest.mark.soak) for seed in (2, 3))])
def test_what_is_attained_is_what_an_independent_count_of_the_jobs_finds(seed):
    chance = random.Random(seed)  # noqa: S311 - draws synthetic data
    for project in ("acme", "beta"):
        make_project(project)
    objectives = [
        an_objective(**{**figures, "project": make_project(name) if (name := figures.get("project")) else None})
        for figures in OBJECTIVES
    ]
    freed = a_random_history(chance)
    count_all()
    for at in (database_now(), database_now() + 700, database_now() + 90_000):
        found = standings_of(objectives, at=at)
        for objective in objectives:
            expected = by_hand(objective, at, freed)
            assert found[objective.pk].whole == expected, (objective.aim, objective.kind, at)
    assert all(one.whole.due and one.whole.missed for one in found.values())


def test_what_was_there_before_an_objective_is_counted_as_it_would_have_been():
    freed = a_random_history(random.Random(4), counted_amid=False)  # noqa: S311 - draws synthetic data
    count_all()
    shift = timedelta(hours=1)  # so that no deadline lies in the seconds left out
    times = ("created_at", "eligible_since", "first_attempt_at", "finished_at")
    Job.objects.update(**{name: F(name) - shift for name in times})
    for figures in ({"aim": "start"}, {"aim": "end"}, {"aim": "succeed", "within_seconds": None}):
        given = {"name": figures["aim"], "percent": 95, "within_seconds": 300, **figures}
        made = save_objective(None, given, actor="user:1")
        assert begin_objectives() == 1
        assert standing(made).whole == by_hand(made, database_now(), freed)
        assert standing(made).whole.missed


def test_a_job_submitted_while_an_objective_begins_is_counted_once_or_not_at_all():
    """Never met without being due: then more would have met it than there were."""
    made = save_objective(None, {"name": "soon", "aim": "start", "percent": 95, "within_seconds": 1}, actor="user:1")
    before = make_jobs(3)
    assert begin_objectives() == 1
    after = make_jobs(4)
    ids = [job.pk for job in [*before, *after]]
    move_along("dispatch", ids)
    move_along("start", ids)
    assert standing(made, at=database_now() + 60).whole == Reckoning(4, 4)


def test_an_objective_does_not_begin_while_somebody_counts_the_log():
    made = save_objective(None, {"name": "x", "aim": "succeed", "percent": 95}, actor="user:1")
    with psycopg.connect(database_url()) as other:
        other.execute("SELECT * FROM jobs_flowcursor FOR UPDATE")
        assert begin_objectives() == 0
    assert begin_objectives() == 1
    made.refresh_from_db()
    assert made.counts_from is not None


def test_a_breach_is_told_within_a_minute_of_the_deadline_that_makes_it():
    """95 % of 101 jobs: the sixth that misses it breaks it."""
    an_objective(name="imports")
    now = database_now()
    jobs_that(began_ago=100, count=95, start=True)
    jobs_that(began_ago=90, count=4)
    jobs_that(began_ago=0, count=2)
    count_all()
    watch_objectives(at=now + 5 * MINUTE - 1)
    assert told() == []
    # Those who look do so every SELDOM_DUTY_SECONDS at the latest: this look comes in time.
    watch_objectives(at=now + 6 * MINUTE - duties.SELDOM_DUTY_SECONDS)
    [(severity, message)] = told()
    assert severity == "warning"
    assert message.endswith("it is broken: 94.059 % of 101 jobs met it in 28 d")


def test_a_stall_is_told_of_within_a_minute_of_its_first_missed_deadlines():
    an_objective(name="imports")
    begun = database_now()
    jobs_that(began_ago=0, count=6, project="acme")
    count_all()
    watch_objectives(at=begun + 5 * MINUTE - 1)
    assert told() == []
    watch_objectives(at=begun + 6 * MINUTE - duties.SELDOM_DUTY_SECONDS)
    [(severity, message)] = told()
    assert severity == "critical"
    assert message == (
        "imports: 95 % start within 5 min: all jobs; 6 of 6 jobs missed it in 1 h, 20.0 times as many as it "
        "allows; it is broken: 0 % of 6 jobs met it in 28 d"
    )


def test_who_keeps_house_tells_of_it_by_itself():
    an_objective(name="imports")
    jobs_that(began_ago=6 * MINUTE, count=6, project="acme")
    count_all()
    keeper = Duties(uuid4(), sweep_seconds=3600, silent_seconds=30, stuck_seconds=30)
    keeper.do(0)
    assert [severity for severity, _ in told()] == ["critical"]


def test_it_ends_when_jobs_start_in_time_again_and_the_budget_suffices():
    objective = an_objective(name="imports", percent=Decimal(90))
    now = database_now()
    jobs_that(began_ago=2 * 3600, count=12)
    jobs_that(began_ago=10, count=100, start=True)
    count_all()
    watch_objectives(at=now - 2 * 3600 + 6 * MINUTE)
    assert [severity for severity, _ in told()] == ["critical"]
    at = now + 6 * MINUTE
    assert standing(objective, at=at).whole == Reckoning(112, 100)
    watch_objectives(at=at)
    assert len(told()) == 1  # 10.7 % have missed it, of 10 % that may
    jobs_that(began_ago=10, count=100, start=True)
    count_all()
    watch_objectives(at=at + 4 * 86_400)
    assert told() == []


def test_objectives_beyond_one_look_have_their_turn_and_keep_their_alerts_meanwhile(monkeypatch):
    monkeypatch.setattr(watch, "OBJECTIVES_A_LOOK", 2)
    monkeypatch.setattr(watch, "OBJECTIVES_A_READ", 1)
    for name in "abcde":
        an_objective(name=name)
    jobs_that(began_ago=6 * MINUTE, count=6)
    count_all()
    seen = []
    for _ in range(4):
        watch_objectives()
        seen.append(len(told()))
    assert seen == [2, 4, 5, 5]


def test_a_deleted_objective_ends_its_alert_and_takes_its_counts_with_it():
    objective = an_objective(name="imports")
    jobs_that(began_ago=6 * MINUTE, count=6)
    count_all()
    watch_objectives()
    assert len(told()) == 1
    delete_objective(objective.pk, actor="user:1", reason="nobody needs it")
    watch_objectives()
    assert (told(), ObjectiveSample.objects.count()) == ([], 0)
    assert AuditEntry.objects.filter(action="delete_objective", reason="nobody needs it").exists()


def test_another_time_or_scope_counts_anew_and_another_share_does_not():
    objective = an_objective(name="imports")
    jobs_that(began_ago=6 * MINUTE, count=6)
    count_all()
    samples = list(ObjectiveSample.objects.values())
    assert samples
    save_objective(objective.pk, {"percent": Decimal(99), "note": "asked for by sales"}, actor="user:1")
    assert list(ObjectiveSample.objects.values()) == samples
    save_objective(objective.pk, {"within_seconds": 60}, actor="user:1")
    assert not ObjectiveSample.objects.exists()
    objective.refresh_from_db()
    assert objective.counts_from is None
    changes = AuditEntry.objects.filter(target=f"objective {objective.pk}").order_by("pk")
    assert [entry.action for entry in changes] == ["create_objective", "change_objective", "change_objective"]
    before, after = changes[2].before or {}, changes[2].after or {}
    assert (before["within_seconds"], after["within_seconds"]) == (300, 60)


@pytest.mark.django_db
@every_case(
    ("figures", "field"),
    [
        ({"percent": Decimal(100)}, "percent"),
        ({"within_seconds": None}, "__all__"),
        ({"window_days": 91}, "window_days"),
        ({"aim": "fly"}, "aim"),
        ({"name": ""}, "name"),
    ],
    undone=True,
)
def test_figures_that_make_no_sense_are_refused(figures, field):
    given = {"name": "x", "aim": "start", "percent": Decimal(95), "within_seconds": 300}
    with pytest.raises(BadObjective) as refused:
        save_objective(None, {**given, **figures}, actor="user:1")
    assert field in refused.value.fields
    assert not Objective.objects.exists()


def at_pace(percent: float, *shares: tuple[int, int, int]) -> ObjectiveStanding:
    """Jobs due and missed by window; in others there were none."""
    recent = {window: Reckoning(0, 0) for window in WINDOWS}
    recent |= {window: Reckoning(due, due - missed) for window, due, missed in shares}
    return ObjectiveStanding(Objective(percent=Decimal(str(percent))), Reckoning(1000, 1000), recent)


@pytest.mark.django_db
@every_case(
    ("standing_now", "is_met"),
    [
        (at_pace(99.9, (AN_HOUR, 10_000, 144), (FIVE_MINUTES, 1000, 15)), True),
        (at_pace(99.9, (AN_HOUR, 10_000, 143), (FIVE_MINUTES, 1000, 15)), False),  # not fast enough over the hour
        (at_pace(99.9, (AN_HOUR, 10_000, 144), (FIVE_MINUTES, 1000, 14)), False),  # over already
        (at_pace(90, (AN_HOUR, 100, 50), (FIVE_MINUTES, 10, 5)), True),  # 14.4 times is more than all
        (at_pace(90, (AN_HOUR, 100, 49), (FIVE_MINUTES, 10, 5)), False),
        (at_pace(99.9, (AN_HOUR, 4, 4), (FIVE_MINUTES, 4, 4)), False),  # too few to speak of a pace
    ],
)
def test_the_fast_rule_wants_the_pace_over_an_hour_and_still_now(standing_now, is_met):
    assert BURN_RULES[0].is_met(standing_now) is is_met


@pytest.mark.django_db
def test_words_name_what_is_wanted_and_of_which_jobs():
    project = make_project("acme")
    one = Objective(percent=Decimal("99.5"), aim="end", within_seconds=90, project=project, kind="a.b", service="mail")
    assert words_of(one) == "99.5 % end within 90 s: jobs of kind a.b for mail of acme"
    assert words_of(Objective(percent=Decimal(90), aim="succeed")) == "90 % succeed: all jobs"


@pytest.mark.django_db
def test_what_no_window_reaches_is_forgotten():
    objective = an_objective()
    for span, hours in ((10, 1), (10, 2), (3600, 2), (3600, 24 * 92)):
        at = timezone.now() - timedelta(hours=hours)
        ObjectiveSample.objects.create(objective=objective, span_seconds=span, at=at, due=1)
    assert forget_old_reckonings() == 2
    assert ObjectiveSample.objects.filter(span_seconds=3600).count() == 1


def test_a_cancelled_job_is_missed_only_if_its_deadline_had_passed():
    objective = an_objective()
    early, late = jobs_that(began_ago=200), jobs_that(began_ago=400)
    cancel_jobs([*early, *late], actor="user:1", reason="not needed")
    assert standing(objective, at=database_now() + 3600).whole == Reckoning(1, 0)


@pytest.mark.django_db
def test_without_objectives_counting_the_log_costs_one_question(django_assert_num_queries: Any):
    with django_assert_num_queries(1):
        count_objectives(0, 10)
