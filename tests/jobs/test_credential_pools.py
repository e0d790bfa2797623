"""Pools of credentials: which member a claimed job goes with, and what becomes of one that its provider refuses."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence
from datetime import timedelta
from typing import Any
from uuid import uuid4

import pytest
from django.db import transaction
from django.db.models.functions import Now
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from jobs.classify import Failure
from jobs.features.refused_calls.credential_refusals import note_accepted
from jobs.features.watches.watch_credentials import watch_credentials
from jobs.lanes import pool_of_lane
from jobs.models import DeadLetter, Job, JobEvent
from jobs.services.claim import lanes
from jobs.services.claim.claim import claim_jobs, promote_due
from jobs.services.claim.fair_share import ClassTurns
from jobs.services.claim.lanes import LaneGate
from jobs.services.claim.park import Parking
from jobs.services.explain.waiting import explain_waiting
from jobs.services.finish.claimed import ClaimedJob
from jobs.services.finish.finish import record_outcomes, retry_policies
from jobs.services.finish.outcomes import Failed, Succeeded
from jobs.services.submit.choose_delivery import NoBatchForm
from jobs.services.submit.prepare import Rules, prepare_job
from jobs.services.submit.spec import JobSpec
from jobs.services.submit.submit import submit_batch, submit_job
from jobs.states import WAITING, JobState
from jobs.testing import drain
from queueops.tenancy.credential_pools import pools, refusals
from queueops.tenancy.credential_pools.refusals import RefusedCall
from queueops.tenancy.models import CredentialPool, CredentialPoolMember, CredentialRefusal
from queueops.tenancy.secrets.credentials import CredentialNotAllowed
from ratelimits.limiter.view.headroom import read_headroom
from ratelimits.limits import catalogue
from ratelimits.models import Counter as LimitCounter
from ratelimits.models import Limit, LimitOverride, QuotaAlert
from ratelimits.subjects import Subject
from tests.support.credential_pools import a_credential, make_pool, secret_of
from tests.support.examples import examples
from tests.support.racing import run_together
from tests.support.saturation import KIND, SERVICE, limits_changed

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def looked_at_always(db: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Lanes are listed at every look."""
    monkeypatch.setattr(lanes, "READING_SHARE", 1e9)
    monkeypatch.setattr(lanes, "CLOSED_LOOK_SECONDS", 0.0)
    Limit.objects.all().delete()


def limit_keys(capacity: float, **figures: Any) -> None:
    fields = {"scope": "project", "algorithm": "sliding_window", "window_seconds": 60, **figures}
    Limit.objects.create(name="per-key", service=SERVICE, call_type="any", capacity=capacity, **fields)
    catalogue.forget()


def line(number: int, *, credential: str = "keys") -> dict[str, Any]:
    payload = {"credential": credential, "spreadsheet_id": f"s{number}", "range": "A1", "values": [[number]]}
    return {"kind": KIND, "payload": payload}


def submit(count: int, *, credential: str = "keys", project: str = "acme") -> None:
    lines = [line(number, credential=credential) for number in range(count)]
    batch = submit_batch(lines, project_id=project, actor="key:test")
    assert batch.error_count == 0, batch.errors


class Claimer:
    def __init__(self) -> None:
        self.gate = LaneGate()
        self.turns = ClassTurns(0.0)

    def claim(self, wanted: int = 100) -> list[ClaimedJob]:
        self.gate.hint()
        return claim_jobs(uuid4(), wanted=wanted, lease_seconds=30, turns=self.turns, gate=self.gate)

    def until_nothing_more(self) -> list[ClaimedJob]:
        found: list[ClaimedJob] = []
        while claimed := self.claim():
            found += claimed
        return found


def refuse(job: ClaimedJob, *, status: int | None = 401, code: str = "") -> None:
    failure = Failure(code or f"http_{status}", "ProviderError", f"answered {status}", "answered", status=status)
    failed = Failed(job, SERVICE, "moderate", repeatable=True, failure=failure, duration_ms=1.0)
    record_outcomes([failed], policies=retry_policies())


def accept(job: ClaimedJob, *, begun: float | None = None) -> None:
    """Its call, begun when it was claimed or at `begun`, is answered properly."""
    job = job if begun is None else job._replace(claimed_at=begun)
    record_outcomes([Succeeded(job, SERVICE, "{}", 1.0)], policies=retry_policies())


def out(project: str = "acme") -> set[str]:
    """Which credentials are out for a project."""
    return {one.credential for one in refusals.absences() if one.concerns(project)}


def refuse_all_of(
    credential: str, *, projects: Sequence[str] = ("acme",), calls: int = refusals.CALLS_OF_EVIDENCE
) -> None:
    """Evidence against a credential, of as many calls of each project."""
    refusals.record(
        RefusedCall(credential, project, job, job, "answered 401")
        for project in projects
        for job in [uuid4() for _ in range(calls)]
    )
    pools.forget()


def rest() -> None:
    """Let the time pass after which a credential may be tried."""
    then = Now() - timedelta(seconds=refusals.RESTED_SECONDS + 1)
    CredentialRefusal.objects.update(refused_at=then, tried_at=None)
    pools.forget()


def test_each_member_gives_what_its_own_limit_allows_and_none_more():
    make_pool(members=["key-1", "key-2", "key-3"])
    limit_keys(5)
    submit(30)
    assert {pool_of_lane(lane) for lane in Job.objects.values_list("lane", flat=True)} == {"keys"}
    claimed = Claimer().until_nothing_more()
    assert Counter(job.credential for job in claimed) == {"key-1": 5, "key-2": 5, "key-3": 5}


def test_a_claim_goes_by_room_and_a_full_member_leaves_the_others_open():
    make_pool(members=["key-1", "key-2"])
    limit_keys(4)
    LimitOverride.objects.create(limit=Limit.objects.get(), key="project:key-2", capacity=8)
    catalogue.forget()
    submit(20)
    claimed = Claimer().until_nothing_more()
    assert Counter(job.credential for job in claimed) == {"key-1": 4, "key-2": 8}
    assert Counter(job.credential for job in claimed[:6]) == {"key-1": 2, "key-2": 4}


def test_weights_share_out_what_is_less_than_the_quota():
    make_pool(members=["key-1", "key-2"], weights=[3, 1])
    limit_keys(100)
    submit(80)
    claimed = Claimer().until_nothing_more()
    shares = Counter(job.credential for job in claimed)
    assert sum(shares.values()) == 80
    assert abs(shares["key-1"] - 60) <= 1


def test_without_a_limit_members_take_turns_by_weight():
    make_pool(members=["key-1", "key-2"], weights=[2, 1])
    submit(30)
    shares = Counter(job.credential for job in Claimer().until_nothing_more())
    assert sum(shares.values()) == 30
    assert abs(shares["key-1"] - 20) <= 1


def test_a_pool_and_a_plain_credential_of_one_service_wait_for_their_own():
    pool = make_pool(members=["key-1", "key-2"])
    limit_keys(3)
    pool.members.get(credential__name="key-1").credential.projects.add(*pool.projects.all())
    submit(20)
    submit(20, credential="key-1")
    claimed = Claimer().until_nothing_more()
    assert Counter(job.credential for job in claimed) == {"key-1": 3, "key-2": 3}


def test_the_chosen_credential_is_told_by_the_claim_and_the_job_keeps_naming_the_pool():
    make_pool(members=["key-1"])
    submit(1)
    [claimed] = Claimer().claim()
    assert claimed.credential == "key-1"
    job = Job.objects.get()
    assert job.credential == "keys"
    told = JobEvent.objects.filter(data__has_key="credential").values_list("to_status", "data__credential")
    assert list(told) == [(JobState.DISPATCHED, "key-1")]


def test_what_a_member_held_is_settled_on_its_own_counter():
    make_pool(members=["key-1"])
    limit_keys(10)
    submit(1)
    Claimer().claim()
    assert [counter.key for counter in LimitCounter.objects.all()] == ["project:key-1"]


@pytest.mark.parametrize(("status", "code"), [(401, ""), (403, ""), (400, "api_key_invalid")])
def test_a_refused_job_goes_on_with_each_other_member_once_and_its_refusal_alone_takes_none_out(status, code):
    make_pool(members=["key-1", "key-2", "key-3"])
    submit(1)
    claimer = Claimer()
    shown = []
    for _ in range(2):
        [job] = claimer.claim()
        shown.append(job.credential)
        refuse(job, status=status, code=code)
        row = Job.objects.get()
        assert (row.status, row.retry_count) == (JobState.RETRIED, 0)
        their_time_has_come()
    [last] = claimer.claim()
    assert {*shown, last.credential} == {"key-1", "key-2", "key-3"}
    accept(last)
    assert Job.objects.get().status == JobState.COMPLETED
    assert out() == set()


def their_time_has_come() -> None:
    Job.objects.filter(status=JobState.RETRIED).update(scheduled_at="2000-01-01T00:00:00Z")
    promote_due()


def test_a_key_that_several_calls_are_refused_with_is_out_and_no_call_shows_it():
    make_pool(members=["key-1", "key-2"])
    submit(20)
    claimer = Claimer()
    shown = 0
    while jobs := claimer.claim(1):
        [job] = jobs
        if job.credential == "key-1":
            shown += 1
            refuse(job)
            their_time_has_come()
        else:
            accept(job)
    assert shown == refusals.CALLS_OF_EVIDENCE
    assert out() == {"key-1"}
    assert set(Job.objects.values_list("status", "retry_count")) == {(JobState.COMPLETED, 0)}


def test_jobs_that_left_as_one_call_are_one_piece_of_evidence():
    make_pool(members=["key-1", "key-2"])
    call = uuid4()
    refusals.record(RefusedCall("key-1", "acme", uuid4(), call, "answered 401") for _ in range(50))
    assert out() == set()


def test_a_job_that_every_member_forbids_fails_itself_and_counts_against_none():
    make_pool(members=["key-1", "key-2", "key-3"])
    submit(1)
    claimer = Claimer()
    for _ in range(3):
        [job] = claimer.claim()
        refuse(job, status=403)
        their_time_has_come()
    assert not CredentialRefusal.objects.filter(disproved=False).exists()
    assert Job.objects.get().status == JobState.FAILED
    letter = DeadLetter.objects.get()
    assert letter.http_status == 403
    assert "refused with 3 of its pool's credentials" in letter.error_message


def test_content_that_is_blocked_with_a_403_counts_against_no_member_and_fails_its_job_at_once():
    make_pool(members=["key-1", "key-2"])
    submit(5)
    for job in Claimer().claim():
        refuse(job, status=403, code="answer_blocked")
    assert not CredentialRefusal.objects.exists()
    assert set(Job.objects.values_list("status", flat=True)) == {JobState.FAILED}
    assert "its pool's credentials" not in DeadLetter.objects.earliest("pk").error_message


def test_a_job_refused_by_all_waits_and_fails_once_others_were_accepted_since():
    make_pool(members=["key-1"])
    submit(1)
    claimer = Claimer()
    [bad] = claimer.claim()
    refuse(bad)
    row = Job.objects.get()
    assert (row.status, row.retry_count) == (JobState.RETRIED, 0)
    their_time_has_come()
    [again] = claimer.claim()
    refusals.accepted([("key-1", again.claimed_at)])  # as another job's success tells
    refuse(again)
    assert Job.objects.get().status == JobState.FAILED
    assert "1 accepted other calls since" in DeadLetter.objects.get().error_message


def test_a_call_that_began_before_the_refusal_proves_nothing_and_one_after_it_puts_the_member_back():
    make_pool(members=["key-1", "key-2"])
    submit(1)
    [job] = Claimer().claim()
    refuse_all_of("key-1")
    job = job._replace(credential="key-1")
    note_accepted([Succeeded(job._replace(claimed_at=job.claimed_at - 5), SERVICE, "{}", 1.0)])
    assert out() == {"key-1"}
    note_accepted([Succeeded(job, SERVICE, "{}", 1.0)])
    assert out() == set()


def test_a_member_that_one_project_is_refused_with_stays_in_for_the_others():
    make_pool(members=["key-1", "key-2"])
    refuse_all_of("key-1", calls=50)
    assert out("acme") == {"key-1"}
    assert out("other") == set()
    assert [one.credential for one in pools.members_of("keys", "acme")] == ["key-2"]
    assert [one.credential for one in pools.members_of("keys", "other")] == ["key-1", "key-2"]


def test_a_member_that_several_projects_are_refused_with_is_out_for_all():
    make_pool(members=["key-1", "key-2"])
    refuse_all_of("key-1", projects=["a", "b"], calls=1)
    assert out("other") == set()
    refuse_all_of("key-1", projects=["c"], calls=1)
    assert out("other") == {"key-1"}


@given(
    deeds=st.lists(st.tuples(st.sampled_from(["key-1", "key-2", "key-3"]), st.integers(0, 3), st.booleans())),
)
@settings(max_examples=examples(30), suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture])
def test_one_projects_refusals_never_take_a_member_from_another(deeds):
    """Whatever order: many jobs of one tenant refused, over and over, and now and then accepted."""
    with transaction.atomic():
        make_pool("any", service="any")
        jobs = [uuid4() for _ in range(4)]
        for key, job, is_accepted in deeds:
            if is_accepted:
                refusals.accepted([(key, time.time())])
            else:
                refusals.record([RefusedCall(key, "noisy", jobs[job], jobs[job], "answered 401")])
            pools.forget()
            assert len(pools.members_of("any", "quiet")) == 3
        transaction.set_rollback(True)
    pools.forget()


@given(asking=st.lists(st.sampled_from(["a", "b", "c", "d"]), min_size=20, max_size=40))
@settings(max_examples=examples(30), suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture])
def test_a_revoked_key_is_out_for_whoever_asks_after_a_few_calls(asking):
    with transaction.atomic():
        make_pool("any", service="any")
        shown = 0
        for project in asking:
            pools.forget()
            if any(one.credential == "key-1" for one in pools.members_of("any", project)):
                shown += 1
                job = uuid4()
                refusals.record([RefusedCall("key-1", project, job, job, "answered 401")])
        transaction.set_rollback(True)
    pools.forget()
    # Of two projects all but the last that each may waste, and one of a third: then it is out for all.
    assert shown <= (refusals.PROJECTS_OF_EVIDENCE - 1) * refusals.CALLS_OF_EVIDENCE + 1


@pytest.mark.django_db(transaction=True)
def test_evidence_that_processes_write_at_once_is_added_up():
    make_pool(members=["key-1", "key-2"])
    job = uuid4()

    def one_each(place: int) -> None:
        with transaction.atomic():
            own = uuid4()
            refusals.record(
                [RefusedCall("key-1", "acme", own, own, "401"), RefusedCall("key-2", "acme", job, job, "401")]
            )
            refusals.accepted([("key-2", 0.0)])

    run_together(8, one_each)
    [absent] = [one for one in refusals.absences() if one.credential == "key-1"]
    assert (absent.project, absent.calls) == ("acme", 8)


@pytest.mark.django_db(transaction=True)
def test_of_many_that_want_to_try_a_rested_credential_one_does():
    make_pool(members=["key-1"])
    refuse_all_of("key-1")
    rest()
    let_go = run_together(8, lambda _: refusals.begin_trial("key-1"))
    assert sorted(let_go) == [False] * 7 + [True]


def test_when_none_is_left_jobs_wait_and_say_so_and_one_tries_until_it_is_accepted():
    make_pool(members=["key-1"])
    limit_keys(10)
    submit(3)
    claimer = Claimer()
    refuse_all_of("key-1")
    assert claimer.claim() == []
    Parking().park(claimer.gate.waiting)
    assert set(Job.objects.values_list("status", flat=True)) == {JobState.QUEUED}
    told = explain_waiting(Job.objects.earliest("pk"))
    assert told is not None
    assert told.reasons[0].code == "credentials"
    assert told.forecast is None
    watch_credentials()
    alert = QuotaAlert.objects.get(kind="credential_refused", resolved_at=None)
    assert (alert.subject, alert.severity, alert.projects) == ("key-1", "critical", frozenset({"acme"}))
    assert "3 calls of acme were refused" in alert.message
    rest()
    [trial] = claimer.claim()
    assert claimer.claim() == []
    accept(trial)
    watch_credentials()
    assert not QuotaAlert.objects.filter(resolved_at=None).exists()
    assert len(claimer.claim()) == 2


def test_jobs_of_a_pool_without_a_member_wait_and_say_so_until_it_has_one():
    pool = make_pool(members=[])
    limit_keys(10)
    submit(1)
    claimer = Claimer()
    assert claimer.claim() == []
    told = explain_waiting(Job.objects.get())
    assert told is not None
    assert (told.reasons[0].code, told.reasons[0].text) == ("credentials", "the pool keys has no credential")
    assert told.forecast is None
    CredentialPoolMember.objects.create(pool=pool, credential=a_credential("key-1"))
    pools.forget()
    assert [job.credential for job in claimer.claim()] == ["key-1"]


def test_the_alert_of_a_member_that_is_out_names_it_its_jobs_and_for_whom():
    make_pool(members=["key-1", "key-2"])
    refuse_all_of("key-1")
    watch_credentials()
    alert = QuotaAlert.objects.get(kind="credential_refused", resolved_at=None)
    assert alert.severity == "warning"
    refused = {str(job) for job in CredentialRefusal.objects.values_list("job", flat=True)}
    assert set(alert.figures["jobs"]) == refused
    assert not any(job in alert.message for job in refused), (
        "nobody reads five ids in a message: its page links to them"
    )
    assert "It is out for acme; their jobs go on with the others" in alert.message


def test_an_alert_is_critical_as_long_as_a_project_has_no_other_key():
    def alerts() -> dict[str, str]:
        watch_credentials()
        return dict(QuotaAlert.objects.filter(resolved_at=None).values_list("subject", "severity"))

    make_pool(members=["key-1", "key-2"])
    refuse_all_of("key-1")
    assert alerts() == {"key-1": "warning"}
    refuse_all_of("key-2")
    assert alerts() == {"key-1": "critical", "key-2": "critical"}
    refusals.accepted([("key-2", time.time())])
    assert alerts() == {"key-1": "warning"}
    refusals.accepted([("key-1", time.time())])
    assert alerts() == {}


def test_a_plain_credential_that_is_refused_fails_its_job_as_before():
    pool = make_pool(members=["key-1"])
    pool.members.get().credential.projects.add(*pool.projects.all())
    submit(1, credential="key-1")
    [job] = Claimer().claim()
    refuse(job)
    assert out() == set()
    assert Job.objects.get().status == JobState.FAILED


def test_a_project_that_may_not_use_the_pool_is_refused():
    make_pool()
    CredentialPool.objects.get().projects.clear()
    with pytest.raises(CredentialNotAllowed):
        submit_job(JobSpec.model_validate(line(1)), project_id="acme", actor="key:test")


def test_a_pools_job_goes_by_no_batch_as_that_would_have_one_key_for_all_its_lines():
    make_pool(service="openai")
    payload = {"provider": "openai", "credential": "keys", "model": "small-1", "prompt": "Why?"}
    spec = JobSpec.model_validate({"kind": "llm.generate", "payload": payload, "via": "batch"})
    with pytest.raises(NoBatchForm):
        prepare_job(spec, rules=Rules("acme"))


def test_what_waits_for_a_pool_is_told_by_the_member_that_has_room_first():
    make_pool(members=["key-1", "key-2"])
    limit_keys(2)
    submit(10)
    Claimer().until_nothing_more()
    told = explain_waiting(Job.objects.filter(status__in=WAITING).earliest("pk"))
    assert told is not None
    [limit] = [reason for reason in told.reasons if reason.limit]
    assert limit.key in {"project:key-1", "project:key-2"}
    assert told.forecast is not None


def test_the_room_of_a_pool_is_its_members_added_up():
    make_pool(members=["key-1", "key-2", "key-3"])
    limit_keys(4)
    subject = Subject(SERVICE, "write", "pool:keys", "", "")
    assert read_headroom([subject])[subject].calls == 12


@pytest.mark.django_db
def test_a_key_that_is_revoked_while_jobs_run_fails_none_of_them(sandbox):
    sandbox.turn(google_sheets=dict.fromkeys(("writes_per_project", "writes_per_user")))
    make_pool(members=["key-1", "key-2", "key-3"], url=sandbox.url)
    limits_changed()
    sandbox.revoke(secret_of("key-2"))
    submit(60)
    drain()
    assert set(Job.objects.values_list("status", "retry_count")) == {(JobState.COMPLETED, 0)}
    assert out() == {"key-2"}
    assert Counter(call["project"] for call in sandbox.calls(accepted=True)).keys() == {"key-1", "key-3"}
