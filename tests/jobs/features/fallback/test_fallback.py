"""Jobs that go on with another model or provider: when, how, and what the log and the result tell of it."""

from __future__ import annotations

import random
from dataclasses import fields, replace
from datetime import timedelta
from itertools import groupby
from operator import attrgetter
from typing import Any
from uuid import UUID, uuid4

import pytest
from cryptography.fernet import Fernet
from django.conf import settings as django_settings
from django.contrib.postgres.functions import TransactionNow as DbNow
from django.db import connection, connections, transaction
from django.db.models import F

from jobs.classify import Failure
from jobs.executor.duties import Duties
from jobs.executor.pump import PLANNING
from jobs.features.fallback import fallback, ways
from jobs.features.fallback.fallback import FallbackRounds, WaitsForWay, _way_of, move_another_way, reroute_waiting
from jobs.features.recovery.event_fold import FoldedJob, fold
from jobs.features.recovery.replay import repair
from jobs.features.watches.watch_unserved import watch_unserved
from jobs.handlers.fallback import CONDITIONS, Fallback, after_wait, next_way
from jobs.handlers.llm.requests.payload import LlmGenerate
from jobs.handlers.registry import find_handler
from jobs.models import Job, JobEvent, ServiceBreaker
from jobs.services.claim.claim import claim_jobs, promote_due
from jobs.services.claim.fair_share import ClassTurns
from jobs.services.finish.claimed import ClaimedJob
from jobs.services.finish.finish import record_outcomes, retry_policies
from jobs.services.finish.outcomes import Failed, Succeeded
from jobs.services.submit import prepare
from jobs.services.submit.spec import InvalidJob, JobSpec
from jobs.services.submit.submit import submit_job
from jobs.services.upkeep.executors import register
from jobs.states import JobState
from jobs.testing import drain
from jobs.transitions import Move, move_jobs
from queueops.tenancy.models import Credential, Project
from queueops.tenancy.secrets.credentials import CredentialNotAllowed, seal
from queueops.tenancy.secrets.encryption import forget_encrypted
from ratelimits.limits import catalogue
from ratelimits.models import Limit, QuotaAlert
from tests.factories import make_jobs
from tests.support.cases import every_case
from tests.support.plans import explain_file, nodes, rows_read
from tests.support.racing import run_together
from tests.support.saturation import limits_changed

pytestmark = pytest.mark.django_db

KEY, SECRET = ("k1", Fernet.generate_key().decode()), Fernet.generate_key().decode()
QUESTION = "Why is the sky blue? " * 20  # 105 tokens by the stand-ins' rule
CHOOSING = {"most": 200, "kinds": ["llm.generate"], "left": [], "first": 0, "width": 256}
OTHER = {"provider": "gemini", "credential": "g", "model": "large-1"}


@pytest.fixture(autouse=True)
def no_limits():
    Limit.objects.all().delete()


def open_credentials(url: str = "http://127.0.0.1:9") -> None:
    project, _ = Project.objects.get_or_create(pk="acme", defaults={"name": "acme"})
    for name, service in (("o", "openai"), ("g", "gemini")):
        secret = seal({"api_key": "project:acme/user:robot"})
        row = Credential.objects.create(name=name, service=service, secret=secret, base_url=url)
        row.projects.add(project)


def submit(*steps: dict[str, Any], **fields: Any) -> Job:
    payload = {"provider": "openai", "credential": "o", "model": "small-1", "prompt": QUESTION, "fallback": list(steps)}
    spec = JobSpec.model_validate({"kind": "llm.generate", "payload": {**payload, **fields}})
    return Job.objects.get(pk=submit_job(spec, project_id="acme", actor="key:test").id)


def claim() -> list[ClaimedJob]:
    return claim_jobs(uuid4(), wanted=10, lease_seconds=30, turns=ClassTurns(0.0))


def fail(job: ClaimedJob, failure: Failure) -> None:
    failed = Failed(job, job.service, "moderate", repeatable=True, failure=failure, duration_ms=1.0)
    record_outcomes([failed], policies=retry_policies())


def park(job: Job, *, waited: float) -> None:
    """As a limit does that has no room, and so long ago."""
    move_jobs("park", [Move(job.pk, delay_seconds=60, message="a limit has no room")])
    passed = timedelta(seconds=waited)
    Job.objects.filter(pk=job.pk).update(
        eligible_since=F("eligible_since") - passed, fallback_at=F("fallback_at") - passed
    )


def open_breaker(job: Job, *, probe: UUID | None = None) -> None:
    job.refresh_from_db()
    ServiceBreaker.objects.create(
        service=job.service, target=job.target, project_id="acme", failures=9, opened_at=DbNow(), probe_job_id=probe
    )


def way_of(job: Job) -> tuple[str, str | None, str | None, int, str]:
    job.refresh_from_db()
    return job.service, job.model, job.credential, job.fallback_step, job.fallback_reason


def test_the_first_later_way_that_is_for_the_condition_is_taken():
    ways = [
        Fallback("a", frozenset({"unavailable"})),
        Fallback("b", frozenset({"rate_limited"}), 60),
        Fallback("c", frozenset(CONDITIONS), 10),
    ]
    table = [
        (0, "rate_limited", 2),
        (0, "unavailable", 1),
        (0, "context_too_long", 3),
        (1, "unavailable", 3),
        (2, "rate_limited", 3),
        (3, "unavailable", None),
    ]
    assert [(step, reason, next_way(ways, step, reason)) for step, reason, _ in table] == table  # type: ignore[arg-type]
    assert [after_wait(ways, step) for step in range(4)] == [60, 60, 10, None]


def test_what_is_left_out_of_a_step_is_as_in_the_payload():
    payload = LlmGenerate.model_validate(
        {
            "provider": "openai",
            "service": "llm",
            "credential": "o",
            "model": "small-1",
            "prompt": "x",
            "fallback": [{"model": "large-1"}, OTHER, {"provider": "gemini", "service": "g2", "model": "m"}],
        }
    )
    ways = [way.payload for way in payload.ways()]
    assert [(way.service_name, way.credential, way.model) for way in ways] == [
        ("llm", "o", "large-1"),
        ("gemini", "g", "large-1"),
        ("g2", "o", "m"),
    ]


def test_steps_are_held_against_what_the_payload_is_held_against():
    open_credentials()
    with pytest.raises(CredentialNotAllowed) as refused:
        submit({"provider": "gemini", "model": "large-1"})
    assert list(refused.value.fields) == ["payload.fallback.0.credential"]
    with pytest.raises(InvalidJob):
        submit({**OTHER, "model": "models/large"})
    with pytest.raises(InvalidJob):
        submit({**OTHER, "when": ["whenever"]})


def test_who_waits_too_long_for_a_limit_goes_on_with_the_next():
    open_credentials()
    soon, later, never = (
        submit({**OTHER, "after_seconds": 60}),
        submit(OTHER),
        submit({**OTHER, "when": ["unavailable"]}),
    )
    for job in (soon, later, never):
        park(job, waited=61)
    assert reroute_waiting() == 1
    assert way_of(soon) == ("gemini", "large-1", "g", 1, "rate_limited")
    assert (soon.status, soon.fallback_at, soon.target) == (JobState.QUEUED, None, "http://127.0.0.1:9 g")
    assert soon.cost == 105  # Gemini counts input alone
    assert soon.payload["model"] == "small-1"
    assert way_of(later)[3] == way_of(never)[3] == 0
    told = JobEvent.objects.get(job_id=soon.pk, event_type="scheduling")
    assert told.message.startswith("goes on with large-1 of gemini: it waited 6")
    assert told.data is not None
    assert told.data["from"] == {"service": "openai", "model": "small-1", "credential": "o"}
    assert told.data["to"] == {"service": "gemini", "model": "large-1", "credential": "g"}
    assert reroute_waiting() == 0


def test_a_wait_for_a_retry_or_a_schedule_is_no_wait_for_a_limit():
    open_credentials()
    job = submit({**OTHER, "after_seconds": 0})
    move_jobs("back_off", [Move(job.pk, delay_seconds=60, message="later")])
    assert reroute_waiting() == 0


def test_a_way_that_its_handler_cannot_describe_keeps_no_other_job_from_going_on(monkeypatch):
    def describe(handler: Any, payload: Any, spec: Any) -> Any:
        if payload.model == "broken":
            raise KeyError(payload.model)
        return prepare.describe(handler, payload, spec)

    open_credentials()
    monkeypatch.setattr(ways, "describe", describe)
    broken, well = (submit({**OTHER, "model": name, "after_seconds": 0}) for name in ("broken", "large-1"))
    for job in (broken, well):
        park(job, waited=1)
    assert reroute_waiting() == 1
    assert [way_of(job)[3] for job in (broken, well)] == [0, 1]
    Job.objects.all().delete()
    job = submit({**OTHER, "model": "broken"})
    [claimed] = claim()
    fail(claimed, Failure("http_503", "ProviderError", "down", "answered", status=503))
    assert way_of(job)[3] == 0
    assert (job.status, job.retry_count) == (JobState.RETRIED, 1)


@pytest.fixture
def payload_keys(settings):
    def set_to(*pairs: tuple[str, str]) -> None:
        known = replace(django_settings.QUEUEOPS, payload_keys=pairs, debug=False)
        settings.QUEUEOPS = replace(known, credential_keys=(SECRET,))

    return set_to


def housekeeper() -> Duties:
    """The quarantine executor of a cluster of its own."""
    executor = uuid4()
    register(executor, cluster_pid=1, slots=1, cluster_id=uuid4())
    return Duties(executor, sweep_seconds=30, silent_seconds=30, stuck_seconds=30)


def tell_no_ways_of_broken(monkeypatch) -> None:
    """As a mistake in a handler's own `fallback` does, for one payload."""

    def fails(payload: LlmGenerate) -> Any:
        if payload.system == "broken":
            raise KeyError("broken")
        return payload.ways()

    monkeypatch.setattr(ways, "find_handler", lambda kind: replace(find_handler(kind), fallback=fails))


def late_ones(*jobs: Job) -> list[str]:
    """Return the words of the alert about jobs that should have gone on a minute ago."""
    Job.objects.filter(pk__in=[job.pk for job in jobs]).update(
        fallback_at=DbNow() - timedelta(minutes=2), updated_at=DbNow() - timedelta(minutes=2)
    )
    watch_unserved()
    return list(QuotaAlert.objects.filter(kind="unserved", resolved_at=None).values_list("message", flat=True))


def test_who_lacks_the_key_of_a_payload_leaves_its_job_to_a_host_that_has_it(payload_keys):
    payload_keys(KEY)
    open_credentials()
    Project.objects.filter(pk="acme").update(encrypted=True)
    forget_encrypted()
    job = submit({**OTHER, "after_seconds": 60})
    park(job, waited=61)
    payload_keys()
    lacking, having = housekeeper(), housekeeper()
    lacking.do(1.0)
    assert way_of(job)[3] == 0
    [told] = late_ones(job)
    assert told.startswith("1 job of acme waits though a fallback is due: no host that does the housekeeping can read")
    payload_keys(KEY)
    lacking.do(2.0)  # a process keeps its keys until it ends: it does not read the payload each second
    assert way_of(job)[3] == 0
    having.do(2.0)
    assert way_of(job) == ("gemini", "large-1", "g", 1, "rate_limited")
    watch_unserved()
    assert not QuotaAlert.objects.filter(kind="unserved", resolved_at=None).exists()


def test_what_one_host_cannot_read_keeps_its_way_and_keeps_nobody_else_from_going(monkeypatch):
    monkeypatch.setattr(fallback, "REROUTED_AT_ONCE", 2)
    open_credentials()
    strange = [submit({**OTHER, "after_seconds": 0}) for _ in range(3)]
    unknown, broken = submit({**OTHER, "after_seconds": 0}), submit({**OTHER, "after_seconds": 0}, system="broken")
    for job in strange:
        payload = {**job.payload, "of_a_later_release": True}
        Job.objects.filter(pk=job.pk).update(payload=payload)
    Job.objects.filter(pk=unknown.pk).update(kind="of.a_later_release")
    tell_no_ways_of_broken(monkeypatch)
    well = submit({**OTHER, "after_seconds": 0})
    out = submit({**OTHER, "when": ["unavailable"]})
    for job in (*strange, unknown, broken, well):
        park(job, waited=3)
    Job.objects.filter(pk=out.pk).update(payload={**out.payload, "of_a_later_release": True})
    left: set[UUID] = set()
    assert reroute_waiting(left) == 1
    assert way_of(well)[3] == 1
    for job in (*strange, unknown, broken):
        job.refresh_from_db()
        assert (job.fallback_at is None, job.fallback_on_outage, job.fallback_step) == (False, True, 0)
    assert reroute_waiting(left) == 0
    open_breaker(out)
    ServiceBreaker.objects.update(opened_at=DbNow() - timedelta(minutes=2))
    assert reroute_waiting(left) == 0
    assert "of acme wait" in late_ones(out)[0]


def test_a_host_tries_again_after_a_while_what_it_could_not_read(monkeypatch):
    open_credentials()
    job, only = submit({**OTHER, "after_seconds": 0}, system="broken"), housekeeper()
    park(job, waited=3)
    tell_no_ways_of_broken(monkeypatch)
    only.do(1.0)
    monkeypatch.setattr(ways, "find_handler", find_handler)
    only.do(2.0)
    assert way_of(job)[3] == 0
    only.do(1.0 + fallback.LEFT_SECONDS)
    assert way_of(job)[3] == 1


def test_a_host_comes_to_the_jobs_behind_however_many_it_cannot_read(monkeypatch):
    monkeypatch.setattr(fallback, "MAX_LEFT_TO_OTHERS", 3)
    monkeypatch.setattr(fallback, "REROUTED_AT_ONCE", 2)
    monkeypatch.setattr(fallback, "RESTS_TIMES", 0)
    open_credentials()
    for _ in range(40):
        park(submit({**OTHER, "after_seconds": 0}, system="broken"), waited=9)
    job, only = submit({**OTHER, "after_seconds": 0}), FallbackRounds(uuid4())
    park(job, waited=3)
    tell_no_ways_of_broken(monkeypatch)
    for turn in range(200):
        only.do(31.0 * turn)
        if way_of(job)[3]:
            break
    assert way_of(job)[3] == 1


def test_each_byte_is_looked_at_with_no_more_jobs_than_a_round_leaves_out(monkeypatch):
    monkeypatch.setattr(fallback, "MAX_LEFT_TO_OTHERS", 10)
    jobs = {**dict.fromkeys(range(128, 256), 3), 7: 25}  # of each byte; none has the others
    part, seen = fallback.ALL_JOBS, set[int]()
    for _ in range(300):
        ends = range(part.first, part.first + part.width)
        assert ends.stop <= fallback.LAST_BYTES
        left = sum(jobs.get(byte, 0) for byte in ends)
        if left <= fallback.MAX_LEFT_TO_OTHERS or part.width == 1:
            seen.update(ends)
        part = part.next(left)
    assert seen == set(range(fallback.LAST_BYTES))


def test_a_round_that_finds_little_rests_as_long_as_it_took_many_times(monkeypatch):
    monkeypatch.setattr(fallback, "RESTS_TIMES", 1e9)  # however fast this host is
    open_credentials()
    job, only = submit({**OTHER, "after_seconds": 0}), FallbackRounds(uuid4())
    only.do(1.0)
    park(job, waited=3)
    only.do(2.0)
    assert way_of(job)[3] == 0
    only.do(1.0 + fallback.MAX_REROUTE_REST_SECONDS)
    assert way_of(job)[3] == 1


def test_a_failed_attempt_whose_handler_cannot_tell_its_ways_keeps_no_other_outcome_from_being_written(monkeypatch):
    open_credentials()
    broken, well = submit(OTHER, system="broken"), submit(OTHER)
    tell_no_ways_of_broken(monkeypatch)
    claimed = {job.id: job for job in claim()}
    down = Failure("http_503", "ProviderError", "down", "answered", status=503)
    record_outcomes(
        [
            Failed(claimed[broken.pk], "openai", "moderate", repeatable=True, failure=down, duration_ms=1.0),
            Succeeded(claimed[well.pk], "openai", "{}", 1.0),
        ],
        policies=retry_policies(),
    )
    assert [Job.objects.get(pk=job.pk).status for job in (broken, well)] == [JobState.RETRIED, JobState.COMPLETED]


def test_while_the_target_is_out_all_but_its_probe_go_on():
    open_credentials()
    job, probe, plain = submit(OTHER), submit(OTHER), submit()
    open_breaker(job, probe=probe.pk)
    assert reroute_waiting() == 1
    assert way_of(job) == ("gemini", "large-1", "g", 1, "unavailable")
    assert way_of(probe)[3] == way_of(plain)[3] == 0


def test_what_is_to_run_later_keeps_its_way_until_its_time_comes_while_the_target_is_out():
    open_credentials()
    retried, scheduled, parked = submit(OTHER), submit(OTHER), submit({**OTHER, "after_seconds": 600})
    move_jobs("back_off", [Move(retried.pk, delay_seconds=3600, message="later")])
    Job.objects.filter(pk=scheduled.pk).update(scheduled_at=DbNow() + timedelta(hours=9))
    park(parked, waited=0)
    open_breaker(retried)
    assert reroute_waiting() == 1
    assert [way_of(job)[3] for job in (retried, scheduled, parked)] == [0, 0, 1]
    Job.objects.filter(pk__in=[retried.pk, scheduled.pk]).update(scheduled_at=DbNow())
    promote_due()
    assert reroute_waiting() == 2
    assert way_of(scheduled) == ("gemini", "large-1", "g", 1, "unavailable")


@every_case(
    ("told", "reason"),
    [({"status": 503, "details": {"should_retry": False}}, "unavailable"), ({"status": 403}, "rate_limited")],
    undone=True,
)
def test_what_no_second_try_there_helps_goes_on_elsewhere(told, reason):
    open_credentials()
    job = submit(OTHER)
    [claimed] = claim()
    fail(claimed, Failure("no_quota" if reason == "rate_limited" else "x", "ProviderError", "m", "answered", **told))
    assert way_of(job) == ("gemini", "large-1", "g", 1, reason)


def test_an_attempt_that_fails_by_an_outage_goes_on_without_being_spent():
    open_credentials()
    job = submit(OTHER)
    [claimed] = claim()
    fail(claimed, Failure("http_503", "ProviderError", "down", "answered", status=503))
    assert way_of(job) == ("gemini", "large-1", "g", 1, "unavailable")
    assert (job.status, job.retry_count) == (JobState.RETRIED, 0)
    Job.objects.update(scheduled_at=DbNow() - timedelta(seconds=1))
    promote_due()
    [claimed] = claim()
    assert (claimed.service, claimed.fallback_step, claimed.fallback_reason) == ("gemini", 1, "unavailable")
    fail(claimed, Failure("http_503", "ProviderError", "down", "answered", status=503))
    job.refresh_from_db()
    assert (job.fallback_step, job.retry_count) == (1, 1)  # there is no other way left


def test_an_input_that_is_too_long_goes_on_at_once_and_without_another_way_fails():
    open_credentials()
    job, plain = submit({**OTHER, "when": ["context_too_long"]}), submit()
    for claimed in claim():
        fail(claimed, Failure("context_too_long", "ProviderError", "too long", "answered", status=400))
    assert way_of(job) == ("gemini", "large-1", "g", 1, "context_too_long")
    plain.refresh_from_db()
    assert plain.status == JobState.FAILED


def test_after_every_step_of_random_histories_the_log_folds_to_the_rows():
    open_credentials()
    dice = random.Random(7)  # noqa: S311 - chooses what happens
    steps = [{"model": f"m-{number}", "after_seconds": 0} for number in range(4)]
    jobs = [submit(*steps[: dice.randrange(5)]) for _ in range(8)]
    for _ in range(60):
        job = dice.choice(jobs)
        job.refresh_from_db()
        what = dice.randrange(4)
        if what == 0 and job.status in (JobState.QUEUED, JobState.RETRIED):
            park(job, waited=1)
        elif what == 1:
            reroute_waiting()
        elif what == 2:
            Job.objects.filter(status=JobState.RETRIED).update(scheduled_at=DbNow() - timedelta(seconds=1))
            promote_due()
        else:
            failures = [
                Failure("http_503", "ProviderError", "down", "answered", status=503),
                Failure("context_too_long", "ProviderError", "too long", "answered", status=400),
            ]
            for claimed in claim()[:2]:
                fail(claimed, dice.choice(failures))
            ServiceBreaker.objects.all().delete()
        events = JobEvent.objects.order_by("job_id", "id")
        folded = {job_id: fold(lines) for job_id, lines in groupby(events, key=attrgetter("job_id"))}
        columns = attrgetter(*[column.name for column in fields(FoldedJob)])
        assert folded == {row.pk: FoldedJob(*columns(row)) for row in Job.objects.all()}
    assert Job.objects.filter(fallback_step__gt=1).exists()


@pytest.mark.django_db(transaction=True)
def test_a_job_that_is_sent_on_beside_a_claim_runs_once_by_the_way_that_its_row_tells(monkeypatch):
    monkeypatch.setattr(fallback, "REROUTED_AT_ONCE", 2)  # some at a time, so that both find some
    open_credentials()
    Limit.objects.create(name="calls", service="openai", call_type="write", scope="project", capacity=10_000)
    catalogue.forget()
    ways = set()
    for _ in range(12):
        jobs = [submit({"model": "large-1", "after_seconds": 0}) for _ in range(20)]
        for job in jobs:
            park(job, waited=1)  # in a lane that has room: claims take it, and it has waited too long

        def act(number: int) -> list[ClaimedJob]:
            if number == 0:
                reroute_waiting()
                return []
            return claim()

        claimed = [job for found in run_together(3, act) for job in found]
        assert len({job.id for job in claimed}) == len(claimed)
        for taken in claimed:
            row = Job.objects.get(pk=taken.id)
            assert (taken.fallback_step, taken.model) == (row.fallback_step, row.model)
            assert row.model == ("large-1" if row.fallback_step else "small-1")
            ways.add(row.fallback_step)
        if ways == {0, 1}:
            break
    assert ways == {0, 1}


@pytest.mark.django_db(transaction=True)
def test_a_reroute_that_was_chosen_before_a_claim_changes_nothing_that_runs():
    open_credentials()
    job = submit({"model": "large-1", "after_seconds": 0})
    park(job, waited=1)
    row = next(iter(Job.objects.filter(pk=job.pk)))
    going = _way_of(
        WaitsForWay(
            row.pk, "rate_limited", row.kind, LlmGenerate.model_validate(row.payload).model_dump_json(by_alias=True), 0,
            "acme", None, row.service, row.model, row.credential, 1.0,
        )
    )  # fmt: skip
    assert going is not None
    move_jobs("release", [Move(job.pk)])
    [claimed] = claim()
    with transaction.atomic():
        assert move_another_way([going]) == {}
    assert way_of(job)[3] == claimed.fallback_step == 0
    connections.close_all()


@pytest.mark.django_db
def test_a_row_whose_step_was_lost_gets_it_back_from_its_log():
    open_credentials()
    job = submit({"model": "large-1", "after_seconds": 0})
    park(job, waited=1)
    reroute_waiting()
    Job.objects.update(fallback_step=0)
    assert sum(repair([job.pk])) == 1
    job.refresh_from_db()
    assert job.fallback_step == 1


def test_who_names_no_other_way_is_in_neither_index_and_the_duty_reads_only_those():
    open_credentials()
    submit()
    job = Job.objects.get()
    assert (job.fallback_at, job.fallback_on_outage, job.fallback_step) == (None, False, 0)
    open_breaker(job)
    make_jobs(2000, state=JobState.RATE_LIMITED)
    with connection.cursor() as cursor:
        cursor.execute("SET LOCAL enable_seqscan = off")
        cursor.execute("ANALYZE jobs_job")  # or the plan would be for what the tests before this one left
    used = {node.get("Index Name") for node in nodes(explain_file("jobs", "choose_reroutes", **CHOOSING))}
    assert {"jobs_job_fallback_idx", "jobs_job_cut_off_idx"} <= used


def test_an_outage_reads_none_of_the_jobs_that_are_to_run_later():
    open_credentials()
    job = submit(OTHER)
    open_breaker(job)
    later = {"target": job.target, "fallback_on_outage": True, "scheduled_at": DbNow() + timedelta(days=1)}
    Job.objects.filter(pk__in=[one.pk for one in make_jobs(2000, service=job.service)]).update(**later)
    with connection.cursor() as cursor:
        cursor.execute("ANALYZE jobs_job")
        for name, value in PLANNING:
            cursor.execute(f"SET LOCAL {name} = {value}")
    read = [rows_read(node) for node in nodes(explain_file("jobs", "choose_reroutes", **CHOOSING))]
    assert max(read) <= 1


@pytest.mark.django_db
def test_a_question_too_long_for_its_model_is_answered_by_one_with_room(sandbox):
    sandbox.turn(openai={"context_tokens": {"small-1": 50}}, gemini={"requests_per_minute": None})
    open_credentials(sandbox.url)
    limits_changed()
    submit({**OTHER, "when": ["context_too_long"]})
    drain()
    job = Job.objects.get()
    assert (job.status, job.retry_count) == (JobState.COMPLETED, 0)
    assert job.result is not None
    assert job.result["route"] == {
        "provider": "gemini",
        "service": "gemini",
        "model": "large-1",
        "reason": "context_too_long",
        "steps": 1,
    }
    assert [(call["provider"], call["status"]) for call in sandbox.calls()] == [("openai", 400), ("gemini", 200)]


@pytest.mark.django_db
def test_a_provider_that_is_down_is_left_for_the_next(sandbox):
    sandbox.turn(gemini={"requests_per_minute": None})
    open_credentials(sandbox.url)
    Credential.objects.filter(name="o").update(base_url="http://127.0.0.1:9")  # nobody listens there
    limits_changed()
    for _ in range(5):
        submit(OTHER)
    drain()
    assert set(Job.objects.values_list("status", "retry_count", "fallback_reason")) == {
        (JobState.COMPLETED, 0, "unavailable")
    }
    assert {call["provider"] for call in sandbox.calls(accepted=True)} == {"gemini"}


@pytest.mark.django_db(transaction=True)
def test_who_waits_behind_a_full_limit_is_answered_elsewhere(sandbox):
    sandbox.turn(gemini={"requests_per_minute": None})
    open_credentials(sandbox.url)
    Limit.objects.create(
        name="calls", service="openai", call_type="write", scope="project", algorithm="sliding_window", capacity=1,
        window_seconds=600,
    )  # fmt: skip
    limits_changed()
    for _ in range(4):
        submit({**OTHER, "after_seconds": 0.5})
    drain(seconds=60)
    ways = list(Job.objects.order_by("fallback_step").values_list("status", "fallback_step"))
    assert ways == [(JobState.COMPLETED, 0), *[(JobState.COMPLETED, 1)] * 3]
    assert len(sandbox.calls(provider="openai")) == 1
