"""Every call of the producer's client, in all its forms, against the real server: what is answered has its types."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields
from datetime import datetime
from typing import Any, get_type_hints
from uuid import UUID, uuid4

import pytest
from pydantic import TypeAdapter

from jobs.api import examples
from jobs.features.dependencies.dependants import DependantsDuty
from jobs.features.forecast.answers import FORECAST
from jobs.features.schedules.examples import FIRE, SCHEDULE
from jobs.features.schedules.schedules import run_schedule
from jobs.features.webhooks.examples import MADE_WEBHOOK, WEBHOOK_DELIVERY, WEBHOOK_JOB
from jobs.features.webhooks.webhooks import send_test
from jobs.models import Job as Jobs
from jobs.models import Webhook as Webhooks
from jobs.models import WebhookJob
from jobs.services.operate.job_actions import cancel_jobs
from jobs.services.submit.spec import parse_spec
from jobs.services.submit.submit import submit_batch, submit_job
from jobs.states import JobState
from queueops.audit import trail
from queueops.tenancy.models import ProducerKey, Project
from queueops_client import (
    Allowance,
    ApiError,
    AsyncQueueOps,
    AuditEntry,
    Batch,
    BatchRejected,
    Conflict,
    DeadLetter,
    Delivery,
    Fire,
    HeardJob,
    IdempotencyKeyReused,
    InvalidRequest,
    Job,
    JobSpec,
    Moved,
    NotAllowed,
    NotAuthenticated,
    NotFound,
    Operation,
    Paused,
    QueueFull,
    QueueOps,
    Result,
    Schedule,
    SentAgain,
    SubmittedBatch,
    TooManyRequests,
    Unreachable,
    Update,
    Webhook,
    Window,
    records,
)
from queueops_client.retry import NEVER
from ratelimits.models import Allowance as AllowanceRow
from ratelimits.usage.api.examples import SAVED_ALLOWANCE
from tests.api.conftest import ALL_SCOPES, SPEC, key_for
from tests.client.both import Both
from tests.client.typescript import TypeScriptQueueOps
from tests.factories import (
    FAR_WEEKDAY,
    make_batch,
    make_dead_letter,
    make_job,
    make_project,
    make_schedule,
    make_webhook,
    make_window,
)
from tests.support.processes import free_port

pytestmark = pytest.mark.django_db(transaction=True)

PYTHON = {"blocking": QueueOps, "asynchronous": AsyncQueueOps}
FORMS = {**PYTHON, "typescript": TypeScriptQueueOps}
KIND, PAYLOAD = SPEC["kind"], SPEC["payload"]
SPECS = [JobSpec(kind=KIND, payload=PAYLOAD), {"kind": KIND, "payload": PAYLOAD}]


@pytest.fixture(params=[*PYTHON, pytest.param("typescript", marks=pytest.mark.process)])
def form(request: pytest.FixtureRequest) -> Any:
    return FORMS[request.param]


@pytest.fixture
def client(form: Any, address: str, key: str) -> Iterator[Both]:
    with Both(form, address, key, retry=NEVER) as made:
        yield made


@dataclass(frozen=True)
class Stage:
    """Ids of one of each in the project acme."""

    job: UUID
    ended: UUID
    batch: UUID
    ended_batch: UUID
    letter: UUID
    failed: UUID
    operation: UUID
    schedule: UUID
    webhook: UUID
    window: UUID
    waiting: UUID
    waiting_batch: UUID


def set_stage(client: Both) -> Stage:
    batch, ended_batch, operated = make_batch(), make_batch(), make_batch()
    make_job(batch=ended_batch, state=JobState.COMPLETED, result={"row": 1})
    make_job(batch=operated)
    fired = make_schedule(f"{uuid4()}")
    run_schedule(fired.pk, project_id="acme", actor="user:1")
    Webhooks.objects.update(enabled=False)  # those of stages before: a project may have so many that hear of jobs
    webhook = make_webhook(batch.project, hears_jobs=True)
    WebhookJob.objects.create(webhook=webhook, project=batch.project, job_id=batch.pk)
    send_test(webhook.pk, project_id="acme", actor="user:1")
    open_one = make_job().pk
    AllowanceRow.objects.update_or_create(project=batch.project, defaults={"quota": 9, "set_by_operator": False})
    trail.record(actor="user:1", action="try", target="x", before={"a": 1}, project_id="acme")
    waiting = parse_spec({"kind": KIND, "payload": PAYLOAD, "after": [open_one]})
    return Stage(
        waiting=submit_job(waiting, project_id="acme", actor="user:1").id,
        waiting_batch=submit_batch([SPEC], project_id="acme", actor="user:1", after=[open_one]).id,
        job=make_job(batch=batch, idempotency_key=str(uuid4())).pk,
        ended=make_job(state=JobState.COMPLETED, result={"row": 1}).pk,
        batch=batch.pk,
        ended_batch=ended_batch.pk,
        letter=make_dead_letter().pk,
        failed=make_dead_letter(batch=batch).job_id,
        operation=client.cancel_batch(operated.pk, reason="x").id,
        schedule=fired.pk,
        webhook=webhook.pk,
        window=make_window("acme").pk,
    )


def created_again(client: Any) -> Any:
    """A project has one allowance."""
    client.delete_allowance("acme", reason="x")
    return client.create_allowance(500, unit="tokens", reason="x")


Call = Callable[[Any, Stage], Any]
CALLS: dict[str, tuple[Call, Any]] = {
    "submit": (
        lambda client, on: client.submit(
            KIND,
            PAYLOAD,
            priority="low",
            delay_seconds=60,
            user_id=uuid4(),
            after=[str(on.job)],
            on_failure="hold",
            unique_key="k",
            unique_in="project",
        ),
        Job,
    ),
    "submit_many": (
        lambda client, on: client.submit_many(
            SPECS, name="n", tags=["t"], start_interval_seconds=1, after=[on.job, on.batch], on_finish=SPECS[1]
        ),
        SubmittedBatch,
    ),
    "forecast": (
        lambda client, on: client.forecast(
            SPECS, partial=True, start_interval_seconds=1, after=[on.job, on.batch], on_finish=SPECS[1]
        ),
        records.Forecast,
    ),
    "job": (lambda client, on: client.job(on.job), Job),
    "batch": (lambda client, on: client.batch(on.batch), Batch),
    "waiting": (lambda client, on: client.waiting(on.batch), dict),
    "operation": (lambda client, on: client.operation(on.operation), Operation),
    "find": (lambda client, on: client.find(on.job), Job),
    "project": (lambda client, on: client.project(), records.Project),
    "handlers": (lambda client, on: client.handlers(), dict),
    "jobs": (lambda client, on: client.jobs(state=["queued", "failed"], batch=on.batch), Job),
    "batches": (lambda client, on: client.batches(finished=False), Batch),
    "dead_letters": (lambda client, on: client.dead_letters(open=True), DeadLetter),
    "dead_letter": (lambda client, on: client.dead_letter(on.letter), DeadLetter),
    "operations": (lambda client, on: client.operations(status=["running", "done"]), Operation),
    "results": (lambda client, on: client.results(on.batch), Result),
    "table": (lambda client, on: client.table(on.ended_batch, columns=["status"], with_input=True), dict),
    "result": (lambda client, on: client.result(on.ended), dict),
    "watch": (lambda client, on: client.watch(on.ended), Update),
    "wait": (lambda client, on: client.wait(on.ended_batch, timeout=60), Batch),
    "go_on_job": (lambda client, on: client.go_on_job(on.waiting, reason="x"), Job),
    "go_on_batch": (lambda client, on: client.go_on_batch(on.waiting_batch, reason="x"), Batch),
    "cancel_job": (lambda client, on: client.cancel_job(on.job, reason="x"), Job),
    "cancel_jobs": (lambda client, on: client.cancel_jobs([on.job, on.ended], reason="x"), Moved),
    "change_job_priority": (lambda client, on: client.change_job_priority(on.job, "urgent", reason="x"), Job),
    "change_jobs_priority": (
        lambda client, on: client.change_jobs_priority([on.job, on.ended], "low", reason="x"),
        Moved,
    ),
    "change_batch_priority": (
        lambda client, on: client.change_batch_priority(on.batch, "low", canary=1, reason="x"),
        Operation,
    ),
    "reschedule_job": (lambda client, on: client.reschedule_job(on.job, delay_seconds=0, reason="x"), Job),
    "reschedule_jobs": (
        lambda client, on: client.reschedule_jobs([on.job, on.ended], delay_seconds=60, reason="x"),
        Moved,
    ),
    "cancel_operation": (lambda client, on: client.cancel_operation(on.operation, reason="x"), Operation),
    "retry_job": (lambda client, on: client.retry_job(on.failed, payload=PAYLOAD, priority="urgent", note="x"), Job),
    "cancel_batch": (lambda client, on: client.cancel_batch(on.batch, reason="x"), Operation),
    "retry_batch": (lambda client, on: client.retry_batch(on.batch, spread_seconds=5, note="x"), Operation),
    "pause_batch": (lambda client, on: client.pause_batch(on.batch, reason="x"), Paused),
    "resume_batch": (lambda client, on: client.resume_batch(on.batch, reason="x"), Paused),
    "pause_project": (lambda client, on: client.pause_project(reason="x"), Paused),
    "resume_project": (lambda client, on: client.resume_project(reason="x"), Paused),
    "requeue": (lambda client, on: client.requeue([on.letter, uuid4()], spread_seconds=5, note="x"), Moved),
    "requeue_where": (lambda client, on: client.requeue_where({"kind": KIND}, priority="low"), Operation),
    "discard": (lambda client, on: client.discard([on.letter], reason="x"), Moved),
    "discard_where": (lambda client, on: client.discard_where({"batch_id": on.batch}, reason="x"), Operation),
    "windows": (lambda client, on: client.windows(scope=["project"]), Window),
    "window": (lambda client, on: client.window(on.window), Window),
    "create_window": (
        lambda client, on: client.create_window(
            weekdays=[FAR_WEEKDAY], since="22:00", until="02:00", time_zone="Europe/Berlin"
        ),
        Window,
    ),
    "change_window": (lambda client, on: client.change_window(on.window, reason="x"), Window),
    "end_window": (lambda client, on: client.end_window(on.window, reason="x"), Window),
    "delete_window": (lambda client, on: client.delete_window(on.window, reason="x"), type(None)),
    "allowances": (lambda client, on: client.allowances(), Allowance),
    "allowance": (lambda client, on: client.allowance("acme"), Allowance),
    "change_allowance": (
        lambda client, on: client.change_allowance("acme", policy="record_overage", reason="x"),
        Allowance,
    ),
    "delete_allowance": (lambda client, on: client.delete_allowance("acme", reason="x"), type(None)),
    "create_allowance": (lambda client, on: created_again(client), Allowance),
    "audit": (lambda client, on: client.audit(order="oldest", action="try"), AuditEntry),
    "schedules": (lambda client, on: client.schedules(paused=False), Schedule),
    "schedule": (lambda client, on: client.schedule(on.schedule), Schedule),
    "fires": (lambda client, on: client.fires(on.schedule, outcome="submitted"), Fire),
    "create_schedule": (
        lambda client, on: client.create_schedule(f"{uuid4()}", "0 4 * * *", SPECS, time_zone="Europe/Berlin"),
        Schedule,
    ),
    "preview_schedule": (lambda client, on: client.preview_schedule(f"{uuid4()}", "0 4 * * *", SPECS), datetime),
    "change_schedule": (lambda client, on: client.change_schedule(on.schedule, cron="0 4 * * *", reason="x"), Schedule),
    "pause_schedule": (lambda client, on: client.pause_schedule(on.schedule, reason="x"), Schedule),
    "resume_schedule": (lambda client, on: client.resume_schedule(on.schedule, reason="x"), Schedule),
    "run_schedule": (lambda client, on: client.run_schedule(on.schedule, reason="x"), Fire),
    "webhooks": (lambda client, on: client.webhooks(enabled=True), Webhook),
    "webhook": (lambda client, on: client.webhook(on.webhook), Webhook),
    "create_webhook": (
        lambda client, on: client.create_webhook("https://example.org/", jobs={"kinds": [KIND]}, most_jobs=5),
        Webhook,
    ),
    "change_webhook": (
        lambda client, on: client.change_webhook(on.webhook, jobs={"outcomes": ["failed"]}, reason="x"),
        Webhook,
    ),
    "change_webhook_secret": (
        lambda client, on: client.change_webhook_secret(on.webhook, overlap_seconds=0, reason="x"),
        Webhook,
    ),
    "test_webhook": (lambda client, on: client.test_webhook(on.webhook, reason="x"), Delivery),
    "send_webhook_again": (lambda client, on: client.send_webhook_again(on.webhook, reason="x"), SentAgain),
    "deliveries": (lambda client, on: client.deliveries(on.webhook, event="webhook.test"), Delivery),
    "heard_jobs": (lambda client, on: client.heard_jobs(on.webhook, waits=True), HeardJob),
    "delete_schedule": (lambda client, on: client.delete_schedule(on.schedule, reason="x"), type(None)),
}


# After these the stage is as it was.
READING = {
    *("forecast", "job", "batch", "waiting", "operation", "find", "project", "handlers", "jobs", "batches"),
    *(
        "dead_letters",
        "dead_letter",
        "operations",
        "results",
        "table",
        "result",
        "watch",
        "wait",
        "allowances",
        "allowance",
        "windows",
        "window",
        "audit",
        "schedules",
        "schedule",
    ),
    *("fires", "preview_schedule", "webhooks", "webhook", "deliveries", "heard_jobs"),
}


def methods_of(kind: type) -> set[str]:
    return {name for name, _ in inspect.getmembers(kind, inspect.isfunction) if not name.startswith("_")}


def test_both_forms_have_the_same_methods_and_each_is_tried_here():
    assert methods_of(QueueOps) == methods_of(AsyncQueueOps) == {*CALLS, "close"}
    for name in CALLS:
        blocking, awaited = (inspect.signature(getattr(form, name)).parameters for form in PYTHON.values())
        assert [(one.name, one.default) for one in blocking.values()] == [
            (one.name, one.default) for one in awaited.values()
        ]


def test_the_typescript_client_has_them_too():
    assert TypeScriptQueueOps("http://127.0.0.1", "").methods() == {*CALLS}


def test_each_call_is_answered_with_what_its_type_promises(client: Both):
    stage = set_stage(client)
    for name, (call, promised) in CALLS.items():
        answer = call(client, stage)
        if name not in READING:
            stage = set_stage(client)
        found = answer if isinstance(answer, list) else [answer]
        assert found, name
        for one in found:
            assert isinstance(one, promised), name
            for record in records_in(one):
                require_types(record)


def records_in(answer: Any) -> Iterator[records.Record]:
    if isinstance(answer, records.Record):
        yield answer
    elif isinstance(answer, Update):
        yield answer.subject


def require_types(record: records.Record) -> None:
    """That each field holds what a type checker takes it for."""
    for name, hint in get_type_hints(type(record)).items():
        TypeAdapter(hint).validate_python(getattr(record, name), strict=True)


SHOWN: dict[type[records.Record], list[dict[str, Any]]] = {
    Job: [examples.JOB_DETAIL, examples.SUBMITTED],
    Batch: [examples.BATCH_DETAIL],
    SubmittedBatch: [examples.SUBMITTED_BATCH],
    records.Forecast: [FORECAST],
    records.ForecastWay: [FORECAST["live"]],
    DeadLetter: [examples.DEAD_LETTER],
    Operation: [examples.OPERATION],
    Moved: [examples.MOVED],
    records.Project: [examples.PROJECT],
    Schedule: [SCHEDULE],
    Allowance: [SAVED_ALLOWANCE],
    Fire: [FIRE],
    Webhook: [MADE_WEBHOOK],
    Delivery: [WEBHOOK_DELIVERY],
    HeardJob: [WEBHOOK_JOB],
}
OURS: dict[type[records.Record], set[str]] = {SubmittedBatch: {"idempotency_key"}}


def test_a_record_reads_nothing_that_the_server_does_not_write():
    """The examples are those of the OpenAPI document, each of which is checked against its schema."""
    read_in_vain = {}
    for record, shown in SHOWN.items():
        written = {"raw"}.union(OURS.get(record, set()), *shown)
        if unwritten := {field.name for field in fields(record)} - written:
            read_in_vain[record.__name__] = unwritten
    assert read_in_vain == {}


Refusal = tuple[Call, type[ApiError], int, str]
REFUSALS: dict[str, Refusal] = {
    "unknown id": (lambda client, on: client.job(uuid4()), NotFound, 404, "not_found"),
    "a job's id for a batch's": (lambda client, on: client.batch(on.job), NotFound, 404, "not_found"),
    "ended": (lambda client, on: client.cancel_job(on.ended), Conflict, 409, "wrong_state"),
    "not failed": (lambda client, on: client.retry_job(on.job), Conflict, 409, "wrong_state"),
    "bad payload": (lambda client, on: client.submit(KIND, {"method": "GET"}), InvalidRequest, 422, "invalid_job"),
    "unknown kind": (lambda client, on: client.submit("no.such"), InvalidRequest, 422, "unknown_kind"),
    "no jobs": (lambda client, on: client.submit_many([]), InvalidRequest, 422, "empty_batch"),
    "bad jobs": (lambda client, on: client.submit_many([{"kind": "no"}]), BatchRejected, 422, "batch_rejected"),
    "unknown filter": (lambda client, on: client.jobs(colour="red"), InvalidRequest, 400, "invalid_query"),
    "no reason": (lambda client, on: client.discard([on.letter], reason=""), InvalidRequest, 422, "invalid_input"),
    "large body": (
        lambda client, on: client.submit(KIND, {**PAYLOAD, "body": "x" * 4_000_000}),
        InvalidRequest,
        413,
        "body_too_large",
    ),
}


def test_each_refusal_is_an_error_of_its_class_with_code_and_cause(client: Both):
    on = set_stage(client)
    for name, (call, expected, status, code) in REFUSALS.items():
        with pytest.raises(ApiError) as raised:
            call(client, on)
        error = raised.value
        assert (type(error), error.status, error.code) == (expected, status, code), name
        assert error.message
        assert code in str(error)
        assert bool(error.fields) is (code in {"invalid_job", "invalid_input", "invalid_query"}), name


def test_a_key_stands_for_one_piece_of_work(client: Both):
    first, again = (client.submit(KIND, PAYLOAD, idempotency_key="k") for _ in range(2))
    assert (first.created, again.created, first.id) == (True, False, again.id)
    with pytest.raises(IdempotencyKeyReused):
        client.submit(KIND, {**PAYLOAD, "method": "PUT"}, idempotency_key="k")


def test_what_was_tagged_is_found_by_its_tags(client: Both):
    job = client.submit(KIND, PAYLOAD, tags=["nightly", "region:eu"], user_id=uuid4(), user_label="Anna")
    batch = client.submit_many(SPECS, tags=["import"])
    client.submit(KIND, PAYLOAD, tags=["nightly"])
    [found] = client.jobs(tags=["region:eu", "nightly"])
    assert (found.id, list(found.tags)) == (job.id, ["nightly", "region:eu"])
    assert len(list(client.jobs(any_tag=["region:eu", "nightly"]))) == 2
    assert [(one.id, list(one.tags)) for one in client.batches(tags=["import"])] == [(batch.id, ["import"])]


def test_work_waits_for_what_it_is_after_and_a_callback_for_its_batch(client: Both):
    first = client.submit(KIND, PAYLOAD, delay_seconds=3600)
    callback = {"kind": KIND, "payload": {"method": "POST", "url": "https://api.example.org/done"}}
    alone = client.submit(KIND, PAYLOAD, after=[str(first.id)], on_failure="run")
    batch = client.submit_many(SPECS, after=[str(first.id)], on_failure="hold", on_finish=callback)
    told = client.batch(batch.id)
    assert (told.after, told.on_failure) == ([str(first.id)], "hold")
    last = Jobs.objects.get(pk=told.on_finish_job)
    assert (last.kind, last.payload, last.held, last.batch_id) == (KIND, callback["payload"], True, None)
    assert str(first.id) in (client.job(alone.id).waiting_for or "")
    assert Jobs.objects.filter(held=True).count() == 4

    client.cancel_job(first.id)
    DependantsDuty().do()
    assert not Jobs.objects.get(pk=alone.id).held  # what it was after did not succeed, and it runs all the same
    assert Jobs.objects.filter(batch_id=batch.id, held=True).count() == 2

    cancel_jobs(Jobs.objects.filter(batch_id=batch.id).values_list("pk", flat=True), actor="user:1", reason="x")
    assert Jobs.objects.get(pk=last.pk).held
    DependantsDuty().do()
    assert not Jobs.objects.get(pk=last.pk).held


def test_a_forecast_refuses_what_the_submission_would_and_stores_nothing(client: Both):
    unknown = str(uuid4())
    for options, words in (
        ({"after": [unknown]}, unknown),
        ({"on_finish": {"kind": KIND, "payload": {}}}, "on_finish.payload.url"),
        ({"on_finish": {"kind": "no.such", "payload": {}}}, "on_finish.kind"),
    ):
        told = []
        for ask in (client.forecast, client.submit_many):
            with pytest.raises(ApiError) as refused:
                ask(SPECS, **options)
            said = refused.value
            told.append((type(said), said.code, f"{said.message} {said.fields} {said.details}"))
        assert told[0] == told[1]
        assert words in told[0][2]
    on = client.submit(KIND, PAYLOAD, delay_seconds=3600)
    forecast = client.forecast(SPECS, after=[str(on.id)], on_finish=SPECS[1])
    assert (forecast.accepted, forecast.jobs["count"]) == (True, len(SPECS))
    assert Jobs.objects.count() == 1


def test_who_may_not_is_told_what_is_missing(address: str, form, transactional_db):
    reader = key_for("acme", scopes=["read"])
    with Both(form, address, reader, retry=NEVER) as reading, pytest.raises(NotAllowed) as refused:
        reading.submit(KIND, PAYLOAD)
    assert (refused.value.code, refused.value.details["needed"]) == ("missing_scope", "submit")


UNKNOWN = {
    "": "not_authenticated",
    "qo_nonsense": "invalid_key",
    "eyJhbGciOiJub25lIn0.e30.": "invalid_token",
}


def test_who_is_not_known_is_told_so(address: str, form):
    for secret, code in UNKNOWN.items():
        with Both(form, address, secret, retry=NEVER) as stranger, pytest.raises(NotAuthenticated) as refused:
            stranger.project()
        assert (refused.value.status, refused.value.code) == (401, code)


def test_who_asks_too_often_is_told_when_to_come_back(address: str, form, transactional_db):
    slow = key_for("acme", requests_per_minute=1)
    with Both(form, address, slow, retry=NEVER) as asking:
        asking.project()
        with pytest.raises(TooManyRequests) as refused:
            asking.project()
    assert (refused.value.status, refused.value.code) == (429, "throttled")
    assert 0 < (refused.value.retry_after or 0) <= 61


def test_a_full_queue_is_told_from_asking_too_often(client: Both):
    Project.objects.update(max_waiting_jobs=0)
    with pytest.raises(QueueFull) as refused:
        client.submit(KIND, PAYLOAD)
    assert (refused.value.status, refused.value.code) == (429, "queue_full")


def test_where_nobody_listens_nothing_can_have_arrived(form):
    nowhere = f"http://127.0.0.1:{free_port()}"
    with (
        Both(form, nowhere, "qo_x", retry=NEVER) as alone,
        pytest.raises(Unreachable) as lost,
    ):
        alone.submit(KIND, PAYLOAD)
    assert lost.value.may_have_arrived is False


def test_another_projects_rows_are_not_there(client: Both, address: str, form):
    stage = set_stage(client)
    theirs = ProducerKey.issue(make_project("globex"), name="other", scopes=ALL_SCOPES)[1]
    with Both(form, address, theirs, retry=NEVER) as other:
        for look in (other.job, other.batch, other.operation, other.cancel_batch, other.results):
            with pytest.raises(NotFound):
                look(stage.batch)
        assert other.jobs() == other.batches() == other.dead_letters() == []
        assert other.cancel_jobs([stage.job]).unmoved == [str(stage.job)]


def test_one_asynchronous_client_serves_many_tasks_at_once(address: str, key: str):
    job_id = make_job().pk

    async def ask() -> list[Any]:
        async with AsyncQueueOps(address, key) as together:
            return await asyncio.gather(*(together.job(job_id) for _ in range(20)))

    assert {job.id for job in asyncio.run(ask())} == {job_id}
