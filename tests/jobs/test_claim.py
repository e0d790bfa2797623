"""Which jobs are claimed, in which order, and which never are."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from datetime import timedelta
from uuid import UUID, uuid4

import pytest
from django.contrib.postgres.functions import TransactionNow as Now  # the clock of the hot SQL: stands still here
from django.db import connection, transaction

from jobs.models import POOLED, Job, JobEvent, PauseSwitch, ServiceBreaker
from jobs.services.claim.claim import claim_jobs, claim_new, claim_suspect, promote_due, renew_leases
from jobs.services.claim.fair_share import ClassTurns, Turns
from jobs.services.claim.lanes import LaneGate
from jobs.states import JobState, Priority
from jobs.transitions import Move, move_jobs
from queueops.core.sql import run_sql
from tests.factories import KIND, SERVICE, make_batch, make_job, make_jobs, make_project
from tests.support.cases import every_case

pytestmark = pytest.mark.django_db

MINUTE, HOUR = 60, 3600
NORMAL_CLASS, URGENT_CLASS = 2, 3  # counted from the lowest tier


def claimed_ids(wanted: int = 50, *, turns: ClassTurns | None = None) -> list[UUID]:
    return [job.id for job in claim_jobs(uuid4(), wanted=wanted, lease_seconds=30, turns=turns or ClassTurns(0.0))]


@pytest.mark.parametrize("crashes", [0, 2])
def test_a_jobs_token_only_grows(crashes):
    """A claim draws its token before it locks: a later one may have had the job and given it back meanwhile."""
    job = make_job(crash_count=crashes)
    later = make_job(crash_count=crashes)
    Job.objects.filter(pk=job.pk).update(fencing_token=10**18)
    assert claim_somehow() == [later.pk]
    assert claim_somehow() == []
    Job.objects.update(fencing_token=0)
    assert claim_somehow() == [job.pk]


def one_by_one(turns: ClassTurns | None = None, *, most: int = 100) -> Iterable[UUID]:
    turns = turns or ClassTurns(0.0)
    for _ in range(most):
        if not (got := claimed_ids(1, turns=turns)):
            return
        yield got[0]


def aged(seconds: float, **fields: object) -> Job:
    """A job that has been waiting for so long: the clock is moved, nobody sleeps."""
    job = make_job(**fields)
    Job.objects.filter(pk=job.pk).update(eligible_since=Now() - timedelta(seconds=seconds))
    return job


def test_urgent_jobs_go_first_then_normal_then_low():
    low, normal, urgent = (make_job(priority=tier) for tier in (Priority.LOW, Priority.NORMAL, Priority.URGENT))
    assert list(one_by_one()) == [urgent.pk, normal.pk, low.pk]


def test_an_aged_job_rises_within_the_claim_exactly_as_the_table_says():
    waiting = [
        aged(0, priority=Priority.URGENT),
        aged(15 * MINUTE + HOUR, priority=Priority.NORMAL),  # 21
        aged(15 * MINUTE + HOUR - 1, priority=Priority.NORMAL),  # 20, and older than the next
        aged(15 * MINUTE, priority=Priority.NORMAL),  # 20
        aged(2 * HOUR, priority=Priority.LOW),  # 10: normal by now, and older than those that came as normal
        aged(15 * MINUTE - 1, priority=Priority.NORMAL),  # 10
        aged(0, priority=Priority.NORMAL),
        aged(2 * HOUR - 1, priority=Priority.LOW),  # 7
        aged(30 * MINUTE, priority=Priority.LOW),  # 5
        aged(30 * MINUTE - 1, priority=Priority.LOW),  # 1
    ]
    assert list(one_by_one()) == [job.pk for job in waiting]


def test_inside_a_project_and_tier_the_oldest_goes_first():
    jobs = [aged(seconds) for seconds in (5, 30, 20, 10)]
    assert list(one_by_one()) == [jobs[1].pk, jobs[2].pk, jobs[3].pk, jobs[0].pk]


def test_the_oldest_goes_first_however_many_came_after_it():
    younger = make_jobs(100)
    oldest = aged(1)
    assert oldest.pk > younger[-1].pk
    assert claimed_ids(1) == [oldest.pk]


def test_deferrals_and_retries_do_not_reset_the_age():
    old = aged(10)
    move_jobs("park", [Move(old.pk, delay_seconds=0)])
    aged(5)
    promote_due()
    assert claimed_ids(1) == [old.pk]


@pytest.mark.parametrize("wanted", [1, 10, 50])
def test_jobs_that_have_waited_beyond_their_threshold_get_one_claim_in_ten_under_an_urgent_load(wanted):
    make_jobs(200, priority=Priority.URGENT)
    overdue = {job.pk for job in make_jobs(30, priority=Priority.LOW)}
    Job.objects.filter(pk__in=overdue).update(eligible_since=Now() - timedelta(hours=1))
    turns, got = ClassTurns(0.1), []
    for _ in range(100 // wanted):
        got += claimed_ids(wanted, turns=turns)
    assert len(got) == 100
    assert len(overdue & set(got)) == 10


def test_an_overdue_job_gets_its_share_however_many_projects_whose_turn_is_before_have_young_ones():
    """More than a claim looks at."""
    make_jobs(20, priority=Priority.URGENT)
    for number in range(40):
        make_job(project=f"p{number}")
    overdue = aged(20 * MINUTE, project="had-its-turns")
    turns = ClassTurns(0.1)
    turns.by_class[NORMAL_CLASS] = Turns()
    turns.by_class[NORMAL_CLASS].passes["had-its-turns"] = 50.0
    assert overdue.pk in list(one_by_one(turns, most=10))


def test_a_job_that_is_not_overdue_has_no_share_beside_an_urgent_load():
    make_jobs(60, priority=Priority.URGENT)
    young = aged(30 * MINUTE - 1, priority=Priority.LOW)
    assert young.pk not in claimed_ids(50, turns=ClassTurns(0.1))


@pytest.mark.parametrize("wanted", [1, 50])
def test_a_flood_does_not_delay_another_projects_job_by_more_than_a_turn(wanted):
    make_jobs(200, project="flood")
    turns = ClassTurns()
    for _ in range(100 // wanted):
        claimed_ids(wanted, turns=turns)
    late = make_job(project="single")
    assert late.pk in (claimed_ids(50, turns=turns) if wanted == 50 else list(one_by_one(turns, most=2)))


def test_urgent_jobs_of_one_project_go_before_the_normal_jobs_of_many():
    for number in range(40):
        make_job(project=f"project-{number}")
    urgent = {job.pk for job in make_jobs(30, project="hasty", priority=Priority.URGENT)}
    assert set(claimed_ids(30)) == urgent


def test_a_deep_queue_fills_its_class_where_most_projects_have_one_job():
    make_jobs(30, project="low", priority=Priority.LOW)
    for number in range(10):
        make_job(project=f"project-{number}")
    make_jobs(40, project="deep")
    assert not set(claimed_ids(50)) & {job.pk for job in Job.objects.filter(priority=Priority.LOW)}


@pytest.mark.parametrize("wanted", [1, 2, 50])
def test_projects_share_claims_by_their_weights(wanted):
    weights = {"heavy": 3.0, "middle": 2.0, "light": 1.0}
    for project, weight in weights.items():
        make_project(project, weight=weight)
        make_jobs(70, project=project)
    turns, shares = ClassTurns(0.0), Counter[str]()
    for _ in range(100 // wanted):
        shares += Counter(job.project for job in claim_jobs(uuid4(), wanted=wanted, lease_seconds=30, turns=turns))
    assert shares["light"] == pytest.approx(100 / 6, abs=1)
    assert shares["middle"] == pytest.approx(200 / 6, abs=1)
    assert shares["heavy"] == pytest.approx(300 / 6, abs=1)


def test_turns_are_taken_within_a_class_and_never_before_a_higher_one():
    make_jobs(5, project="calm")
    urgent = {job.pk for job in make_jobs(20, project="flood", priority=Priority.URGENT)}
    turns = ClassTurns(0.0)
    turns.served({(URGENT_CLASS, "flood"): 1000}, {})
    assert set(one_by_one(turns, most=20)) == urgent


def test_urgent_jobs_of_one_project_cost_a_newcomer_none_of_its_turns_among_the_normal_jobs():
    make_jobs(60, project="flood")
    turns, got = ClassTurns(0.0), Counter[str]()
    newcomers = make_jobs(30, project="newcomer")
    assert newcomers
    for number in range(60):
        if number % 2:
            make_job(project="hasty", priority=Priority.URGENT)
        got += Counter(job.project for job in claim_jobs(uuid4(), wanted=1, lease_seconds=30, turns=turns))
    assert got == {"hasty": 30, "flood": 15, "newcomer": 15}


def test_the_work_of_one_project_fills_all_slots_when_nobody_else_has_any():
    make_jobs(100, project="only")
    assert len(claimed_ids(50)) == 50


def test_claims_of_one_reach_each_of_many_projects_before_any_twice():
    """More than a claim looks at: those that have had their turn make room for the others."""
    for project in range(40):
        make_jobs(2, project=f"p{project}")
    taken = [Job.objects.get(pk=pk).project_id for pk in one_by_one(ClassTurns(0.0), most=40)]
    assert len(set(taken)) == 40


def test_many_projects_are_all_reached_in_one_claim():
    for number in range(60):
        make_job(project=f"project-{number}")
    assert len(claimed_ids(60)) == 60


PAUSES = {"global": "", "project": "acme", "service": SERVICE, "kind": KIND}


@every_case("scope", [*PAUSES, "batch"])
@every_case("crashes", [0, 2], undone=True)
def test_paused_work_is_never_claimed(scope, crashes):
    batch = make_batch()
    job = make_job(batch=batch, crash_count=crashes)
    switch = PauseSwitch.objects.create(scope=scope, key=PAUSES.get(scope, str(batch.pk)), paused_by="user:1")
    assert not claim_somehow()
    switch.delete()
    assert claim_somehow() == [job.pk]


@every_case("scope", ["project", "service", "kind", "batch"], undone=True)
def test_a_pause_of_something_else_holds_nothing_up(scope):
    job = make_job(batch=make_batch())
    PauseSwitch.objects.create(scope=scope, key=str(uuid4()), paused_by="user:1")
    assert claimed_ids() == [job.pk]


def new_ids() -> list[UUID]:
    return [job.id for job in claim_new(uuid4(), lease_seconds=30, turns=ClassTurns(), gate=LaneGate())]


def claim_somehow() -> list[UUID]:
    return claimed_ids() + new_ids() + [job.id for job in claim_suspect(uuid4(), lease_seconds=30)]


def test_a_job_that_is_ready_alone_is_claimed_as_among_others():
    make_project(weight=2.5)
    job = make_job(priority="urgent", batch=make_batch(), user_id=uuid4(), retry_count=1)
    found = []
    for claim in (
        lambda: claim_new(uuid4(), lease_seconds=30, turns=ClassTurns(), gate=LaneGate()),
        lambda: claim_jobs(uuid4(), wanted=5, lease_seconds=30, turns=ClassTurns()),
    ):
        savepoint = transaction.savepoint()
        found += [one._replace(token=0) for one in claim()]
        transaction.savepoint_rollback(savepoint)
    assert found[0] == found[1]
    assert found[0].id == job.pk


@pytest.mark.parametrize(
    ("strange", "pool", "found"),
    [([], "", 1), ([f" {KIND}"], "", 0), ([f"slow {KIND}"], "", 1), ([], "slow", 0)],
)
def test_what_is_new_is_left_to_those_who_serve_its_kind_and_its_pool(strange, pool, found):
    make_job()
    given = {"strange": strange, "pool": pool}
    assert len(run_sql("jobs", "choose_new", given, variant=POOLED if pool else "")) == found


def test_where_several_jobs_are_ready_their_order_is_not_left_to_chance():
    make_jobs(2)
    assert new_ids() == []
    assert len(claimed_ids()) == 2


def test_beside_many_that_are_held_back_none_is_taken_for_the_only_one():
    make_jobs(20, project="paused")
    PauseSwitch.objects.create(scope="project", key="paused", paused_by="user:1")
    job = make_job()
    assert new_ids() == []
    assert claimed_ids() == [job.pk]


def future(job: Job) -> None:
    Job.objects.filter(pk=job.pk).update(scheduled_at=Now() + timedelta(hours=1))


def due_but_not_promoted(job: Job) -> None:
    Job.objects.filter(pk=job.pk).update(scheduled_at=Now() - timedelta(hours=1))


def held(job: Job) -> None:
    Job.objects.filter(pk=job.pk).update(held=True)


def rate_limited(job: Job) -> None:
    move_jobs("park", [Move(job.pk)])


def retried(job: Job) -> None:
    move_jobs("back_off", [Move(job.pk, delay_seconds=0)])


def cancelled(job: Job) -> None:
    move_jobs("cancel", [Move(job.pk)])


def expired(job: Job) -> None:
    Job.objects.filter(pk=job.pk).update(expires_at=Now() - timedelta(seconds=1))


def crashed_twice(job: Job) -> None:
    Job.objects.filter(pk=job.pk).update(crash_count=2)


def of_a_silent_service(job: Job) -> None:
    ServiceBreaker.objects.create(service=SERVICE, project_id="acme", failures=10, opened_at=Now())


@every_case("crashes", [0, 2])
@every_case(
    "take_out",
    [future, due_but_not_promoted, held, rate_limited, retried, cancelled, expired, of_a_silent_service],
    undone=True,
)
def test_a_job_that_may_not_run_now_is_never_claimed(take_out: Callable[[Job], None], crashes):
    job = make_job(crash_count=crashes)
    take_out(job)
    assert not claim_somehow()


@every_case("take_out", [held, future, expired, rate_limited, crashed_twice], undone=True)
def test_beside_jobs_that_are_not_ready_the_one_that_is_counts_as_alone(take_out: Callable[[Job], None]):
    other, job = make_jobs(2)
    take_out(other)
    assert new_ids() == [job.pk]


def test_a_job_that_expires_later_is_claimed():
    job = make_job(expires_at=None)
    Job.objects.filter(pk=job.pk).update(expires_at=Now() + timedelta(seconds=1))
    assert claimed_ids() == [job.pk]


def test_the_probe_of_a_silent_service_is_claimed_and_nothing_else_of_it():
    probe, _ = make_jobs(2)
    ServiceBreaker.objects.create(
        service=SERVICE, project_id="acme", failures=10, opened_at=Now(), probe_job_id=probe.pk
    )
    assert claimed_ids() == [probe.pk]


@pytest.mark.parametrize(("crashes", "suspect"), [(0, False), (1, False), (2, True), (7, True)])
def test_from_the_second_crash_on_only_quarantine_takes_a_job_and_one_at_a_time(crashes, suspect):
    jobs = make_jobs(2, crash_count=crashes)
    in_general = claimed_ids()
    in_quarantine = [job.id for job in claim_suspect(uuid4(), lease_seconds=30)]
    assert len(in_general) == (0 if suspect else 2)
    assert in_quarantine == ([jobs[0].pk] if suspect else [])


@pytest.mark.parametrize("claim", [claimed_ids, lambda: [job.id for job in claim_suspect(uuid4(), lease_seconds=30)]])
def test_a_claim_with_nothing_to_do_is_empty(claim):
    assert claim() == []


def test_nothing_is_claimed_when_nothing_is_wanted():
    make_job()
    assert claimed_ids(0) == []


@pytest.mark.parametrize("crashes", [0, 2])
def test_a_claim_gives_what_the_handler_needs_and_logs_dispatch_and_start(crashes):
    make_project(weight=2.5)
    batch, user, executor = make_batch(), uuid4(), uuid4()
    made = make_job(batch=batch, user_id=user, crash_count=crashes, retry_count=3, retry_policy="aggressive")
    first_attempt = Now() - timedelta(seconds=100)
    Job.objects.filter(pk=made.pk).update(first_attempt_at=first_attempt, deferred_seconds=40)
    if crashes:
        [job] = claim_suspect(executor, lease_seconds=30)
    else:
        [job] = claim_jobs(executor, wanted=5, lease_seconds=30, turns=ClassTurns())
    row = Job.objects.get(pk=made.pk)
    assert (job.project, job.user_id, job.batch_id, job.kind) == ("acme", user, batch.pk, KIND)
    assert (job.retry_policy, job.retry_count, job.crash_count) == ("aggressive", 3, crashes)
    assert (job.window_used, job.weight, job.effect_key) == (60.0, 2.5, made.effect_key)
    assert (row.status, row.executor, row.fencing_token) == (JobState.IN_PROGRESS, executor, job.token)
    assert row.lease_expires_at is not None
    assert row.started_at is not None
    assert row.lease_expires_at - row.started_at == timedelta(seconds=30)
    events = JobEvent.objects.filter(job_id=made.pk, event_type="state_change").order_by("id")
    assert list(events.values_list("from_status", "to_status")) == [
        (None, "queued"),
        ("queued", "dispatched"),
        ("dispatched", "in_progress"),
    ]
    expected = {"executor": str(executor), "fencing_token": job.token}
    assert events[1].data == (expected | {"quarantine": True} if crashes else expected)


def test_every_claim_has_a_token_that_no_earlier_claim_had():
    job = make_job()
    tokens = []
    for _ in range(3):
        [claimed] = claim_jobs(uuid4(), wanted=1, lease_seconds=30, turns=ClassTurns())
        tokens.append(claimed.token)
        move_jobs("hand_back", [Move(job.pk, token=claimed.token, delay_seconds=0)])
        promote_due()
    assert sorted(set(tokens)) == tokens


def test_what_is_due_is_promoted_and_what_is_not_says_when():
    queued = make_job()
    due_but_not_promoted(queued)
    parked, backed_off = make_job(), make_job()
    move_jobs("park", [Move(parked.pk, delay_seconds=0)])
    move_jobs("back_off", [Move(backed_off.pk, delay_seconds=0)])
    later = make_job(delay_seconds=90)
    without_a_time = make_job()
    move_jobs("park", [Move(without_a_time.pk)])
    assert promote_due() == (3, 90.0)
    assert set(claimed_ids()) == {queued.pk, parked.pk, backed_off.pk}
    assert Job.objects.get(pk=later.pk).scheduled_at is not None
    assert Job.objects.get(pk=without_a_time.pk).status == JobState.RATE_LIMITED
    # A queued job that becomes due did not change its state.
    event = JobEvent.objects.filter(job_id=queued.pk).order_by("id")[1]
    assert (event.event_type, event.from_status, event.to_status) == ("scheduling", None, None)


def test_promotion_is_bounded_and_takes_the_longest_due_first():
    jobs = make_jobs(5)
    for number, job in enumerate(jobs):
        Job.objects.filter(pk=job.pk).update(scheduled_at=Now() - timedelta(seconds=number + 1))
    assert promote_due(most=2)[0] == 2
    assert set(claimed_ids()) == {jobs[4].pk, jobs[3].pk}
    assert promote_due(most=10)[0] == 3
    assert promote_due() == (0, None)


def test_renewing_prolongs_own_leases_and_names_those_that_are_gone():
    executor = uuid4()
    make_jobs(4)
    claimed = claim_jobs(executor, wanted=4, lease_seconds=5, turns=ClassTurns())
    mine, cancelled_one, reclaimed, ended = claimed
    move_jobs("cancel", [Move(cancelled_one.id)])
    move_jobs("reset", [Move(reclaimed.id, delay_seconds=0)])
    promote_due()
    assert claimed_ids() == [reclaimed.id]
    move_jobs("complete", [Move(ended.id, token=ended.token)])
    owned = {job.id: job.token for job in claimed} | {(unknown := uuid4()): 1}
    assert renew_leases(owned, lease_seconds=60) == {cancelled_one.id, reclaimed.id, ended.id, unknown}
    assert lease_seconds_left(mine.id) == 60
    assert lease_seconds_left(reclaimed.id) == 30
    assert renew_leases({}, lease_seconds=60) == set()


def lease_seconds_left(job_id: UUID) -> float:
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT extract(epoch FROM lease_expires_at - now())::float8 FROM jobs_job WHERE id = %s", [job_id]
        )
        [seconds] = cursor.fetchone()
    return float(seconds)
