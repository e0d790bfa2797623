"""Pools of credentials: which member a claimed job goes with, and what becomes of one that its provider refuses."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any
from uuid import uuid4

import pytest

from jobs.classify import Failure
from jobs.lanes import pool_of_lane
from jobs.models import DeadLetter, Job, JobEvent
from jobs.services.claim import lanes
from jobs.services.claim.claim import claim_jobs, promote_due
from jobs.services.claim.lanes import LaneGate
from jobs.services.claim.park import Parking
from jobs.services.claim.turns import ClassTurns
from jobs.services.explain.waiting import explain_waiting
from jobs.services.finish.claimed import ClaimedJob
from jobs.services.finish.finish import Failed, record_outcomes, retry_policies
from jobs.services.submit.choose_way import NoBatchForm
from jobs.services.submit.prepare import JobSpec, Rules, prepare_job
from jobs.services.submit.submit import submit_batch, submit_job
from jobs.services.upkeep.watch_credentials import watch_credentials
from jobs.states import WAITING, JobState
from jobs.testing import drain
from queueops.tenancy import pools
from queueops.tenancy.credentials import CredentialNotAllowed
from queueops.tenancy.models import CredentialPool, CredentialPoolMember
from ratelimits.models import Counter as LimitCounter
from ratelimits.models import Limit, LimitOverride, QuotaAlert
from ratelimits.services.limiter.headroom import read_headroom
from ratelimits.services.limits import catalogue
from ratelimits.subjects import Subject
from tests.support.credential_pools import make_pool, secret_of
from tests.support.saturation import KIND, SERVICE, limits_changed

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def nothing_kept(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Lanes are listed at every look, and nothing is remembered of another test."""
    monkeypatch.setattr(lanes, "READING_SHARE", 1e9)
    monkeypatch.setattr(lanes, "CLOSED_LOOK_SECONDS", 0.0)
    pools.forget()
    Limit.objects.all().delete()
    catalogue.forget()
    yield
    pools.forget()
    catalogue.forget()


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


def out() -> set[str]:
    return set(CredentialPoolMember.objects.standing_out().values_list("credential__name", flat=True))


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
def test_a_refused_credential_is_taken_out_and_its_job_goes_on_with_another(status, code):
    make_pool(members=["key-1", "key-2"])
    submit(1)
    claimer = Claimer()
    [first] = claimer.claim()
    refuse(first, status=status, code=code)
    assert out() == {first.credential}
    job = Job.objects.get()
    assert (job.status, job.retry_count) == (JobState.RETRIED, 0)
    their_time_has_come()
    [second] = claimer.claim()
    assert {first.credential, second.credential} == {"key-1", "key-2"}


def their_time_has_come() -> None:
    Job.objects.filter(status=JobState.RETRIED).update(scheduled_at="2000-01-01T00:00:00Z")
    promote_due()


def test_a_job_that_two_credentials_are_forbidden_fails_itself_and_gives_the_first_back():
    make_pool(members=["key-1", "key-2", "key-3"])
    submit(1)
    claimer = Claimer()
    [first] = claimer.claim()
    refuse(first, status=403)
    their_time_has_come()
    [second] = claimer.claim()
    refuse(second, status=403)
    assert out() == set()
    assert Job.objects.get().status == JobState.FAILED
    assert DeadLetter.objects.get().http_status == 403


def test_when_none_is_left_jobs_wait_and_say_so_until_one_is_put_back():
    make_pool(members=["key-1"])
    limit_keys(10)
    submit(3)
    claimer = Claimer()
    [job] = claimer.claim(1)
    refuse(job)
    their_time_has_come()
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
    pools.put_back([CredentialPoolMember.objects.get().pk])
    watch_credentials()
    assert not QuotaAlert.objects.filter(resolved_at=None).exists()
    assert len(claimer.claim()) == 3


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


@pytest.mark.django_db(transaction=True)
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
