"""The outage breaker: what opens it, for whom, who probes, what that costs, and how it ends."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any
from uuid import UUID, uuid4

import psycopg
import pytest
from django.contrib.postgres.functions import TransactionNow as Now
from django.db import connection, connections, transaction
from django.db.models import F

from jobs.backoff import Policy
from jobs.classify import Failure
from jobs.features.outages import outages
from jobs.features.outages.breaker import MIN_CALLS, SECONDING, THRESHOLD, BreakerDuty, tend_breakers
from jobs.features.watches import watch
from jobs.models import DeadLetter, Job, JobEvent, ServiceBreaker
from jobs.services.claim import lanes
from jobs.services.claim.claim import claim_jobs, promote_due
from jobs.services.claim.fair_share import ClassTurns
from jobs.services.claim.lanes import LaneGate
from jobs.services.finish.claimed import ClaimedJob
from jobs.services.finish.finish import record_outcomes
from jobs.services.finish.outcomes import Failed, Succeeded
from jobs.services.submit.spec import JobSpec
from jobs.services.submit.submit import submit_job
from jobs.states import JobState
from queueops.audit.models import AuditEntry
from queueops.tenancy.models import Credential
from queueops.tenancy.secrets.credentials import seal
from ratelimits.limits import catalogue
from ratelimits.models import Limit, QuotaAlert
from tests.factories import SERVICE, make_job, make_jobs, make_project
from tests.support.people import signed_in
from tests.support.processes import wait_for
from tests.support.racing import run_together, waiting_for

pytestmark = pytest.mark.django_db

OUT = Failure("http_503", "E", "does not answer", "answered", status=503)
TARGET = "https://api.example:443"
POLICY = {"moderate": Policy(0.0, 1.0, 0.0, 2, "none", None)}


def claim(wanted: int = 100) -> list[ClaimedJob]:
    promote_due()
    return claim_jobs(uuid4(), wanted=wanted, lease_seconds=30, turns=ClassTurns())


def fail(jobs: Sequence[ClaimedJob], *, policies: dict[str, Policy] = POLICY) -> None:
    record_outcomes(
        [Failed(job, SERVICE, "moderate", repeatable=True, failure=OUT, duration_ms=1) for job in jobs],
        policies=policies,
    )


def answer(jobs: Sequence[ClaimedJob]) -> None:
    record_outcomes([Succeeded(job, SERVICE, None, 1.0) for job in jobs], policies=POLICY)


def out() -> set[str]:
    return set(ServiceBreaker.objects.exclude(opened_at=None).values_list("project_id", flat=True))


def go_out(project: str = "acme", count: int = THRESHOLD, **fields: Any) -> list[Job]:
    """Have that many jobs of a project fail at once, and park what is left."""
    made = make_jobs(count, project=project, target=TARGET, **fields)
    fail([job for job in claim() if job.project == project])
    assert project in out()
    promote_due()
    tend_breakers()
    return made


def probe() -> ClaimedJob:
    """Send the next probe, due or not, and claim it."""
    ServiceBreaker.objects.update(next_probe_at=Now(), probed_at=F("probed_at") - timedelta(hours=1))
    tend_breakers()
    [job] = claim()
    return job


def test_one_bad_job_opens_nothing_however_often_it_fails_and_ends_with_its_attempts_spent():
    jobs = make_jobs(MIN_CALLS - 1, target=TARGET)
    for _ in range(3):
        fail(claim())
    assert not out()
    assert set(Job.objects.values_list("status", "retry_count")) == {("failed", 2)}
    assert DeadLetter.objects.count() == len(jobs)


def test_few_calls_open_nothing_with_more_failures_than_it_takes():
    make_jobs(MIN_CALLS - 1, target=TARGET)
    patient = {"moderate": Policy(0.0, 1.0, 0.0, THRESHOLD, "none", None)}
    for _ in range(THRESHOLD):
        fail(claim(), policies=patient)
    assert ServiceBreaker.objects.get().failures > THRESHOLD
    assert not out()


def test_a_breaker_holds_the_work_of_its_project_for_its_address_and_no_other():
    go_out()
    others = [make_job(target="https://api.example:8443"), make_job(project="other", target=TARGET)]
    make_job(target=TARGET)
    assert {job.id for job in claim()} == {job.pk for job in others}


def test_where_another_project_is_out_few_failures_are_enough_and_without_any_nothing_is_held():
    go_out()
    make_jobs(SECONDING, project="other", target=TARGET)
    make_jobs(1, project="third", target=TARGET)
    claimed = claim()
    fail([job for job in claimed if job.project == "other"])
    assert out() == {"acme", "other"}


def test_an_answer_to_anybody_closes_it_for_everybody():
    go_out()
    go_out("other", SECONDING)
    make_job(project="third", target=TARGET)
    answer([job for job in claim() if job.project == "third"])
    assert not out()
    tend_breakers()
    assert not Job.objects.filter(status=JobState.RATE_LIMITED).exists()


def test_probes_go_round_over_projects_and_jobs_and_spend_their_attempts():
    go_out()
    go_out("other", SECONDING)
    sent: list[ClaimedJob] = []
    for _ in range(6):
        sent.append(probe())
        fail(sent[-1:])
    assert len({job.id for job in sent}) == 6
    assert {job.project for job in sent[:2]} == {"acme", "other"}
    assert set(Job.objects.filter(pk__in=[job.id for job in sent]).values_list("retry_count", flat=True)) == {1}
    assert set(Job.objects.exclude(pk__in=[job.id for job in sent]).values_list("retry_count", flat=True)) == {0}


def test_a_project_that_has_no_job_to_send_leaves_the_probes_of_its_target_to_the_others():
    go_out()
    go_out("other", SECONDING)
    Job.objects.filter(project_id="acme").update(status=JobState.RETRIED, scheduled_at=Now() + timedelta(minutes=1))
    ServiceBreaker.objects.filter(project_id="other").update(probed_at=Now() - timedelta(hours=1))
    assert probe().project == "other"


def test_the_first_probe_is_of_a_path_that_has_not_failed_and_the_bad_one_is_its_own_from_then_on():
    bad = go_out(path=1)
    good = make_job(target=TARGET, path=2)
    tend_breakers()
    first = probe()
    assert first.id == good.pk
    answer([first])
    tend_breakers()
    for _ in range(3):
        fail(claim())
        assert not out()
    assert set(Job.objects.filter(pk__in=[job.pk for job in bad]).values_list("status", "retry_count")) == {
        ("failed", 2)
    }


def test_jobs_that_open_a_breaker_again_pay_for_it():
    jobs = go_out(count=THRESHOLD + 1)
    answer([probe()])
    tend_breakers()
    ServiceBreaker.objects.update(spared=[])
    fail(claim())
    assert out() == {"acme"}
    assert set(Job.objects.filter(pk__in=[job.pk for job in jobs], status="retried").values_list("retry_count")) == {
        (1,)
    }


def test_a_breaker_that_nothing_waits_for_is_forgotten():
    go_out()
    Job.objects.filter(status=JobState.RATE_LIMITED).update(held=True)
    tend_breakers()
    assert not ServiceBreaker.objects.exists()


@pytest.mark.parametrize("state", [None, JobState.IN_PROGRESS, JobState.RETRIED, JobState.RATE_LIMITED])
def test_a_breaker_disappears_within_a_second_of_the_last_job_that_needs_it(state):
    go_out()
    duty = BreakerDuty()
    duty.do()
    assert out() == {"acme"}
    Job.objects.update(held=True)
    if state is not None:
        make_job(state=state, target=TARGET)
        duty.do()
        assert out() == {"acme"}
        Job.objects.filter(held=False).update(target="https://elsewhere:443")
    duty.do()
    assert not out()


def test_jobs_parked_under_another_key_are_released():
    made = go_out()
    ServiceBreaker.objects.update(target="https://elsewhere:443")
    tend_breakers()
    assert set(Job.objects.filter(pk__in=[job.pk for job in made]).values_list("status", flat=True)) == {"queued"}


def ask(credential: str) -> Job:
    payload = {"provider": "openai", "credential": credential, "model": "m", "prompt": "p"}
    spec = JobSpec(kind="llm.generate", payload=payload)
    return Job.objects.get(pk=submit_job(spec, project_id="acme", actor="key:test").id)


def make_credentials(*names: str) -> None:
    for name in names:
        row = Credential.objects.create(
            name=name, service="openai", secret=seal({"api_key": "x"}), base_url=f"https://{name}.example/v1"
        )
        row.projects.set([make_project("acme")])


def test_what_is_out_does_not_stand_before_another_credential_s_work_in_its_lane():
    Limit.objects.create(name="all", service="openai", call_type="any", scope="project", capacity=1000)
    catalogue.forget()
    make_credentials("dead", "alive")
    dead = [ask("dead") for _ in range(30)]
    alive = ask("alive")
    assert (dead[0].target, alive.target) == ("https://dead.example:443 dead", "https://alive.example:443 alive")
    ServiceBreaker.objects.create(service="openai", target=dead[0].target, project_id="acme", opened_at=Now())
    tend_breakers()
    assert [job.id for job in claim(wanted=1)] == [alive.pk]


def test_a_probe_that_a_limit_refuses_takes_no_free_slot_from_others_and_keeps_no_executor_busy(monkeypatch):
    monkeypatch.setattr(lanes, "PROBE_REST_SECONDS", 600.0)
    Limit.objects.create(name="all", service="openai", call_type="any", scope="project", capacity=1)
    catalogue.forget()
    make_credentials("dead")
    first, second = ask("dead"), ask("dead")
    gate, turns = LaneGate(), ClassTurns()

    def claim_one() -> list[UUID]:
        return [job.id for job in claim_jobs(uuid4(), wanted=1, lease_seconds=30, turns=turns, gate=gate)]

    assert claim_one() == [first.pk]  # and the quota is used up
    ServiceBreaker.objects.create(service="openai", target=first.target, project_id="acme", opened_at=Now())
    tend_breakers()
    ServiceBreaker.objects.update(next_probe_at=Now())
    tend_breakers()
    assert ServiceBreaker.objects.get().probe_job_id == second.pk
    others = [make_job(project="other").pk for _ in range(3)]
    assert [job for _ in range(5) for job in claim_one()] == others
    assert not gate.has_refused  # or it would claim again at once, and for ever


@pytest.mark.django_db(transaction=True)
def test_two_flushes_with_opposite_answers_do_not_wait_for_each_other():
    """One that waits for the first target's breaker holds none of a later one's yet."""
    for target in ("https://a.example:443", "https://b.example:443"):
        ServiceBreaker.objects.create(service=SERVICE, target=target, project_id=make_project("acme").pk, failures=1)
    make_jobs(1, project="acme", target="https://a.example:443")
    make_jobs(1, project="acme", target="https://b.example:443")
    by_target = {job.target: job for job in claim()}
    failed = Failed(
        by_target["https://a.example:443"], SERVICE, "moderate", repeatable=True, failure=OUT, duration_ms=1
    )
    succeeded = Succeeded(by_target["https://b.example:443"], SERVICE, None, 1.0)
    lock = "SELECT FROM jobs_servicebreaker WHERE target = %s FOR UPDATE"
    with (
        psycopg.connect(**connection.get_connection_params() | {"cursor_factory": None}) as other,
        ThreadPoolExecutor(1) as threads,
    ):
        other.execute(lock, ["https://a.example:443"])
        flush = threads.submit(record_apart, [failed, succeeded])
        wait_for(lambda: waiting_for(other), what="the flush at the first breaker")
        other.execute(f"{lock} NOWAIT", ["https://b.example:443"])
        other.rollback()
        flush.result(30)


@pytest.mark.django_db(transaction=True)
def test_two_flushes_that_see_a_target_fail_for_the_first_time_are_counted_together():
    """Or an outage would spend the attempts of a threshold for each executor."""
    make_jobs(THRESHOLD, target=TARGET)
    last, *others = [
        Failed(job, SERVICE, "moderate", repeatable=True, failure=OUT, duration_ms=1) for job in claim(THRESHOLD)
    ]
    with ThreadPoolExecutor(1) as threads, transaction.atomic():
        record_outcomes(others, policies=POLICY)
        flush = threads.submit(record_apart, [last])
        mine = connection.connection
        wait_for(lambda: run_together(1, lambda _: waiting_for(mine))[0], what="the second flush at the row")
    flush.result(30)
    assert ServiceBreaker.objects.get().failures == THRESHOLD
    assert out() == {"acme"}
    assert set(Job.objects.filter(pk=last.job.id).values_list("retry_count", flat=True)) == {0}


@pytest.mark.django_db(transaction=True)
def test_a_probe_that_is_being_claimed_as_the_next_falls_due_is_the_only_one():
    go_out(count=THRESHOLD + 1)
    ServiceBreaker.objects.update(next_probe_at=Now())
    tend_breakers()
    first = ServiceBreaker.objects.get().probe_job_id
    ServiceBreaker.objects.update(next_probe_at=Now(), probed_at=F("probed_at") - timedelta(hours=1))
    with ThreadPoolExecutor(1) as threads, transaction.atomic():
        [claimed] = claim_jobs(uuid4(), wanted=100, lease_seconds=30, turns=ClassTurns())
        threads.submit(tend_apart).result(30)
    assert claimed.id == ServiceBreaker.objects.get().probe_job_id == first
    assert claim() == []


@pytest.mark.django_db
def test_a_probe_that_nobody_claims_gives_way_to_the_next():
    go_out(count=THRESHOLD + 1)
    ServiceBreaker.objects.update(next_probe_at=Now())
    tend_breakers()
    first = ServiceBreaker.objects.get().probe_job_id
    second = probe()
    assert second.id != first is not None
    assert Job.objects.get(pk=first).status == JobState.RATE_LIMITED
    assert claim() == []


def tend_apart() -> None:
    try:
        tend_breakers()
    finally:
        connections.close_all()


def record_apart(outcomes: Sequence[Failed | Succeeded]) -> None:
    try:
        record_outcomes(outcomes, policies=POLICY)
    finally:
        connections.close_all()


def test_an_operator_closes_a_breaker_or_sends_its_probe_and_it_is_written_down():
    go_out(count=THRESHOLD + 1)
    row = ServiceBreaker.objects.get()
    page = f"/admin/jobs/servicebreaker/{row.pk}"
    for role, status in (("viewer", 403), ("operator", 302)):
        answer_ = signed_in(role).post(f"{page}/probe/", {"confirmed": "yes", "reason": ""})
        assert answer_.status_code == status
    tend_breakers()
    assert len(claim()) == 1
    assert signed_in("operator").post(f"{page}/close/", {"confirmed": "yes"}).status_code == 200  # it wants a reason
    closed = signed_in("operator").post(f"{page}/close/", {"confirmed": "yes", "reason": "it works"})
    assert closed.status_code == 302
    assert not ServiceBreaker.objects.exists()
    entries = AuditEntry.objects.filter(action__in=["probe_breaker", "close_breaker"]).order_by("created_at")
    assert [(one.action, one.project_id, one.reason) for one in entries] == [
        ("probe_breaker", "acme", ""),
        ("close_breaker", "acme", "it works"),
    ]


def test_an_outage_is_told_once_rises_with_the_projects_it_hits_and_is_over_after_a_calm():
    go_out()
    watch.watch_outages()
    alert = QuotaAlert.objects.get()
    assert (alert.kind, alert.severity, alert.message) == (
        "outage",
        "warning",
        f"{SERVICE} at {TARGET} does not answer acme; 10 jobs wait unharmed",
    )
    go_out("other", SECONDING)
    watch.watch_outages()
    assert QuotaAlert.objects.get().severity == "critical"
    answer([probe()])
    watch.watch_outages()
    assert QuotaAlert.objects.get().resolved_at is None
    ServiceBreaker.objects.update(closed_at=Now() - watch.CALM)
    watch.watch_outages()
    assert QuotaAlert.objects.get().resolved_at is not None


def test_work_held_by_an_outage_is_counted_apart():
    go_out()
    assert outages.count_held() == THRESHOLD
    held = Job.objects.filter(status=JobState.RATE_LIMITED).first()
    assert held is not None
    assert outages.is_held(held, outages.out_keys())
    assert (
        JobEvent.objects.filter(job_id=held.pk).order_by("-id")[0].message == f"{SERVICE} at {TARGET} does not answer"
    )


def test_a_duty_looks_for_breakers_that_no_job_needs_less_often_than_it_tends_the_others():
    duty = BreakerDuty()
    old = {"service": "gone", "project_id": "acme", "updated_at": Now() - timedelta(days=1)}
    ServiceBreaker.objects.create(**old)
    duty.do()
    assert not ServiceBreaker.objects.exists()
    ServiceBreaker.objects.create(**old)
    duty.do()
    assert ServiceBreaker.objects.exists()
    duty._forget_at = float("-inf")
    duty.do()
    assert not ServiceBreaker.objects.exists()
