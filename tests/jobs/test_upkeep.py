"""House-keeping: partitions, retention, rescue, expiry, ended batches and their webhooks."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from uuid import UUID, uuid4

import pytest
from aiohttp import web
from asgiref.sync import sync_to_async
from cryptography.fernet import Fernet
from django.conf import settings as django_settings
from django.contrib.postgres.functions import TransactionNow as Now  # the clock of the hot SQL: stands still here
from django.db import connection, connections

from jobs.executor.duties import Duties
from jobs.features.watches.watch_unserved import watch_unserved
from jobs.handlers import registry
from jobs.handlers.registry import RunningJob, close_handlers, find_handler, handler
from jobs.handlers.webhook import WebhookPayload
from jobs.models import (
    Batch,
    DeadLetter,
    Executor,
    Job,
    JobEvent,
    RetryPolicy,
    WebhookDelivery,
)
from jobs.services.operate.dead_letters import requeue_dead_letters
from jobs.services.upkeep import batches as batch_upkeep
from jobs.services.upkeep import upkeep
from jobs.services.upkeep.batches import finish_batches
from jobs.services.upkeep.executors import register, take_duty
from jobs.services.upkeep.partitions import EVENTS, make_partitions
from jobs.states import WAITING, JobState
from jobs.transitions import Move, move_jobs
from queueops.core.sealing import seal_json
from queueops.tenancy.models import Project
from queueops.tenancy.secrets.encryption import forget_encrypted
from ratelimits.models import QuotaAlert
from tests.factories import (
    PAYLOAD,
    SIGNING_SECRET,
    make_batch,
    make_dead_letter,
    make_job,
    make_jobs,
    make_project,
    make_webhook,
    move_along,
)
from tests.support.cases import every_case
from tests.support.http_server import serving

pytestmark = pytest.mark.django_db


def partitions() -> set[str]:
    with connection.cursor() as cursor:
        cursor.execute("SELECT inhrelid::regclass::text FROM pg_inherits WHERE inhparent = 'jobs_jobevent'::regclass")
        return {name for (name,) in cursor.fetchall()}


def drop(*names: str) -> None:
    with connection.cursor() as cursor:
        for name in names:
            cursor.execute(f"DROP TABLE {name}")


def test_the_log_has_a_partition_for_today_and_each_of_the_next_seven_days():
    today = datetime.now(UTC).date()
    names = [EVENTS.part_of(today + timedelta(days=ahead))[0] for ahead in range(8)]
    make_partitions()
    assert set(names) <= partitions()
    assert make_partitions() == []
    drop(names[3], names[5])
    assert make_partitions() == [names[3], names[5]]
    job = make_job()
    with connection.cursor() as cursor:
        cursor.execute("SELECT tableoid::regclass::text FROM jobs_jobevent WHERE job_id = %s", [job.pk])
        assert cursor.fetchone() == (names[0],)


def test_a_day_without_a_partition_loses_no_event():
    drop(*(partitions() - {"jobs_jobevent_default"}))
    job = make_job()
    assert JobEvent.objects.filter(job_id=job.pk).count() == 1


def lapse(job: Job) -> Job:
    Job.objects.filter(pk=job.pk).update(lease_expires_at=Now() - timedelta(seconds=1))
    return job


WRITE = '{"method": "POST", "url": "http://127.0.0.1:9/"}'


@every_case(
    ("state", "payload", "crashes", "fate"),
    [
        (JobState.IN_PROGRESS, None, 0, "retried"),
        (JobState.IN_PROGRESS, None, 1, "retried"),
        (JobState.IN_PROGRESS, None, 2, "poison"),
        (JobState.IN_PROGRESS, WRITE, 0, "outcome_unknown"),
        (JobState.DISPATCHED, WRITE, 0, "retried"),
        (JobState.DISPATCHED, WRITE, 2, "poison"),
    ],
    undone=True,
)
def test_a_lapsed_lease_costs_a_crash_and_no_attempt_and_what_may_not_be_repeated_is_buried(
    state, payload, crashes, fate
):
    fields = {"payload": payload} if payload else {}
    job = lapse(make_job(state=state, crash_count=crashes, **fields))
    owned = make_job(state=state)
    assert upkeep.rescue_lapsed() == 1
    row = Job.objects.get(pk=job.pk)
    assert (row.crash_count, row.retry_count) == (crashes + 1, 0)
    if fate == "retried":
        assert (row.status, row.scheduled_at is not None) == (JobState.RETRIED, True)
        assert not DeadLetter.objects.exists()
    else:
        assert row.status == JobState.FAILED
        assert DeadLetter.objects.get(job=job.pk).error_code == fate
    assert Job.objects.get(pk=owned.pk).status == state


def test_a_lapsed_job_whose_kind_nobody_knows_any_more_is_buried():
    lapse(make_job(state=JobState.IN_PROGRESS, kind="gone.kind"))
    upkeep.rescue_lapsed()
    assert DeadLetter.objects.get().error_code == "outcome_unknown"


def test_what_this_release_cannot_read_is_left_to_a_living_executor_that_can_and_keeps_nobody_else(monkeypatch):
    monkeypatch.setattr(upkeep, "RESCUE_AT_ONCE", 2)
    of_a_later_release = {"of.a_later_release": "1", "http.request": "1"}
    other = Executor.objects.create(
        pid=2, process_started_at=0.0, cluster_pid=1, slots=9, role="general", kinds=of_a_later_release
    )
    unknown = [lapse(make_job(state=JobState.IN_PROGRESS, kind="of.a_later_release")) for _ in range(3)]
    misfit = lapse(make_job(state=JobState.IN_PROGRESS, payload='{"of": "a later release"}'))
    known = lapse(make_job(state=JobState.IN_PROGRESS))
    duties = Duties(uuid4(), sweep_seconds=30, silent_seconds=30, stuck_seconds=30)
    duties.do(1.0)
    assert {job.status for job in refreshed(*unknown, misfit)} == {JobState.IN_PROGRESS}
    assert refreshed(known)[0].status in WAITING
    assert take_duty("sweep", holder=uuid4(), term_seconds=30)
    other.delete()
    upkeep.rescue_lapsed()
    upkeep.rescue_lapsed()
    assert {job.status for job in refreshed(*unknown, misfit)} == {JobState.FAILED}


def test_a_lapsed_job_whose_key_is_missing_is_told_of_and_comes_back_by_a_host_that_has_the_key(settings):
    ours = replace(django_settings.QUEUEOPS, payload_keys=(("k1", Fernet.generate_key().decode()),), debug=False)
    settings.QUEUEOPS = ours
    job = lapse(make_job(state=JobState.IN_PROGRESS, payload=seal_json(PAYLOAD)))
    fresh = lapse(make_job(state=JobState.DISPATCHED, payload=seal_json(PAYLOAD)))
    Job.objects.filter(pk=job.pk).update(lease_expires_at=Now() - timedelta(minutes=3))
    lacking, having = uuid4(), uuid4()
    for host in (lacking, having):
        register(host, cluster_pid=1, slots=1, cluster_id=uuid4())
    settings.QUEUEOPS = replace(ours, payload_keys=())
    sweeper(lacking).do(10.0)
    assert refreshed(job)[0].status == JobState.IN_PROGRESS
    assert refreshed(fresh)[0].status in WAITING, "it had not begun, so its payload does not matter"
    assert lapsed_alerts() == [], "the hosts have just begun"
    Executor.objects.update(started_at=Now() - timedelta(minutes=3))
    [message] = lapsed_alerts()
    assert message.startswith("1 job of acme waits though the executor is gone: no host")
    settings.QUEUEOPS = ours
    sweeper(having).do(10.0)
    assert refreshed(job)[0].status == JobState.RETRIED
    assert lapsed_alerts() == []


def test_a_batch_whose_message_one_host_cannot_encrypt_is_closed_by_another(settings):
    key, other = Fernet.generate_key().decode(), Fernet.generate_key().decode()
    ours = replace(django_settings.QUEUEOPS, payload_keys=(("k1", key),), credential_keys=(other,), debug=False)
    settings.QUEUEOPS = ours
    batch = make_batch(total=1)
    make_webhook(batch.project)
    make_job(state=JobState.COMPLETED, batch=batch)
    Project.objects.update(encrypted=True)
    forget_encrypted()
    lacking, having = uuid4(), uuid4()
    for host in (lacking, having):
        register(host, cluster_pid=1, slots=1, cluster_id=uuid4())
    settings.QUEUEOPS = replace(ours, payload_keys=())
    sweeper(lacking).do(10.0)
    batch.refresh_from_db()
    assert batch.finished_at is None
    settings.QUEUEOPS = ours
    sweeper(having).do(10.0)  # the host that could not has given up its duty
    batch.refresh_from_db()
    assert batch.finished_at is not None
    forget_encrypted()


def sweeper(host: UUID) -> Duties:
    return Duties(host, sweep_seconds=5, silent_seconds=30, stuck_seconds=30)


def lapsed_alerts() -> list[str]:
    watch_unserved()
    found = QuotaAlert.objects.filter(kind="unserved", subject="lapsed/acme", resolved_at=None)
    return list(found.values_list("message", flat=True))


def refreshed(*jobs: Job) -> list[Job]:
    return list(Job.objects.filter(pk__in=[job.pk for job in jobs]))


@every_case("state", sorted(WAITING), undone=True)
def test_a_job_that_waits_beyond_its_producers_limit_is_buried(state):
    expired, patient, endless = make_jobs(3, state=state)
    Job.objects.filter(pk=expired.pk).update(expires_at=Now() - timedelta(seconds=1))
    Job.objects.filter(pk=patient.pk).update(expires_at=Now() + timedelta(hours=1))
    assert upkeep.expire_waiting() == 1
    assert Job.objects.get(pk=expired.pk).status == JobState.FAILED
    assert DeadLetter.objects.get().error_code == "expired"
    assert set(Job.objects.filter(pk__in=[patient.pk, endless.pk]).values_list("status", flat=True)) == {state}


def test_a_running_job_does_not_expire():
    job = make_job(state=JobState.IN_PROGRESS)
    Job.objects.filter(pk=job.pk).update(expires_at=Now() - timedelta(seconds=1))
    assert upkeep.expire_waiting() == 0


def test_a_batch_is_closed_when_its_last_job_has_ended_and_its_project_is_told_once():
    batch = make_batch()
    webhook = make_webhook(batch.project)
    make_webhook(batch.project, enabled=False)
    make_webhook(make_project("globex"))
    last = make_job(batch=batch, state=JobState.IN_PROGRESS)
    make_job(batch=batch, state=JobState.CANCELLED)
    finish_batches()
    assert Batch.objects.get(pk=batch.pk).finished_at is None
    move_along("complete", [last.pk])
    finish_batches()
    finished_at = Batch.objects.get(pk=batch.pk).finished_at
    assert finished_at is not None
    finish_batches()
    assert Batch.objects.get(pk=batch.pk).finished_at == finished_at
    delivery = WebhookDelivery.objects.get()
    assert (delivery.webhook, delivery.batch) == (webhook, batch)
    assert (delivery.job.kind, delivery.job.effect_key) == ("queueops.webhook", str(delivery.pk))


def test_a_batch_that_cannot_be_closed_keeps_no_other_open(monkeypatch):
    """The second project's webhooks cannot be told; the batches before and after it are closed all the same."""
    batches = [make_batch(project=name) for name in ("acme", "globex", "initech")]
    for batch in batches:
        make_job(project=batch.project_id, batch=batch, state=JobState.CANCELLED)

    def send(batch: Batch) -> int:
        if batch.project_id == "globex":
            raise LookupError("no such thing")
        return 0

    monkeypatch.setattr(batch_upkeep, "send_batch_webhooks", send)
    finish_batches()
    assert list(Batch.objects.filter(finished_at=None).values_list("project_id", flat=True)) == ["globex"]


def test_batches_that_cannot_be_closed_do_not_take_the_place_of_others(monkeypatch):
    monkeypatch.setattr(batch_upkeep, "CLOSE_AT_ONCE", 2)
    batches = [make_batch(project=name) for name in ("acme", "acme", "globex", "acme")]
    for batch in batches:
        make_job(project=batch.project_id, batch=batch, state=JobState.CANCELLED)

    def send(batch: Batch) -> int:
        if batch.project_id == "acme":
            raise LookupError("no such thing")
        return 0

    monkeypatch.setattr(batch_upkeep, "send_batch_webhooks", send)
    for _ in range(200):  # each time it is one of two out of four
        finish_batches()
    assert set(Batch.objects.filter(finished_at=None).values_list("project_id", flat=True)) == {"acme"}


def test_a_handler_whose_rule_raises_keeps_no_job_from_being_taken_back(monkeypatch):
    monkeypatch.setattr(registry, "_handlers", dict(registry._handlers))

    @handler(kind="test.odd", service="test", payload=dict[str, int], idempotent=lambda payload: payload["missing"] > 0)
    async def odd(job: RunningJob[dict[str, int]]) -> None: ...

    confusing = lapse(make_job(kind="test.odd", payload="{}", state=JobState.IN_PROGRESS))
    innocent = lapse(make_job(state=JobState.IN_PROGRESS))
    assert upkeep.rescue_lapsed() == 2
    assert DeadLetter.objects.get().job_id == confusing.pk
    assert Job.objects.get(pk=innocent.pk).status == JobState.RETRIED


def test_a_second_keeper_that_saw_the_batch_open_does_not_close_it_again():
    batch = make_batch()
    make_job(batch=batch, state=JobState.COMPLETED)
    Batch.objects.filter(pk=batch.pk).update(finished_at=(an_hour_ago := datetime.now(UTC) - timedelta(hours=1)))
    batch_upkeep._close_batch(batch.pk)
    assert Batch.objects.get(pk=batch.pk).finished_at == an_hour_ago


def test_a_batch_that_a_requeue_opened_again_is_closed_again_and_not_announced_twice():
    batch = make_batch()
    make_webhook(batch.project)
    letter = make_dead_letter(batch=batch)
    finish_batches()
    new = requeue_dead_letters([letter.pk], actor="user:1").moved[letter.pk]
    assert Batch.objects.get(pk=batch.pk).finished_at is None
    finish_batches()
    assert Batch.objects.get(pk=batch.pk).finished_at is None
    move_jobs("cancel", [Move(new)])
    finish_batches()
    assert Batch.objects.get(pk=batch.pk).finished_at is not None
    assert WebhookDelivery.objects.count() == 1


def test_the_rate_of_a_batch_is_sampled_while_it_runs():
    batch = make_batch()
    jobs = make_jobs(20, batch=batch, state=JobState.IN_PROGRESS)
    finish_batches()
    move_along("complete", [job.pk for job in jobs[:10]])
    Batch.objects.filter(pk=batch.pk).update(sampled_at=Now() - timedelta(seconds=5))
    finish_batches()
    batch.refresh_from_db()
    assert batch.rate_per_second == pytest.approx(2, rel=0.2)
    assert batch.sampled_finished == 10


def test_the_first_jobs_after_a_window_s_silence_do_not_pass_for_the_pace():
    batch = make_batch()
    jobs = make_jobs(20, batch=batch, state=JobState.IN_PROGRESS)
    move_along("complete", [job.pk for job in jobs[:1]])
    silent_since = Now() - timedelta(seconds=50)
    Batch.objects.filter(pk=batch.pk).update(rate_per_second=6.0, sampled_at=silent_since, sampled_finished=0)
    finish_batches()
    batch.refresh_from_db()
    assert batch.rate_per_second == pytest.approx(3, rel=0.1)


@pytest.mark.django_db(transaction=True)
def test_a_webhook_gets_a_message_signed_as_standard_webhooks_say():
    batch = make_batch(name="prices")
    make_job(batch=batch, state=JobState.COMPLETED)
    received: list[tuple[dict[str, str], bytes]] = []

    async def answer(request: web.Request) -> web.Response:
        received.append((dict(request.headers), await request.read()))
        return web.Response()

    async def deliver() -> None:
        async with serving(answer) as url:
            await sync_to_async(make_webhook)(batch.project, url=f"{url}/hook")
            await sync_to_async(finish_batches)()
            delivery = await WebhookDelivery.objects.aget()
            handler = find_handler("queueops.webhook")
            job = RunningJob(
                id=uuid4(), payload=WebhookPayload(delivery_id=delivery.pk), project="acme", user_id=None,
                effect_key=str(delivery.pk), attempt=1, report=lambda percent, message: None,
            )  # fmt: skip
            await handler.function(job)
            await close_handlers()
            await sync_to_async(connections.close_all)()

    asyncio.run(deliver())
    [(headers, body)] = received
    headers = {name.lower(): value for name, value in headers.items()}
    # https://www.standardwebhooks.com: HMAC-SHA256 over id.timestamp.body with the decoded secret.
    key = base64.b64decode(SIGNING_SECRET.removeprefix("whsec_"))
    signed = b".".join([headers["webhook-id"].encode(), headers["webhook-timestamp"].encode(), body])
    digest = hmac.new(key, signed, hashlib.sha256).digest()
    assert headers["webhook-signature"].split(" ") == ["v1," + base64.b64encode(digest).decode()]
    assert headers["webhook-id"] == str(WebhookDelivery.objects.get().pk)
    assert abs(int(headers["webhook-timestamp"]) - datetime.now(UTC).timestamp()) < 300
    message = json.loads(body)
    assert message["type"] == "batch.finished"
    assert message["data"]["batch"] == str(batch.pk)
    assert message["data"]["counts"]["completed"] == 1


def test_a_new_database_gets_its_rules_and_an_edited_one_keeps_them():
    RetryPolicy.objects.filter(name="moderate").update(max_retries=9)
    upkeep.prepare_database()
    assert RetryPolicy.objects.get(name="moderate").max_retries == 9
    RetryPolicy.objects.all().delete()
    upkeep.prepare_database()
    assert RetryPolicy.objects.get(name="moderate").max_retries == 5
