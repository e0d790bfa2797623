"""Why a job waits, who goes before it, and when it should go."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

import pytest
from django.contrib.auth.models import User
from django.contrib.postgres.functions import TransactionNow
from django.db.models.functions import Now
from django.test import Client
from django.utils import timezone

from jobs.aging import class_of
from jobs.lanes import lane_name
from jobs.models import Executor, Job, PauseSwitch, ServiceBreaker
from jobs.services.explain import position as positions
from jobs.services.explain.position import Position, aging_rules, effective_priority_of, find_position
from jobs.services.explain.snapshots import job_snapshot
from jobs.services.explain.waiting import Waiting, explain_waiting
from jobs.services.operate.job_actions import reset_to_pending, schedule_jobs
from jobs.states import JobState, Priority
from jobs.transitions import Move, move_jobs
from ratelimits.limiter.decide import Call, decide
from ratelimits.limits import catalogue
from ratelimits.models import Counter as LimitCounter
from ratelimits.models import Limit
from ratelimits.subjects import Subject, counter_id
from tests.factories import foreseen, make_batch, make_job, make_jobs, make_project
from tests.support.cases import every_case

pytestmark = pytest.mark.django_db

SHEETS = "google-sheets"
MINUTE, HOUR = 60, 3600
SLOW = 9  # seconds that a test may take between two looks at the clock


@pytest.fixture(autouse=True)
def fresh_limits() -> Iterator[None]:
    Limit.objects.all().delete()
    catalogue.forget()
    yield
    catalogue.forget()


@pytest.fixture
def worker(db: None) -> Executor:
    return executor(slots=10)


def executor(*, slots: int, in_flight: int = 0, role: str = Executor.Role.GENERAL, **fields: Any) -> Executor:
    given = {"pid": slots, "process_started_at": 0.0, "cluster_pid": 1, "loop_lag_ms": 1.0} | fields
    return Executor.objects.create(host="worker-1", slots=slots, in_flight=in_flight, role=role, **given)


def limit(name: str = "writes", **figures: Any) -> Limit:
    """Two writes a minute of each project, so that a test uses them up at once."""
    given = {"service": SHEETS, "call_type": "write", "scope": "project", "capacity": 2.0} | figures
    made = Limit.objects.create(name=name, **given)
    catalogue.forget()
    return made


def subject(project: str = "acme", user: str = "") -> Subject:
    return Subject(SHEETS, "write", project, user)


def lane(project: str = "acme", user: str = "", *, paid_by: str | None = None) -> str:
    return lane_name(subject(paid_by or project, user), project=project, user=user)


def in_lane(count: int = 1, *, project: str = "acme", user: str = "", age: float = 0, **fields: Any) -> list[Job]:
    name = fields.pop("lane", None) or lane(project, user)
    jobs = make_jobs(count, project=project, service=SHEETS, lane=name, **fields)
    Job.objects.filter(pk__in=[job.pk for job in jobs]).update(eligible_since=TransactionNow() - timedelta(seconds=age))
    return list(Job.objects.filter(pk__in=[job.pk for job in jobs]).order_by("pk"))


def use_up(calls: int = 2, *, project: str = "acme", user: str = "", cost: float = 1) -> float:
    """Grant so many calls; returns the database's clock."""
    decisions = decide([Call(subject(project, user), cost=cost, holder=f"h{number}") for number in range(calls)])
    assert {decision.kind for decision in decisions} == {"proceed"}
    return decisions[0].now


def explained(job: Job) -> Waiting:
    job.refresh_from_db()
    waiting = explain_waiting(job)
    assert waiting is not None
    return waiting


def codes(job: Job) -> list[str]:
    return [reason.code for reason in explained(job).reasons]


@every_case("scope", ["global", "project", "service", "kind", "batch"], undone=True)
def test_a_pause_is_named_with_its_reason(worker, scope):
    job = make_job(batch=make_batch())
    keys = {"project": "acme", "service": job.service, "kind": job.kind, "batch": str(job.batch_id)}
    PauseSwitch.objects.create(scope=scope, key=keys.get(scope, ""), reason="audit", paused_by="user:1")
    waiting = explained(job)
    assert codes(job)[0] == "paused"
    assert "is paused: audit" in (waiting.text or "")
    assert waiting.forecast is None


@every_case("scope", ["project", "service", "kind", "batch"], undone=True)
def test_a_pause_of_something_else_is_none_of_its_reasons(worker, scope):
    job = make_job(batch=make_batch())
    PauseSwitch.objects.create(scope=scope, key=str(uuid4()), paused_by="user:1")
    PauseSwitch.objects.create(scope="kind", key="acme", paused_by="user:1")
    assert codes(job) == ["turn"]


def test_a_pause_that_is_being_taken_off_still_holds(worker):
    assert codes(make_job(held=True))[0] == "paused"


def test_an_outage_is_named_and_its_probe_is_not_held_by_it(worker):
    waits, probe = make_jobs(2, state=JobState.RATE_LIMITED)
    at = timezone.now() + timedelta(seconds=40)
    ServiceBreaker.objects.create(
        service=waits.service,
        project_id="acme",
        opened_at=Now(),
        next_probe_at=at,
        last_error="of another user",
        probe_job_id=probe.pk,
    )
    waiting = explained(waits)
    assert waiting.reasons[0].code == "outage"
    assert waiting.reasons[0].free_at is None, "only a next try is known"
    assert waiting.reasons[0].next_try_at == at
    assert "another user" not in (waiting.text or "")
    assert "outage" not in codes(probe)


def test_a_time_of_its_own_is_named_and_foreseen(worker):
    job = make_job(delay_seconds=90)
    waiting = explained(job)
    assert codes(job) == ["scheduled"]
    assert waiting.forecast is not None
    assert waiting.forecast.starts_at == job.scheduled_at
    assert waiting.recheck_after_seconds == pytest.approx(90, abs=SLOW)


def test_a_backoff_names_what_failed(worker):
    job = make_job(state=JobState.RETRIED, last_error_message="HTTP 503: try later")
    assert codes(job) == ["retry_backoff"]
    assert "HTTP 503: try later" in (explained(job).text or "")


@every_case("reason", ["", "moved to the night"], undone=True)
def test_a_time_given_by_hand_names_who_gave_it_and_why(worker, reason):
    running, waits = make_job(state=JobState.IN_PROGRESS), make_job(delay_seconds=9)
    reset_to_pending([running.pk], delay=timedelta(hours=1), actor="user:7", reason=reason)
    schedule_jobs([waits.pk], delay=timedelta(hours=1), actor="key:acme", reason=reason)
    why = f": {reason}" if reason else ""
    found = [explained(job).reasons[0] for job in (running, waits)]
    assert [(one.code, one.text, one.by) for one in found] == [
        ("scheduled", f"it was reset{why}", "user:7"),
        ("scheduled", f"it is scheduled for later{why}", "key:acme"),
    ]


def test_a_job_that_was_given_back_says_why_and_not_what_failed_before(worker):
    job = make_job(state=JobState.IN_PROGRESS, last_error_message="HTTP 503: try later")
    move_jobs("rescue", [Move(job.pk, delay_seconds=60, message="its executor stopped renewing the lease")])
    assert explained(job).text == "it is tried again after: its executor stopped renewing the lease"


def test_a_job_whose_time_is_over_waits_for_no_time(worker):
    job = make_job()
    Job.objects.filter(pk=job.pk).update(scheduled_at=timezone.now() - timedelta(seconds=1))
    assert codes(job) == ["turn"]


def test_a_limit_without_room_is_named_with_its_figures(worker):
    limit()
    now = use_up()
    [job] = in_lane(state=JobState.RATE_LIMITED)
    [reason] = explained(job).reasons
    assert (reason.code, reason.limit, reason.key, reason.unit) == ("limit", "writes", "project:acme", "requests")
    assert (reason.needed, reason.available, reason.capacity) == (1, 0, 2)
    assert reason.free_at is not None
    assert reason.free_at.timestamp() == pytest.approx(now + MINUTE, abs=SLOW)


def test_limits_are_ordered_by_what_frees_up_last():
    limit("a-minute")
    limit("a-day", algorithm="fixed_window", reset_zone="America/Los_Angeles", window_seconds=None, guard_seconds=0)
    limit("an-hour", window_seconds=float(HOUR))
    use_up()
    [job] = in_lane()
    named = [reason.limit for reason in explained(job).reasons if reason.limit]
    assert sorted(named) == ["a-day", "a-minute", "an-hour"]
    times = [reason.free_at for reason in explained(job).reasons if reason.limit and reason.free_at]
    assert times == sorted(times, reverse=True)


def test_a_cool_down_says_why():
    made = limit()
    [job] = in_lane()
    use_up(1)
    until = timezone.now() + timedelta(seconds=30)
    LimitCounter.objects.filter(limit=made).update(blocked_until=until, blocked_reason="HTTP 429")
    [reason] = [one for one in explained(job).reasons if one.limit]
    assert (reason.code, reason.free_at) == ("cooled_down", until)
    assert "HTTP 429" in reason.text


def test_a_token_limit_counts_what_the_job_costs(worker):
    limit(unit="tokens", capacity=1000.0)
    use_up(1, cost=700)
    [small] = in_lane(cost=300)
    [large] = in_lane(cost=301, age=1)
    assert codes(large) == ["limit"]
    assert "limit" not in codes(small)


def test_a_job_outside_lanes_and_another_projects_lane_meet_no_limit(worker):
    limit()
    use_up()
    assert codes(make_job()) == ["turn"]
    assert codes(in_lane(project="globex")[0]) == []


def test_a_limit_that_is_free_before_the_jobs_own_time_is_no_reason(worker):
    limit()
    use_up()
    [soon] = in_lane(delay_seconds=5)
    [late] = in_lane(delay_seconds=HOUR)
    assert codes(soon) == ["scheduled", "limit"]
    assert codes(late) == ["scheduled"]


def test_nothing_holds_the_first_of_an_open_lane(worker):
    limit()
    [job] = in_lane()
    waiting = explained(job)
    assert waiting.reasons == ()
    assert waiting.text is None
    assert (waiting.place, waiting.recheck_after_seconds) == ("1", 1.0)


def test_who_goes_first_is_a_reason_after_the_limit(worker):
    limit()
    use_up()
    jobs = in_lane(3)
    assert codes(jobs[2]) == ["limit", "turn"]
    turn = "2 jobs of its lane go first; writes lets a call every 30 s through"
    assert explained(jobs[2]).reasons[1].text == turn
    assert codes(jobs[0]) == ["limit"]


def test_the_limit_that_slows_a_lane_is_named_with_its_pace_though_there_is_room_now(worker):
    made = limit(capacity=60)
    limit("all", capacity=600, call_type="any")
    use_up(1)
    LimitCounter.objects.filter(limit=made).update(pressure=0.5, pressure_changed_at=Now())
    first, *_, last = in_lane(9, state=JobState.RATE_LIMITED)
    [turn] = explained(last).reasons
    assert (turn.code, turn.limit, turn.free_at) == ("turn", "writes", None)
    assert turn.text == (
        "8 jobs of its lane go first; writes lets a call every 2 s through, slowed to 50% by refusals of the provider"
    )
    assert "waits for writes" in explained(last).line()
    told = job_snapshot(first).waiting_for
    assert told is not None, "a job that a limit put back always says what it waits for"
    assert "writes" in told


@every_case("has_limit", [True, False], undone=True)
def test_a_job_that_a_limit_put_back_says_what_it_waits_for_whatever_there_is_room_for(worker, has_limit):
    if has_limit:
        limit(capacity=60)
    for job in (in_lane(state=JobState.RATE_LIMITED)[0], make_job(state=JobState.RATE_LIMITED)):
        Job.objects.filter(pk=job.pk).update(scheduled_at=None)
        job.refresh_from_db()
        assert job_snapshot(job).waiting_for


@every_case(
    ("slots", "in_flight", "fields", "busy"),
    [
        (10, 10, {}, True),
        (10, 9, {}, False),
        (10, 0, {"draining": True}, True),
        (10, 0, {"heartbeat_at": datetime(2026, 1, 1, tzinfo=UTC)}, True),
        (1, 0, {"role": "quarantine"}, True),
    ],
    undone=True,
)
def test_busy_and_silent_workers_are_a_reason(slots, in_flight, fields, busy):
    executor(slots=slots, in_flight=in_flight, **fields)
    assert ("slots" in codes(make_job())) is busy


def test_a_suspect_job_waits_for_the_quarantine_seat_alone(worker):
    suspect = make_job(crash_count=2)
    assert codes(suspect) == ["slots"]
    executor(slots=1, role=Executor.Role.QUARANTINE)
    assert codes(suspect) == ["turn"]


@every_case("state", [JobState.IN_PROGRESS, JobState.COMPLETED, JobState.CANCELLED], undone=True)
def test_a_job_that_runs_or_has_ended_waits_for_nothing(state):
    assert explain_waiting(make_job(state=state)) is None


AGES = [0, 1, 899, 900, 901, 1799, 1800, 1801, 4500, 5400, 7199, 7200, 7201, 8100, 30_000]


def crowd(chance: random.Random, count: int) -> list[Job]:
    """A lane of all tiers and of ages around the thresholds; some of them are alike."""
    jobs = in_lane(count)
    for job in jobs:
        Job.objects.filter(pk=job.pk).update(
            priority=chance.choice(list(Priority)),
            eligible_since=TransactionNow() - timedelta(seconds=chance.choice(AGES) + chance.choice([0, 0.5])),
        )
    others = [*in_lane(3, user="else", age=HOUR), *in_lane(2, held=True, age=HOUR), *in_lane(2, delay_seconds=60)]
    assert others
    return list(Job.objects.filter(pk__in=[job.pk for job in jobs]))


@every_case("seed", range(8), undone=True)
def test_a_position_is_what_sorting_the_whole_lane_gives(seed):
    jobs = crowd(random.Random(seed), 40)  # noqa: S311 (no secret)
    rules, now = aging_rules(), timezone.now()
    scores = {job.pk: effective_priority_of(job, now=now, rules=rules) for job in jobs}
    ordered = sorted(jobs, key=lambda job: (-scores[job.pk], job.eligible_since, job.pk))
    for index, job in enumerate(ordered):
        found = find_position(job, rules, now=now)
        ahead = Counter(class_of(scores[before.pk], rules) for before in ordered[:index])
        assert found is not None
        assert (found.ahead, found.is_exact) == (index, True)
        assert {tier: count for tier, count in found.by_class.items() if count} == dict(ahead)


def test_a_lane_is_counted_up_to_a_bound(monkeypatch):
    monkeypatch.setattr(positions, "MAX_AHEAD_COUNTED", 5)
    jobs = in_lane(8)
    assert find(jobs[5]) == Position(5, True, {Priority.URGENT: 0, Priority.NORMAL: 5})
    found = find(jobs[7])
    assert (found.ahead, found.is_exact) == (5, False)
    assert explained(jobs[7]).place == "more than 5"
    assert any("more than 5 jobs of its lane go first" in reason.text for reason in explained(jobs[7]).reasons)


def test_beyond_the_bound_the_higher_classes_are_counted_first(monkeypatch):
    monkeypatch.setattr(positions, "MAX_AHEAD_COUNTED", 3)
    young = in_lane(6, priority="low")
    in_lane(2, priority="low", age=3 * HOUR)
    found = find(young[5])
    assert (found.is_exact, found.by_class[Priority.NORMAL]) == (False, 2)


def find(job: Job, **options: Any) -> Position:
    found = find_position(job, aging_rules(), now=timezone.now(), **options)
    assert found is not None
    return found


@every_case("fields", [{"held": True}, {"crash_count": 2}, {"delay_seconds": 60}, {"lane": "-"}], undone=True)
def test_a_job_that_its_lane_may_not_release_has_no_position(fields):
    [job] = in_lane(**{name: value for name, value in fields.items() if name != "lane"})
    if "lane" in fields:
        Job.objects.filter(pk=job.pk).update(lane=None)
        job.refresh_from_db()
    assert find_position(job, aging_rules(), now=timezone.now()) is None


def test_jobs_that_leave_as_one_call_are_weighed_as_one():
    in_lane(4, coalesce_key="a", cost=10)
    in_lane(2, coalesce_key="b", cost=10)
    in_lane(2, cost=1)
    [job] = in_lane(coalesce_key="c")
    found = find(job, weighed=True)
    assert found.ahead == 8
    assert found.calls is not None
    assert [call.cost for call in found.calls] == [10, 10, 1, 1, job.cost]


def forecast_seconds(job: Job) -> float | None:
    """From now on; None: there is no forecast."""
    forecast = explained(job).forecast
    return None if forecast is None else (forecast.starts_at - timezone.now()).total_seconds()


def paced(**figures: Any) -> Limit:
    """One call every ten seconds and no burst: the seconds that a test takes don't matter."""
    return limit(algorithm="token_bucket", capacity=1.0, refill_per_second=0.1, **figures)


def test_a_forecast_is_the_calls_before_it_over_the_rate():
    paced()
    use_up(1)
    jobs = in_lane(30)
    assert forecast_seconds(jobs[0]) == pytest.approx(10, abs=SLOW)
    assert forecast_seconds(jobs[29]) == pytest.approx(300, abs=SLOW)
    forecast = explained(jobs[29]).forecast
    assert forecast is not None
    assert forecast.basis == "30 calls at 0.1 a second of writes"


def test_lanes_that_share_a_limit_divide_its_rate():
    paced()
    use_up(1)
    jobs = in_lane(10, user="u-1")
    for user in ("u-2", "u-3"):
        in_lane(1, user=user)
    in_lane(1, project="globex")
    assert forecast_seconds(jobs[9]) == pytest.approx(300, abs=SLOW)
    forecast = explained(jobs[9]).forecast
    assert forecast is not None
    assert forecast.basis.endswith("which 3 lanes share")


def test_projects_that_share_a_credential_share_the_limit():
    paced()
    use_up(1, project="cloud")
    [job] = in_lane(lane=lane("acme", paid_by="cloud"))
    in_lane(1, project="globex", lane=lane("globex", paid_by="cloud"))
    assert forecast_seconds(job) == pytest.approx(20, abs=SLOW)


def test_lanes_with_work_of_lower_classes_alone_delay_nobody_above_them():
    paced()
    use_up(1)
    for user in ("u-2", "u-3"):
        in_lane(5, user=user)
    [urgent] = in_lane(user="u-1", priority="urgent")
    [normal] = in_lane(user="u-1")
    assert forecast_seconds(urgent) == pytest.approx(10, abs=SLOW)
    assert forecast_seconds(normal) == pytest.approx(60, abs=SLOW)


def test_a_limit_on_tokens_is_foreseen_in_tokens():
    limit(unit="tokens", algorithm="token_bucket", capacity=100.0, refill_per_second=1.0)
    use_up(1, cost=100)
    in_lane(3, cost=100)
    [job] = in_lane(cost=50)
    assert forecast_seconds(job) == pytest.approx(350, abs=SLOW)


def test_no_forecast_lies_before_the_last_limit_has_room():
    paced()
    limit("a-day", algorithm="fixed_window", capacity=1.0, reset_zone="America/Los_Angeles", window_seconds=None)
    use_up(1)
    [job] = in_lane()
    waiting = explained(job)
    assert waiting.forecast is not None
    assert waiting.forecast.starts_at >= max(reason.free_at for reason in waiting.reasons if reason.free_at)


@every_case("seed", range(6), undone=True)
def test_a_forecast_never_lies_before_any_time_that_is_known(seed):
    chance = random.Random(seed)  # noqa: S311 (no secret)
    limit("a", capacity=float(chance.randint(1, 4)))
    limit("b", algorithm="token_bucket", scope="global", capacity=1.0, refill_per_second=chance.uniform(0.1, 9))
    limit("c", algorithm="leaky_bucket", scope="project_user", capacity=1.0, refill_per_second=chance.uniform(0.1, 9))
    for _ in range(chance.randint(1, 4)):
        decide([Call(subject("acme", chance.choice(["", "u-1"])))])
    in_lane(chance.randint(0, 5), user="u-1")
    jobs = crowd(chance, 10)
    for job in jobs:
        waiting = explained(job)
        assert waiting.forecast is not None
        assert all(reason.free_at <= waiting.forecast.starts_at for reason in waiting.reasons if reason.free_at)


@every_case("figures", [{"unit": "in_flight", "algorithm": "concurrency"}, {"capacity": 0.0}], undone=True)
def test_nobody_says_when_where_nobody_knows(figures):
    limit(**figures)
    if figures.get("capacity") != 0:
        use_up(2)
    jobs = in_lane(2)
    assert forecast_seconds(jobs[1]) is None


def test_the_line_for_an_operator_says_when_what_for_and_where_it_stands():
    paced(name="project-write-quota")
    use_up(1)
    jobs = in_lane(212)
    waiting = explained(jobs[211])
    assert waiting.forecast is not None
    at = timezone.localtime(waiting.forecast.starts_at).strftime("%H:%M:%S")
    line = waiting.line()
    assert line == f"runs at {at} (a forecast), waits for project-write-quota, position 212"


def test_asking_again_is_worth_while_when_it_should_start_and_within_five_minutes():
    paced()
    use_up(1)
    jobs = in_lane(60)
    assert job_snapshot(jobs[5]).recheck_after_seconds == pytest.approx(60, abs=SLOW)
    assert job_snapshot(jobs[59]).recheck_after_seconds == 300


def test_a_batch_ends_no_sooner_than_its_limits_allow():
    paced()
    use_up(1)
    batch = make_batch(rate_per_second=50.0)
    in_lane(120, batch=batch)
    eta = foreseen(batch).eta
    assert eta is not None
    assert (eta - timezone.now()).total_seconds() == pytest.approx(1200, abs=SLOW)


def test_a_batch_that_has_not_begun_has_an_eta_from_its_limits():
    paced()
    use_up(1)
    batch = make_batch()
    in_lane(60, batch=batch, user="u-1")
    in_lane(60, batch=batch, user="u-2", state=JobState.RATE_LIMITED)
    eta = foreseen(batch).eta
    assert eta is not None
    assert (eta - timezone.now()).total_seconds() == pytest.approx(1200, abs=SLOW)
    make_jobs(1, batch=batch)
    assert foreseen(batch).eta is None  # nobody knows how long the job outside limits takes


def test_limits_that_have_room_for_all_of_a_batch_do_not_delay_it():
    limit(capacity=300.0)
    batch = make_batch(rate_per_second=0.1)
    in_lane(10, batch=batch)
    eta = foreseen(batch).eta
    assert eta is not None
    assert (eta - timezone.now()).total_seconds() == pytest.approx(100, abs=SLOW)


def test_a_large_batch_is_sampled_and_scaled_up(monkeypatch):
    monkeypatch.setattr("jobs.features.forecast.forecast.MAX_OF_A_BATCH_SAMPLED", 20)
    paced()
    use_up(1)
    batch = make_batch()
    in_lane(200, batch=batch)
    eta = foreseen(batch).eta
    assert eta is not None
    assert (eta - timezone.now()).total_seconds() == pytest.approx(2000, abs=SLOW)


def admin_page(job_id: UUID) -> str:
    client = Client()
    client.force_login(User.objects.create_superuser(f"operator-{uuid4()}"))
    response = client.get(f"/admin/jobs/job/{job_id}/change/")
    assert response.status_code == 200
    return response.content.decode()


def test_the_jobs_page_lists_what_it_waits_for(worker):
    made = paced()
    use_up(1)
    jobs = in_lane(30)
    LimitCounter.objects.filter(pk=counter_id(made.pk, "project:acme")).update(
        blocked_until=timezone.now() + timedelta(minutes=9), blocked_reason="token=abc123 refused"
    )
    page = admin_page(jobs[29].pk)
    assert "What it waits for" in page
    assert "writes is cooled down" in page
    assert "abc123" not in page
    assert "project:acme" in page
    assert "29 normal" in page
    assert "Should start" in page
    assert "30 calls at 0.1 a second of writes" in page


def test_the_page_of_a_job_that_does_not_wait_has_no_such_section(worker):
    limit()
    make_project()
    for job in (make_job(state=JobState.COMPLETED), make_job(state=JobState.IN_PROGRESS), in_lane()[0]):
        assert "What it waits for" not in admin_page(job.pk)


def test_ages_that_rules_never_reach_leave_the_order_as_it_is():
    rules = {tier: replace(rule, promote_after=None, promote_to=None) for tier, rule in aging_rules().items()}
    [low], [normal] = in_lane(priority="low", age=10 * HOUR), in_lane()
    found = find_position(low, rules, now=timezone.now())
    assert found is not None
    assert found.ahead == 1
    assert find(normal).ahead == 1  # with promotion it is the other way round


def test_a_limit_that_came_after_the_job_is_a_reason_too(worker):
    job = make_job(service=SHEETS, call_type="write")
    assert job.lane is None
    limit()
    use_up()
    assert codes(job)[0] == "limit"
