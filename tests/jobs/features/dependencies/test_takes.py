"""Values that jobs take from the results of those that they wait for."""

from __future__ import annotations

import json
import time
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any, Literal
from uuid import UUID, uuid4

import pytest
from cryptography.fernet import Fernet
from django.conf import settings as django_settings
from django.db import connection
from django.utils import timezone
from pydantic import BaseModel, ConfigDict, Field

from jobs.executor.duties import Duties
from jobs.features.dependencies import dependants
from jobs.features.dependencies import take_values as taking
from jobs.features.dependencies.dependants import DependantsDuty, go_on
from jobs.features.dependencies.dependencies import UnknownDependency
from jobs.features.dependencies.takes import MAX_STEPS, MAX_TAKES
from jobs.features.erasure.erase_user import erase_user
from jobs.features.forecast.submission import forecast_submission
from jobs.features.results.store import result_store
from jobs.handlers import registry
from jobs.handlers.errors import ProviderError
from jobs.handlers.registry import Coalesce, Done, RunningJob, handler
from jobs.models import Batch, DeadLetter, Dependency, Job, JobEvent, new_id
from jobs.services.explain.waiting import explain_waiting
from jobs.services.operate.dead_letters import requeue_dead_letters
from jobs.services.submit.spec import InvalidJob, parse_spec
from jobs.services.submit.submit import BatchRejected, submit_batch, submit_job
from jobs.states import JobState
from jobs.testing import drain
from queueops.core.errors import IdempotencyKeyReused
from queueops.core.stores.store import StoreError
from queueops.tenancy.models import Project
from queueops.tenancy.secrets.encryption import note_encrypted
from tests.factories import make_job, make_project, move_along
from tests.support.cases import every_case

pytestmark = pytest.mark.django_db

ACME = "acme"
UNWANTED = 13  # the provider's refusal of a row
KEY = ("one", Fernet.generate_key().decode())


class Answer(BaseModel):
    answer: Any = None
    fails: bool = False


class Row(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)

    values: list[list[int | str | None]] = Field(min_length=1)
    count: int = 0
    how: Literal["RAW", "TYPED"] = "RAW"
    note: Any = None


@pytest.fixture(autouse=True)
def kinds(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The entries in the order in which they were written."""
    monkeypatch.setattr(registry, "_handlers", dict(registry._handlers))
    written: list[Any] = []

    @handler(kind="test.answer", service="test", payload=Answer, idempotent=True)
    async def answer(job: RunningJob[Answer]) -> Done:
        if job.payload.fails:
            raise ProviderError(404, "no answer", code="not_found", outcome="answered")
        return Done(job.payload.answer)

    @handler(
        kind="test.row",
        service="test",
        payload=Row,
        idempotent=True,
        cost=lambda payload: len(payload.values),
        coalesce=Coalesce(key=lambda payload: str(payload.count)),
    )
    async def row(jobs: list[RunningJob[Row]]) -> list[Done]:
        if any(job.payload.count == UNWANTED for job in jobs):
            raise ProviderError(404, "not that one", code="not_found", outcome="answered")
        written.extend(job.payload.values for job in jobs)
        return [Done(job.payload.model_dump()) for job in jobs]

    return written


def take(job: object, path: Any = "total") -> dict[str, Any]:
    return {"$from": {"job": str(job), "path": path}}


def submit(
    kind: str, payload: Any, *after: object, project: str = ACME, only_user: UUID | None = None, **more: Any
) -> Job:
    make_project(project)
    spec = parse_spec({"kind": kind, "payload": payload, "after": [str(one) for one in after], **more})
    return Job.objects.get(pk=submit_job(spec, project_id=project, actor="key:test", only_user=only_user).id)


def answering(answer: Any, **more: Any) -> Job:
    return submit("test.answer", {"answer": answer}, **more)


def row(*takes: Any, **more: Any) -> dict[str, Any]:
    return {"values": [list(takes)], **more}


def again(job: Job) -> Job:
    return Job.objects.get(pk=job.pk)


def letter_of(job: Job) -> DeadLetter:
    return DeadLetter.objects.get(job_id=job.pk)


def test_a_job_takes_values_from_what_it_waits_for_and_its_row_has_them(kinds):
    first = answering({"total": 17, "lines": [{"name": "pen"}, {"name": "ink"}], "a.b": "dotted"})
    job = submit(
        "test.row",
        row(take(first.pk), take(first.pk, "lines.1.name"), take(first.pk, ["a.b"]), note={"all": take(first.pk, "")}),
        first.pk,
    )
    assert (job.held, job.cost) == (True, 1)
    drain()
    job = again(job)
    assert kinds == [[[17, "ink", "dotted"]]]
    assert job.status == JobState.COMPLETED
    assert job.payload == {
        "values": [[17, "ink", "dotted"]],
        "note": {"all": {"total": 17, "lines": [{"name": "pen"}, {"name": "ink"}], "a.b": "dotted"}},
    }
    taken = JobEvent.objects.get(job_id=job.pk, data__operation="take")
    assert taken.message == "it has the values that it takes from other jobs"
    assert not Dependency.objects.exists()


def test_what_limits_and_coalescing_go_by_follows_from_the_values_taken(kinds):
    first = answering({"rows": [[1], [2], [3]], "count": 9})
    job = submit("test.row", {"values": take(first.pk, "rows"), "count": take(first.pk, "count")}, first.pk)
    before = job.coalesce_key
    drain()
    job = again(job)
    assert (job.cost, kinds) == (3, [[[1], [2], [3]]])
    assert job.coalesce_key != before
    assert job.coalesce_key is not None
    assert job.coalesce_key.endswith("|9")


def test_lines_of_one_batch_name_earlier_ones_by_their_idempotency_keys(kinds):
    make_project()
    lines: list[dict[str, Any]] = []
    for n in range(3):
        lines += [
            {"kind": "test.answer", "payload": {"answer": {"total": n}}, "idempotency_key": f"ask-{n}"},
            {
                "kind": "test.row",
                "payload": row(take(f"ask-{n}")),
                "after": [f"ask-{n}"],
                "idempotency_key": f"row-{n}",
            },
        ]
    first = submit_batch(lines, project_id=ACME, actor="key:test")
    assert first.accepted == 6
    drain()
    assert sorted(kinds) == [[[0]], [[1]], [[2]]]
    # The rows have their values by now, and the same lines still mean the same jobs.
    assert submit_batch(lines, project_id=ACME, actor="key:test").duplicates == 6
    lines[1]["payload"] = row(take("ask-0", "other"))
    with pytest.raises(BatchRejected) as refused:
        submit_batch(lines, project_id=ACME, actor="key:test")
    assert [error["code"] for error in refused.value.details["errors"]] == ["idempotency_key_reused"]


def test_a_key_of_a_later_line_or_of_nobody_is_unknown():
    make_project()
    late = [
        {"kind": "test.row", "payload": row(1), "after": ["ask"], "idempotency_key": "row"},
        {"kind": "test.answer", "payload": {}, "idempotency_key": "ask"},
    ]
    with pytest.raises(BatchRejected) as refused:
        submit_batch(late, project_id=ACME, actor="key:test")
    assert [(error["line"], error["code"]) for error in refused.value.details["errors"]] == [(1, "unknown_dependency")]
    assert not Job.objects.exists()
    with pytest.raises(UnknownDependency):
        submit("test.row", row(1), "row")


def test_a_forecast_knows_the_keys_of_the_lines_before():
    make_project()
    lines = [
        {"kind": "test.answer", "payload": {}, "idempotency_key": "ask"},
        {"kind": "test.row", "payload": row(take("ask")), "after": ["ask"]},
        {"kind": "test.row", "payload": row(take("nobody")), "after": ["nobody"]},
    ]
    told = forecast_submission(lines, project_id=ACME, partial=True)
    assert (told.jobs, told.rejected_count) == (2, 1)
    assert not Job.objects.exists()


OTHER = str(uuid4())


@every_case(
    ("payload", "field", "fault"),
    [
        (row(take(OTHER)), "payload.values.0.0", "which is not among `after`"),
        (row({"$from": OTHER}), "payload.values.0.0", "$from is"),
        (row({"$from": {"path": "total"}}), "payload.values.0.0", "$from is"),
        (row({"$from": {"job": "first", "path": "a", "or": 1}}), "payload.values.0.0", "$from is"),
        (row(take("first", 7)), "payload.values.0.0", "path is a text"),
        (row(take("first", [True])), "payload.values.0.0", "path is a text"),
        (row(take("first", "a..b")), "payload.values.0.0", "empty step"),
        (row(take("first", ["a", -1])), "payload.values.0.0", "negative index"),
        (row(take("first", ["a"] * (MAX_STEPS + 1))), "payload.values.0.0", "at most 32 steps"),
        (row(take("first", "a" * 501)), "payload.values.0.0", "500 characters"),
        ({"values": [[1]], "note": [take("first")] * (MAX_TAKES + 1)}, "payload", "at most 100"),
        (row(1, how=take("first")), "payload.how", "must be known when the job is submitted"),
        (row(take("first"), lines=1), "payload.lines", "Extra inputs"),
        (row(take("first"), count="many"), "payload.count", "valid integer"),
    ],
)
def test_what_cannot_be_taken_is_refused_with_its_place_and_nothing_is_stored(payload, field, fault):
    answering({}, idempotency_key="first")
    with pytest.raises(InvalidJob) as refused:
        submit("test.row", payload, "first")
    assert list(refused.value.fields) == [field]
    assert fault in refused.value.fields[field][0]
    assert Job.objects.count() == 1


def test_another_projects_and_another_users_results_are_out_of_reach(kinds):
    foreign = answering({"total": "secret"}, project="globex", idempotency_key="theirs")
    user, other = uuid4(), uuid4()
    of_other = answering({"total": "secret"}, user_id=str(other), idempotency_key="of-other")
    for name, only_user in ((foreign.pk, None), ("theirs", None), (of_other.pk, user), ("of-other", user)):
        with pytest.raises(UnknownDependency):
            submit("test.row", row(take(name)), name, only_user=only_user)
    # Neither does a row reach it that somebody has written past the check.
    mine = answering({"total": 1})
    job = submit("test.row", row(take(mine.pk)), mine.pk)
    told = again(job).takes
    assert told is not None
    told["values"][0]["job"] = str(foreign.pk)
    Job.objects.filter(pk=job.pk).update(takes=told)
    drain()
    assert kinds == []
    assert "is gone" in letter_of(job).error_message


@pytest.mark.parametrize(
    ("answer", "path", "said"),
    [
        ({"sum": 1}, "total", "payload.values.0.0: the result of job {job} has no 'total'"),
        ({"total": [1]}, "total.3", "has no 'total.3'"),
        ({"total": {"deep": 1}}, "total", "payload.values.0.0"),
        (None, "total", "has no result: its handler gave none"),
    ],
)
def test_a_value_that_is_missing_or_does_not_fit_ends_the_job_without_a_call(kinds, answer, path, said):
    first = answering(answer)
    job = submit("test.row", row(take(first.pk, path)), first.pk)
    drain()
    job = again(job)
    assert (job.status, job.last_error_code, job.first_attempt_at) == (JobState.FAILED, "value_not_taken", None)
    assert said.format(job=first.pk) in job.last_error_message
    letter = letter_of(job)
    assert letter.payload == row(take(first.pk, path))
    assert "Requeue that job" in letter.remediation
    assert kinds == []


def test_values_that_are_too_large_together_end_the_job(kinds):
    first = answering({"total": "x" * (django_settings.QUEUEOPS.max_payload_bytes * 2 // 3)})
    job = submit("test.row", row(take(first.pk), take(first.pk)), first.pk)
    drain()
    assert "bytes of a payload" in again(job).last_error_message
    assert kinds == []


def test_a_dependency_that_fails_cancels_and_with_run_its_missing_result_fails_the_job(kinds):
    bad = submit("test.answer", {"fails": True})
    obedient = submit("test.row", row(take(bad.pk)), bad.pk)
    stubborn = submit("test.row", row(take(bad.pk)), bad.pk, on_failure="run")
    drain()
    DependantsDuty(taking.take_values).do()
    assert again(obedient).status == JobState.CANCELLED
    assert f"job {bad.pk} has no result: it is" in again(stubborn).last_error_message
    assert kinds == []


def test_who_is_told_to_go_on_before_there_is_a_value_fails_clearly(kinds):
    first = answering({"total": 1}, scheduled_at=(timezone.now() + timedelta(days=1)).isoformat())
    job = submit("test.row", row(take(first.pk)), first.pk)
    go_on([job.pk], of_batch=False, actor="user:1")
    drain()
    assert again(job).last_error_code == "value_not_taken"


def test_a_held_job_takes_from_the_requeue_that_succeeded(kinds):
    bad = submit("test.answer", {"fails": True, "answer": {"total": 5}})
    job = submit("test.row", row(take(bad.pk)), bad.pk, on_failure="hold")
    drain()
    assert again(job).held
    requeue_dead_letters([letter_of(bad).pk], actor="user:1", payload={"answer": {"total": 5}})
    drain()
    assert kinds == [[[5]]]


def test_a_requeue_of_a_job_without_its_values_waits_and_takes_them_again(kinds):
    first = answering({"sum": 3}, idempotency_key="first")
    job = submit("test.row", row(take("first")), "first")
    drain()
    [new] = requeue_dead_letters([letter_of(job).pk], actor="user:1").moved.values()
    assert Job.objects.get(pk=new).held
    drain()
    assert Job.objects.get(pk=new).last_error_code == "value_not_taken"
    letter = DeadLetter.objects.get(job_id=new)
    [new] = requeue_dead_letters([letter.pk], actor="user:1", payload=row(take("first", "sum"))).moved.values()
    drain()
    assert (kinds, Job.objects.get(pk=new).status) == ([[[3]]], JobState.COMPLETED)
    assert first.pk != new


def test_attempts_and_requeues_have_the_same_values_though_their_source_has_changed(kinds):
    first = answering({"total": 3})
    job = submit("test.row", row(take(first.pk), count=UNWANTED), first.pk)
    drain()
    assert (again(job).status, again(job).payload) == (JobState.FAILED, row(3, count=UNWANTED))
    Job.objects.filter(pk=first.pk).update(result={"total": 4})
    [new] = requeue_dead_letters([letter_of(job).pk], actor="user:1").moved.values()
    assert not Job.objects.get(pk=new).held
    drain()
    assert Job.objects.get(pk=new).payload == row(3, count=UNWANTED)


def test_a_batch_waits_for_a_job_by_its_key():
    first = answering({}, idempotency_key="first")
    line = {"kind": "test.row", "payload": row(1)}
    batch = Batch.objects.get(pk=submit_batch([line], project_id=ACME, actor="key:test", after=["first"]).id)
    assert batch.after == {"after": [str(first.pk)], "on_failure": "cancel"}
    drain()
    assert Job.objects.get(batch=batch).status == JobState.COMPLETED


def test_a_result_that_is_a_placeholder_itself_is_no_placeholder(kinds):
    """A model's answer must not read other jobs' results."""
    secret = answering({"total": "secret"})
    first = answering({})
    job = submit("test.row", {"values": [[1]], "note": take(first.pk)}, first.pk)
    Job.objects.filter(pk=first.pk).update(payload={"answer": {"total": take(secret.pk)}})
    drain()
    assert again(job).payload == {"values": [[1]], "note": take(secret.pk)}


def test_an_erased_users_result_is_taken_by_nobody(kinds):
    user = uuid4()
    first = answering({"total": 3}, user_id=str(user))
    late = (timezone.now() + timedelta(days=1)).isoformat()
    other = answering({}, scheduled_at=late)
    job = submit("test.row", row(take(first.pk)), first.pk, other.pk)
    drain()
    erase_user(ACME, user, store=None, cancel=False, actor="user:1", reason="asked", say=lambda text: None)
    Job.objects.filter(pk=other.pk).update(scheduled_at=timezone.now())
    drain()
    assert "its user was erased" in again(job).last_error_message
    assert kinds == []


def test_results_in_the_store_are_read_and_one_that_is_lost_fails_the_job(settings, tmp_path: Path, kinds):
    settings.QUEUEOPS = replace(django_settings.QUEUEOPS, result_store=str(tmp_path), result_store_over=1_000)
    first, lost = answering({"text": "x" * 2_000, "total": 7}), answering({"text": "y" * 2_000, "total": 8})
    drain()
    store = result_store()
    assert store is not None
    [gone] = [file.name for file in store.files(ACME) if str(lost.pk) in file.name]
    store.remove(gone)
    job, other = (submit("test.row", row(take(one.pk)), one.pk) for one in (first, lost))
    drain()
    assert kinds == [[[7]]]
    assert again(job).status == JobState.COMPLETED
    assert "has no object" in again(other).last_error_message


def test_a_store_that_does_not_answer_fails_nobody_and_is_asked_once_a_turn(settings, tmp_path: Path, monkeypatch):
    settings.QUEUEOPS = replace(django_settings.QUEUEOPS, result_store=str(tmp_path), result_store_over=1_000)
    sources = [answering({"text": "x" * 2_000, "total": n}) for n in range(3)]
    drain()
    jobs = [submit("test.row", row(take(one.pk)), one.pk) for one in sources]
    asked = []

    def silent(stored: object) -> None:
        asked.append(stored)
        raise StoreError("away")

    with monkeypatch.context() as patch:
        patch.setattr(taking, "read_stored", silent)
        assert DependantsDuty(taking.take_values).do() == 3
    assert len(asked) == 1
    assert [(again(job).held, again(job).status) for job in jobs] == [(True, "queued")] * 3
    assert Dependency.objects.count() == 3
    drain()
    assert {again(job).status for job in jobs} == {"completed"}


def test_encrypted_payloads_and_results_are_opened_for_it_and_stay_encrypted(settings, kinds):
    settings.QUEUEOPS = replace(django_settings.QUEUEOPS, payload_keys=(KEY,), debug=False)
    make_project()
    Project.objects.update(encrypted=True)
    note_encrypted(ACME, is_on=True)
    first = answering({"total": 7})
    good, bad = (
        submit("test.row", row(take(first.pk)), first.pk),
        submit("test.row", row(take(first.pk, "no")), first.pk),
    )
    drain()
    assert kinds == [[[7]]]
    assert again(good).payload == row(7)
    assert "has no 'no'" in again(bad).last_error_message
    with connection.cursor() as cursor:
        cursor.execute("SELECT payload_text, last_error_message FROM jobs_job WHERE id = ANY(%s)", [[good.pk, bad.pk]])
        texts = [text for found in cursor.fetchall() for text in found if text]
    assert all("queueops!sealed!" in text for text in texts)
    assert not any("has no" in text for text in texts)


def test_a_worker_without_the_key_leaves_it_to_another(settings, kinds):
    settings.QUEUEOPS = replace(django_settings.QUEUEOPS, payload_keys=(KEY,), debug=False)
    make_project()
    Project.objects.update(encrypted=True)
    note_encrypted(ACME, is_on=True)
    first = answering({"total": 7})
    drain()
    job = submit("test.row", row(take(first.pk)), first.pk)
    settings.QUEUEOPS = replace(django_settings.QUEUEOPS, payload_keys=(), debug=False)
    DependantsDuty(taking.take_values).do()
    assert (again(job).status, again(job).held) == ("queued", True)


def test_its_page_its_answer_and_its_waiting_say_what_it_takes(admin_client):
    first = answering({"total": 1}, scheduled_at=(timezone.now() + timedelta(days=1)).isoformat())
    job = submit("test.row", row(take(first.pk), take(first.pk, ["lines", 0])), first.pk)
    waiting = explain_waiting(job)
    assert waiting is not None
    reason, *_ = waiting.reasons
    assert reason.text == f"job {first.pk} has to end first. From its result it takes total, lines.0"
    page = admin_client.get(f"/admin/jobs/job/{job.pk}/change/").content.decode()
    assert "payload.values.0.0: total of" in page
    assert "payload.values.0.1: lines.0 of" in page


def test_a_replaced_jobs_takes_go_with_its_work(kinds):
    first = answering({"total": 1})
    job = submit("test.row", row(take(first.pk)), first.pk, unique_key="one")
    submit("test.row", row(2), unique_key="one", if_pending="replace")
    assert again(job).takes is None
    drain()
    assert kinds == [[[2]]]


def test_an_executors_house_keeping_takes_the_values():
    first = make_job(kind="test.answer", payload=json.dumps({"answer": {"total": 2}}), state=JobState.COMPLETED)
    Job.objects.filter(pk=first.pk).update(result={"total": 2})
    job = submit("test.row", row(take(first.pk)), first.pk)
    Duties(new_id(), sweep_seconds=5, silent_seconds=15, stuck_seconds=30).do(time.monotonic())
    assert (again(job).payload, again(job).held) == (row(2), False)


def test_a_turn_takes_for_so_many_and_lets_all_others_go(monkeypatch):
    monkeypatch.setattr(dependants, "TAKING_IN_ONE", 2)
    monkeypatch.setattr(dependants, "TAKING_A_TURN", 3)
    first = answering({"total": 1})
    jobs = [submit("test.row", row(take(first.pk)), first.pk) for _ in range(6)]
    plain = submit("test.row", row(1), first.pk)
    for edge in ("dispatch", "start", "complete"):
        move_along(edge, [first.pk])
    Job.objects.filter(pk=first.pk).update(result={"total": 1})
    duty = DependantsDuty(taking.take_values)
    assert [duty.do() for _ in range(3)] == [5, 2, 0]
    assert not Job.objects.filter(pk__in=[plain.pk, *(job.pk for job in jobs)], held=True).exists()


def test_a_repeated_submission_with_another_source_is_refused(kinds):
    answering({"total": 1}, idempotency_key="first")
    answering({"total": 1}, idempotency_key="second")
    submit("test.row", row(take("first")), "first", idempotency_key="row")
    assert submit("test.row", row(take("first")), "first", idempotency_key="row").idempotency_key == "row"
    with pytest.raises(IdempotencyKeyReused):
        submit("test.row", row(take("second")), "second", idempotency_key="row")
