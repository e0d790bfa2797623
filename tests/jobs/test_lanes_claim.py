"""Jobs in lanes as the claim sees them: classes, turns, limits, and what is never claimed."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from datetime import timedelta
from typing import Any
from uuid import UUID, uuid4

import pytest
from django.contrib.postgres.functions import TransactionNow as DbNow
from django.utils import timezone

from jobs.aging import class_of
from jobs.features.outages.breaker import tend_breakers
from jobs.models import Job, PauseSwitch, ServiceBreaker
from jobs.services.claim import lanes
from jobs.services.claim.claim import claim_jobs, claim_suspect, promote_due
from jobs.services.claim.fair_share import ClassTurns
from jobs.services.claim.lanes import LaneGate
from jobs.services.explain.position import aging_rules, effective_priority_of, find_position
from jobs.services.finish.claimed import ClaimedJob
from jobs.states import WAITING, JobState, Priority
from jobs.transitions import Move, move_jobs
from ratelimits.limits import catalogue
from ratelimits.models import Counter as LimitCounter
from ratelimits.models import Limit
from tests.factories import KIND, make_batch, make_job, make_jobs, make_project
from tests.support.cases import every_case

pytestmark = pytest.mark.django_db

SHEETS = "google-sheets"
MINUTE, HOUR = 60, 3600
USERS = [UUID(int=number) for number in range(1, 6)]


@pytest.fixture(autouse=True)
def wide_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    """A limit with room for all, so that the order alone is seen; tests narrow it. Lanes are listed at every look."""
    monkeypatch.setattr(lanes, "READING_SHARE", 1e9)
    monkeypatch.setattr(lanes, "CLOSED_LOOK_SECONDS", 0.0)
    Limit.objects.all().delete()
    Limit.objects.create(name="writes", service=SHEETS, call_type="any", scope="project", capacity=10_000)
    catalogue.forget()


def narrow(capacity: float, **figures: Any) -> None:
    Limit.objects.update(capacity=capacity, **figures)
    catalogue.forget()


class Claimer:
    """One executor's memory of turns and lanes; each claim looks at the lanes anew."""

    def __init__(self, *, starved_share: float = 0.0) -> None:
        self.turns = ClassTurns(starved_share)
        self.gate = LaneGate()

    def claim(self, wanted: int = 50) -> list[ClaimedJob]:
        self.gate.hint()
        return claim_jobs(uuid4(), wanted=wanted, lease_seconds=30, turns=self.turns, gate=self.gate)

    def one_by_one(self, most: int = 200) -> list[ClaimedJob]:
        got: list[ClaimedJob] = []
        while len(got) < most and (claimed := self.claim(1)):
            got += claimed
        return got


def in_lane(count: int = 1, *, age: float | None = None, **fields: Any) -> list[Job]:
    jobs = make_jobs(count, service=SHEETS, **fields)
    if age is not None:
        aged(jobs, age)
    assert all(job.lane for job in jobs)
    return jobs


def aged(jobs: list[Job], seconds: float) -> list[Job]:
    Job.objects.filter(pk__in=[job.pk for job in jobs]).update(eligible_since=DbNow() - timedelta(seconds=seconds))
    return jobs


def ids(jobs: list[Job]) -> list[UUID]:
    return [job.pk for job in jobs]


def test_classes_go_before_each_other_whether_their_jobs_stand_in_lanes_or_not():
    low, urgent_in_lane = in_lane(priority="low")[0], in_lane(priority="urgent")[0]
    normal, urgent, normal_in_lane = make_job(), make_job(priority="urgent"), in_lane()[0]
    got = [job.id for job in Claimer().one_by_one()]
    assert set(got[:2]) == {urgent.pk, urgent_in_lane.pk}
    assert set(got[2:4]) == {normal.pk, normal_in_lane.pk}
    assert got[4:] == [low.pk]


def test_an_aged_job_rises_in_its_lane_exactly_as_the_table_says():
    table = [
        (0, Priority.URGENT),
        (15 * MINUTE + HOUR, Priority.NORMAL),
        (15 * MINUTE, Priority.NORMAL),
        (2 * HOUR, Priority.LOW),
        (15 * MINUTE - 1, Priority.NORMAL),
        (0, Priority.NORMAL),
        (2 * HOUR - 1, Priority.LOW),
        (30 * MINUTE, Priority.LOW),
        (30 * MINUTE - 1, Priority.LOW),
    ]
    jobs = [in_lane(age=age, priority=tier)[0] for age, tier in reversed(table)]
    assert [job.id for job in Claimer().one_by_one()] == ids(jobs)[::-1]


@pytest.mark.parametrize("seed", range(5))
def test_a_crowd_of_lanes_and_ready_jobs_leaves_class_by_class_and_each_lane_by_position(seed):
    chance = random.Random(seed)  # noqa: S311 (no secret)
    for number in range(36):
        fields: dict[str, Any] = {
            "priority": chance.choice(list(Priority)),
            "project": chance.choice(["a", "b"]),
            "user_id": chance.choice([None, *USERS[:2]]),
        }
        job = make_job(**fields) if number % 4 == 0 else in_lane(**fields)[0]
        aged([job], chance.choice([0, 1, 899, 900, 1800, 3600, 7199, 7200, 9000]) + number / 1000)
    jobs = {job.pk: job for job in Job.objects.all()}
    [now] = set(Job.objects.values_list(DbNow(), flat=True))  # the claim's clock, which stands still here
    rules, claimer = aging_rules(), Claimer()
    got: list[UUID] = []
    while len(got) < len(jobs):
        [claimed] = claimer.claim(1)
        got.append(claimed.id)
        job = jobs[claimed.id]
        if job.lane:
            place = find_position(job, rules, now=now)
            assert place is not None
            assert place.ahead == 0
    bases = [rules[class_of(effective_priority_of(jobs[one], now=now, rules=rules), rules)].base for one in got]
    assert bases == sorted(bases, reverse=True)
    assert set(got) == set(jobs)


@pytest.mark.parametrize("wanted", [1, 50])
@pytest.mark.parametrize("flood", ["lane", "ready"])
def test_a_flood_of_one_project_does_not_delay_anothers_single_job(wanted, flood):
    if flood == "lane":
        in_lane(200, project="flood", age=HOUR)
    else:
        aged(make_jobs(200, project="flood"), HOUR)
    claimer = Claimer()
    for _ in range(100 // wanted):
        claimer.claim(wanted)
    [late] = in_lane(project="single")
    got = claimer.claim(50) if wanted == 50 else claimer.one_by_one(2)
    assert late.pk in {job.id for job in got}


@pytest.mark.parametrize("wanted", [1, 50])
def test_a_flood_of_one_user_does_not_delay_anothers_single_job(wanted):
    in_lane(200, user_id=USERS[0], age=HOUR)
    claimer = Claimer()
    for _ in range(100 // wanted):
        claimer.claim(wanted)
    [late] = in_lane(user_id=USERS[1])
    got = claimer.claim(50) if wanted == 50 else claimer.one_by_one(2)
    assert late.pk in {job.id for job in got}


@pytest.mark.parametrize("wanted", [1, 3, 50])
def test_users_of_a_project_share_its_claims_however_much_each_of_them_has(wanted):
    for user, count in zip(USERS[:3], [190, 70, 70], strict=True):
        in_lane(count, user_id=user)
    claimer, shares = Claimer(), Counter[UUID | None]()
    for _ in range(150 // wanted):
        shares += Counter(job.user_id for job in claimer.claim(wanted))
    assert all(shares[user] == pytest.approx(50, abs=1) for user in USERS[:3])


@pytest.mark.parametrize("wanted", [1, 2, 50])
def test_projects_share_claims_by_their_weights_and_not_by_how_many_users_they_have(wanted):
    make_project("many", weight=1.0)
    make_project("one", weight=2.0)
    for user in USERS:
        in_lane(30, project="many", user_id=user)
    in_lane(120, project="one")
    claimer, shares = Claimer(), Counter[str]()
    for _ in range(150 // wanted):
        shares += Counter(job.project for job in claimer.claim(wanted))
    assert shares["one"] == pytest.approx(100, abs=2)
    assert shares["many"] == pytest.approx(50, abs=2)


def test_overdue_jobs_in_lanes_get_one_claim_in_ten_beside_an_urgent_load():
    in_lane(120, priority="urgent")
    overdue = set(ids(in_lane(30, priority="low", age=HOUR)))
    got = Claimer(starved_share=0.1).one_by_one(100)
    assert sum(job.id in overdue for job in got) == 10


def test_a_lane_gets_what_its_limit_admits_and_the_others_go_on():
    narrow(3)
    full, free = in_lane(10, project="full"), in_lane(2, project="free")
    ready = make_job(project="full")
    got = {job.id for job in Claimer().claim(50)}
    assert len(got & set(ids(full))) == 3
    assert set(ids(free)) | {ready.pk} == got - set(ids(full))
    assert Claimer().claim(50) == []


def test_the_next_free_token_of_a_saturated_lane_goes_to_an_urgent_arrival_and_then_to_the_oldest():
    narrow(3)
    jobs = in_lane(10, age=HOUR)
    claimer = Claimer()
    claimer.claim(50)
    [urgent] = in_lane(priority="urgent")
    narrow(4)
    assert [job.id for job in claimer.claim(50)] == [urgent.pk]
    narrow(5)
    assert [job.id for job in claimer.claim(50)] == [jobs[3].pk]


def test_parked_jobs_are_claimed_before_their_forecast_when_there_is_room():
    parked = in_lane(3, state=JobState.RATE_LIMITED)
    assert all(job.scheduled_at is not None for job in parked)
    assert [job.id for job in Claimer().one_by_one()] == ids(parked)


def test_lanes_that_share_a_limit_never_get_more_than_it_admits_together():
    narrow(7)
    for user in USERS:
        in_lane(10, user_id=user)
    got = Claimer().claim(50)
    assert len(got) == 7
    assert max(Counter(job.user_id for job in got).values()) == 2


PAUSES = {"global": "", "project": "acme", "service": SHEETS, "kind": KIND}


@every_case("scope", [*PAUSES, "batch"])
@every_case("state", [JobState.QUEUED, JobState.RATE_LIMITED])
@every_case("crashes", [0, 2], undone=True)
def test_a_paused_lane_is_not_claimed_and_spends_no_quota(scope, state, crashes):
    batch = make_batch()
    in_lane(3, batch=batch, state=state, crash_count=crashes)
    PauseSwitch.objects.create(scope=scope, key=PAUSES.get(scope, str(batch.pk)), paused_by="user:1")
    assert claim_somehow() == []
    assert used() == 0


def claim_somehow() -> list[UUID]:
    return [job.id for job in [*Claimer().claim(), *claim_suspect(uuid4(), lease_seconds=30)]]


def used() -> float:
    return sum(bool(counter.state) for counter in LimitCounter.objects.all())


def expired(jobs: list[Job]) -> None:
    Job.objects.filter(pk__in=ids(jobs)).update(expires_at=DbNow() - timedelta(seconds=1))


def future(jobs: list[Job]) -> None:
    Job.objects.filter(pk__in=ids(jobs)).update(scheduled_at=DbNow() + timedelta(hours=1))


def held(jobs: list[Job]) -> None:
    Job.objects.filter(pk__in=ids(jobs)).update(held=True)


def cancelled(jobs: list[Job]) -> None:
    move_jobs("cancel", [Move(job.pk) for job in jobs])


def retried(jobs: list[Job]) -> None:
    move_jobs("back_off", [Move(job.pk, delay_seconds=0) for job in jobs])


def of_a_silent_service(jobs: list[Job]) -> None:
    ServiceBreaker.objects.create(service=SHEETS, project_id="acme", failures=10, opened_at=DbNow())


@every_case("crashes", [0, 2])
@every_case("take_out", [expired, future, held, cancelled, retried, of_a_silent_service], undone=True)
def test_a_lane_job_that_may_not_run_now_is_never_claimed_and_spends_no_quota(
    take_out: Callable[[list[Job]], None], crashes
):
    jobs = in_lane(3, crash_count=crashes)
    take_out(jobs)
    ready = make_job()
    assert claim_somehow() == [ready.pk]
    assert used() == 0


def test_a_pause_of_everything_leaves_alerts_their_way_out_though_a_limit_counts_them():
    [alert] = in_lane(project=PauseSwitch.EXEMPT)
    in_lane(3)
    PauseSwitch.objects.create(scope="global", paused_by="user:1")
    assert claim_somehow() == [alert.pk]


@pytest.mark.parametrize("take_out", [expired, of_a_silent_service])
def test_a_parked_job_that_may_not_run_now_is_never_claimed(take_out: Callable[[list[Job]], None]):
    jobs = in_lane(3, state=JobState.RATE_LIMITED)
    take_out(jobs)
    assert claim_somehow() == []


@pytest.mark.parametrize("count", [1, 60, 200])
def test_what_may_not_run_at_the_head_of_a_lane_does_not_hold_up_what_may(count):
    batch = make_batch()
    in_lane(count, batch=batch, age=HOUR)
    PauseSwitch.objects.create(scope="batch", key=str(batch.pk), paused_by="user:1")
    Job.objects.filter(batch=batch).update(held=True)  # as the pause does at once
    [behind] = in_lane()
    assert claim_somehow() == [behind.pk]


def test_expired_jobs_at_the_head_of_a_lane_do_not_hold_up_the_other_lanes():
    expired(in_lane(200, age=HOUR, project="stale"))
    [other] = in_lane(project="fresh")
    assert claim_somehow() == [other.pk]


def test_the_probe_of_a_silent_service_leaves_its_lane_and_nothing_else_of_it_does():
    probe, _ = in_lane(2)
    ServiceBreaker.objects.create(
        service=SHEETS, project_id="acme", failures=10, opened_at=DbNow(), probe_job_id=probe.pk
    )
    assert claim_somehow() == [probe.pk]


def test_a_suspect_job_passes_the_limiter_like_any_other():
    narrow(1)
    first, second = in_lane(crash_count=2, age=60)[0], in_lane(crash_count=2)[0]
    assert Claimer().claim() == []
    assert [job.id for job in claim_suspect(uuid4(), lease_seconds=30)] == [first.pk]
    assert claim_suspect(uuid4(), lease_seconds=30) == []
    second.refresh_from_db()
    assert second.status in WAITING
    assert second.retry_count == 0


def test_a_suspect_job_that_a_limit_put_back_is_claimed_when_its_time_has_come_and_there_is_room():
    narrow(1)
    in_lane(crash_count=2, age=60)
    [second] = in_lane(crash_count=2)
    claim_suspect(uuid4(), lease_seconds=30)
    assert claim_suspect(uuid4(), lease_seconds=30) == []
    narrow(2)
    Job.objects.filter(pk=second.pk).update(scheduled_at=DbNow())
    promote_due()
    assert claim_somehow() == [second.pk]


def test_lanes_of_a_paused_project_do_not_crowd_out_the_others(monkeypatch):
    monkeypatch.setattr(lanes, "MAX_LANES_OPEN", 3)
    for user in USERS:
        in_lane(project="paused", user_id=user, priority="urgent")
    PauseSwitch.objects.create(scope="project", key="paused", paused_by="user:1")
    [other] = in_lane(project="going")
    assert [job.id for job in Claimer().claim()] == [other.pk]


def test_lanes_of_a_silent_service_do_not_crowd_out_the_others(monkeypatch):
    monkeypatch.setattr(lanes, "MAX_LANES_OPEN", 3)
    Limit.objects.create(name="silent", service="silent", call_type="any", scope="project", capacity=100)
    catalogue.forget()
    for user in USERS:
        make_jobs(1, service="silent", user_id=user, priority="urgent")
    ServiceBreaker.objects.create(service="silent", project_id="acme", failures=10, opened_at=DbNow())
    [other] = in_lane()
    assert [job.id for job in Claimer().claim()] == [other.pk]


def test_a_project_of_one_lane_is_not_crowded_out_by_one_of_many_lanes(monkeypatch):
    monkeypatch.setattr(lanes, "MAX_LANES_OPEN", 3)
    in_lane(20, project="one")
    claimer = Claimer()
    claimer.one_by_one(10)
    for user in USERS:
        in_lane(20, project="many", user_id=user)
    got = Counter(job.project for job in claimer.one_by_one(10))
    assert got["one"] == pytest.approx(5, abs=1)


def test_a_silent_service_whose_jobs_are_all_parked_by_a_limit_still_gets_its_probe():
    jobs = in_lane(3, state=JobState.RATE_LIMITED)
    assert all(job.scheduled_at is not None for job in jobs)
    ServiceBreaker.objects.create(
        service=SHEETS, project_id="acme", failures=10, opened_at=DbNow(), next_probe_at=DbNow()
    )
    tend_breakers()
    assert [job.id for job in Claimer().claim()] == [jobs[0].pk]


@pytest.mark.parametrize("count", [1, 10])
def test_a_few_expired_jobs_do_not_hold_up_a_lane_with_room_for_one(count):
    narrow(1)
    in_lane(count, age=HOUR, expires_at=timezone.now() - timedelta(seconds=1))
    [behind] = in_lane()
    assert claim_somehow() == [behind.pk]
