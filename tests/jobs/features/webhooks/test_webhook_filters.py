"""Webhooks that hear of ended jobs by a filter: which jobs, once each, and in which messages."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from dataclasses import dataclass
from datetime import timedelta
from itertools import count
from typing import Any, get_args
from uuid import UUID, uuid4

import pytest
from aiohttp import web
from asgiref.sync import sync_to_async
from django.db import connections, transaction
from django.db.models.functions import Now
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from jobs.features.erasure.erase_user import erase_user
from jobs.features.erasure.proof import find_traces
from jobs.features.flow import flow
from jobs.features.webhooks import tell as sending
from jobs.features.webhooks import webhooks
from jobs.features.webhooks.errors import BadWebhook, UnknownWebhook
from jobs.features.webhooks.inputs import JobOutcome
from jobs.features.webhooks.messages import make_message
from jobs.features.webhooks.tell import MAX_OPEN_MESSAGES, WebhooksDuty
from jobs.handlers import registry
from jobs.handlers.errors import ProviderError
from jobs.handlers.registry import RunningJob, close_handlers, find_handler
from jobs.handlers.webhook import WebhookPayload, compose, post_message
from jobs.models import Batch, Job, RestoredJob, Tag, Webhook, WebhookDelivery, WebhookJob
from jobs.services.upkeep.batches import finish_batches
from jobs.services.upkeep.retention import apply_retention
from jobs.states import TERMINAL, JobState
from queueops.tenancy.models import Project, ProjectMove
from tests.factories import make_batch, make_job, make_jobs, make_project, make_webhook, move_along
from tests.support.cases import every_case
from tests.support.examples import examples
from tests.support.flow import count_all
from tests.support.http_server import serving
from tests.support.processes import wait_for

pytestmark = pytest.mark.django_db(transaction=True)

USERS = [UUID(int=1), UUID(int=2)]
KINDS = ["http.request", "llm.generate"]
TAGS = ["red", "green", "ä b"]
OUTCOMES = sorted(TERMINAL)
NAMES = count()


@pytest.fixture(autouse=True)
def counted() -> None:
    count_all()


def hear(project: str = "acme", **figures: Any) -> Webhook:
    """A webhook that hears of ended jobs alone."""
    make_project(project)
    given = {"url": "http://127.0.0.1:9/", "hears_batches": False, "hears_jobs": True, **figures}
    return webhooks.save_webhook(None, given, project_id=project, actor="user:1")[0]


def end(jobs: list[Job] | Job, outcome: str = "completed") -> list[Job]:
    rows = jobs if isinstance(jobs, list) else [jobs]
    ids = [job.pk for job in rows]
    for edge in {
        "completed": ["dispatch", "start", "complete"],
        "failed": ["dispatch", "fail"],
        "cancelled": ["cancel"],
    }[outcome]:
        move_along(edge, ids)
    return rows


def heard(webhook: Webhook) -> list[UUID]:
    return list(WebhookJob.objects.filter(webhook=webhook).order_by("id").values_list("job_id", flat=True))


def messages(webhook: Webhook) -> list[dict[str, Any]]:
    found = []
    for delivery in WebhookDelivery.objects.filter(webhook=webhook).order_by("pk"):
        message = compose(delivery.pk)
        assert message is not None
        found.append(json.loads(message.body))
    return found


CASES: dict[str, tuple[dict[str, Any], set[str]]] = {
    "everything": ({}, {"plain", "failed", "cancelled", "llm", "tagged", "both", "of user", "of batch"}),
    "a kind": ({"kinds": ["llm.generate"]}, {"llm"}),
    "one of two kinds": (
        {"kinds": KINDS, "outcomes": ["completed"]},
        {"plain", "llm", "tagged", "both", "of user", "of batch"},
    ),
    "an outcome": ({"outcomes": ["failed"]}, {"failed"}),
    "two outcomes": ({"outcomes": ["failed", "cancelled"]}, {"failed", "cancelled"}),
    "a tag": ({"tags": ["red"]}, {"tagged", "both"}),
    "all of two tags": ({"tags": ["red", "ä b"]}, {"both"}),
    "any of two tags": ({"any_tag": ["green", "ä b"]}, {"both"}),
    "all and any": ({"tags": ["red"], "any_tag": ["green", "red"]}, {"tagged", "both"}),
    "a tag that nothing has": ({"tags": ["blue"]}, set()),
    "a user": ({"user_id": USERS[0]}, {"of user"}),
    "a batch": ({"batch": True}, {"of batch"}),
    "a user's failures": ({"user_id": USERS[0], "outcomes": ["failed"]}, set()),
}


@pytest.mark.parametrize("case", CASES)
def test_a_filter_lets_through_what_fits_all_that_it_names(case):
    figures, expected = CASES[case]
    batch = make_batch()
    figures = {**figures, "batch_id": batch.pk} if figures.get("batch") else figures
    webhook = hear(**{name: value for name, value in figures.items() if name != "batch"})
    of_other_project = hear("globex")
    made = {
        "plain": end(make_job())[0],
        "failed": end(make_job(), "failed")[0],
        "cancelled": end(make_job(), "cancelled")[0],
        "llm": end(make_job(kind="llm.generate"))[0],
        "tagged": end(make_job(tags=("red",)))[0],
        "both": end(make_job(tags=("red", "ä b")))[0],
        "of user": end(make_job(user_id=USERS[0]))[0],
        "of batch": end(make_job(batch=batch))[0],
    }
    make_job(state=JobState.RETRIED)  # has not ended
    count_all()
    assert heard(webhook) == [job.pk for name, job in made.items() if name in expected]
    assert heard(of_other_project) == []


@dataclass(frozen=True)
class Made:
    project: str
    kind: str
    tags: frozenset[str]
    outcome: str
    user_id: UUID | None
    batch: int | None


MADE = st.builds(
    Made,
    project=st.sampled_from(["a", "b"]),
    kind=st.sampled_from(KINDS),
    tags=st.frozensets(st.sampled_from(TAGS)),
    outcome=st.sampled_from([*OUTCOMES, "running"]),
    user_id=st.sampled_from([None, *USERS]),
    batch=st.sampled_from([None, 0, 1]),
)
FILTERS = st.fixed_dictionaries(
    {
        "project": st.sampled_from(["a", "b"]),
        "enabled": st.sampled_from([True, True, True, False]),
        "kinds": st.lists(st.sampled_from(KINDS), unique=True),
        "tags": st.lists(st.sampled_from(TAGS), unique=True, max_size=2),
        "any_tag": st.lists(st.sampled_from(TAGS), unique=True, max_size=2),
        "outcomes": st.lists(st.sampled_from(OUTCOMES), unique=True, max_size=2),
        "user_id": st.sampled_from([None, None, *USERS]),
        "batch": st.sampled_from([None, None, 0, 1]),
    }
)


def fits(job: Made, wanted: dict[str, Any]) -> bool:
    """The filter in plain Python."""
    return (
        wanted["enabled"]
        and job.project == wanted["project"]
        and job.outcome != "running"
        and (not wanted["kinds"] or job.kind in wanted["kinds"])
        and job.tags >= set(wanted["tags"])
        and (not wanted["any_tag"] or bool(job.tags & set(wanted["any_tag"])))
        and (not wanted["outcomes"] or job.outcome in wanted["outcomes"])
        and wanted["user_id"] in {None, job.user_id}
        and wanted["batch"] in {None, job.batch}
    )


@settings(max_examples=examples(30), suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture])
@given(made=st.lists(MADE, max_size=8), wanted=st.lists(FILTERS, min_size=1, max_size=4))
def test_a_row_exists_exactly_where_the_filter_fits(made, wanted):
    run = next(NAMES)
    for name in "ab":
        make_project(f"{name}{run}")
    batches = {(name, place): make_batch(project=f"{name}{run}") for name in "ab" for place in (0, 1)}
    hooks = []
    for figures in wanted:
        given_figures = {name: value for name, value in figures.items() if name not in {"project", "batch"}}
        batch_id = None if figures["batch"] is None else batches[figures["project"], figures["batch"]].pk
        hooks.append(hear(f"{figures['project']}{run}", batch_id=batch_id, **given_figures))
    jobs = []
    for one in made:
        batch = None if one.batch is None else batches[one.project, one.batch]
        job = make_job(
            project=f"{one.project}{run}", kind=one.kind, tags=tuple(one.tags), user_id=one.user_id, batch=batch
        )
        jobs.append(end(job, one.outcome)[0] if one.outcome != "running" else job)
    count_all()
    for hook, figures in zip(hooks, wanted, strict=True):
        expected = Counter(job.pk for job, one in zip(jobs, made, strict=True) if fits(one, figures))
        assert Counter(heard(hook)) == expected


def test_a_webhook_hears_of_what_ends_once_it_hears_and_while_it_is_switched_on():
    before = end(make_job())[0]
    webhook = hear()
    count_all()
    during = end(make_job())[0]
    count_all()
    webhooks.save_webhook(webhook.pk, {"enabled": False}, project_id="acme", actor="user:1")
    end(make_job())
    count_all()
    webhooks.save_webhook(webhook.pk, {"enabled": True}, project_id="acme", actor="user:1")
    after = end(make_job())[0]
    count_all()
    assert before.pk not in heard(webhook)
    assert heard(webhook) == [during.pk, after.pk]


def test_what_was_summed_up_and_is_summed_up_again_is_told_once():
    """As after a restore of an earlier moment, or in a copy of the log."""
    webhook = hear()
    job = end(make_job())[0]
    count_all()
    with transaction.atomic():
        assert sending.note_ended_jobs(0, 2**62) == 0
    assert heard(webhook) == [job.pk]
    WebhookJob.objects.all().delete()
    RestoredJob.objects.create(
        job_id=job.pk, project_id="acme", first_day="2026-01-01", last_day="2026-01-01", kept_until=Now()
    )
    with transaction.atomic():
        assert sending.note_ended_jobs(0, 2**62) == 0, "a job from the archive was told of when it ended"


def test_a_kind_that_was_renamed_is_heard_of_under_either_name(monkeypatch):
    for name in ("_handlers", "_aliases"):
        monkeypatch.setattr(registry, name, dict(getattr(registry, name)))

    def declare(kind: str, *, aliases: tuple[str, ...] = ()) -> None:
        @registry.handler(kind=kind, service="test", payload=dict, aliases=aliases)
        async def carry_out(job: RunningJob[dict[str, Any]]) -> None: ...

    declare("test.former")
    before = hear(kinds=["test.former"])
    del registry._handlers["test.former"]
    declare("test.now", aliases=("test.former", "test.first"))
    after = hear(kinds=["test.now", "llm.generate"])
    webhooks.save_webhook(before.pk, {"url": "http://127.0.0.1:9/moved"}, project_id="acme", actor="user:1")
    jobs = [make_job(kind=kind) for kind in ("test.former", "test.now", "test.first", "http.request")]
    end(jobs)
    count_all()
    for hook in (before, after):
        assert heard(hook) == [job.pk for job in jobs[:3]]
    with pytest.raises(BadWebhook):
        hear(kinds=["test.latter"])


def test_messages_to_webhooks_are_not_heard_of_by_webhooks():
    webhook = hear()
    end(make_job())
    count_all()
    WebhooksDuty().do()
    end(list(Job.objects.filter(kind="queueops.webhook_jobs")))
    count_all()
    assert len(heard(webhook)) == 1


def test_many_ended_jobs_leave_in_few_messages_of_which_few_are_under_way():
    webhook = hear(most_jobs=10)
    jobs = end(make_jobs(95))
    count_all()
    for _ in range(3):
        WebhooksDuty().do()
    first = list(WebhookDelivery.objects.order_by("pk"))
    assert [one.jobs_told for one in first] == [10] * MAX_OPEN_MESSAGES
    assert WebhookJob.objects.filter(delivery_id=None).count() == 55
    end([one.job for one in first[:2]])  # two are through
    WebhooksDuty().do()
    assert WebhookDelivery.objects.filter(is_open=True).count() == MAX_OPEN_MESSAGES
    while WebhookJob.objects.filter(delivery_id=None).exists():
        end(list(Job.objects.filter(kind="queueops.webhook_jobs", status="queued")))
        WebhooksDuty().do()
    assert [one.jobs_told for one in WebhookDelivery.objects.order_by("pk")] == [10] * 9 + [5]
    told = [job["job"] for message in messages(webhook) for job in message["data"]["jobs"]]
    assert told == [str(job.pk) for job in jobs], "each once, in the order in which they ended"


def test_one_that_does_not_take_its_messages_holds_up_no_other():
    stuck, other = hear(most_jobs=1), hear(url="http://127.0.0.1:10/")
    end(make_jobs(20))
    count_all()
    WebhooksDuty().do()
    assert WebhookDelivery.objects.filter(webhook=stuck).count() == MAX_OPEN_MESSAGES
    end(list(Job.objects.filter(webhookdelivery__webhook=other)))
    end(make_jobs(5))
    count_all()
    WebhooksDuty().do()
    assert WebhookDelivery.objects.filter(webhook=stuck).count() == MAX_OPEN_MESSAGES
    assert sum(WebhookDelivery.objects.filter(webhook=other).values_list("jobs_told", flat=True)) == 25
    targets = set(Job.objects.filter(kind="queueops.webhook_jobs").values_list("target", flat=True))
    assert len(targets) == 2, "each has an outage of its own"


def test_one_webhook_that_cannot_be_told_stops_none_of_the_others(monkeypatch):
    broken, other = hear(), hear()
    end(make_job())
    count_all()

    def refuse(webhook: Webhook, *arguments: Any, **options: Any) -> Any:
        if webhook.pk == broken.pk:
            raise RuntimeError("cannot")
        return make_message(webhook, *arguments, **options)

    monkeypatch.setattr(sending, "make_message", refuse)
    WebhooksDuty().do()
    assert WebhookJob.objects.get(webhook=broken).delivery_id is None
    assert WebhookJob.objects.get(webhook=other).delivery_id is not None


def test_the_more_webhooks_of_a_project_hear_of_jobs_the_shorter_is_what_is_told_in_one_transaction(monkeypatch):
    for project in ("acme", "acme", "acme", "acme", "globex"):
        hear(project)
    parts: list[int] = []
    monkeypatch.setattr(flow, "note_ended_jobs", lambda after, upto: parts.append(upto - after))
    end(make_jobs(30))
    wait_for(
        lambda: flow.sum_up(settle_seconds=0, most=40) and sum(parts) >= 4 * 30, seconds=60, what="that all is counted"
    )
    assert max(parts) == 10


@pytest.mark.parametrize("fails", [False, True])
def test_one_project_with_many_webhooks_leaves_the_others_their_turns(monkeypatch, fails):
    monkeypatch.setattr(sending, "WEBHOOKS_AT_ONCE", 3)
    many = [hear(most_jobs=1) for _ in range(3)]
    end(make_jobs(100))
    count_all()
    late = hear("globex")
    end(make_job(project="globex"))
    count_all()

    def told(webhook: Webhook, *arguments: Any, **options: Any) -> Any:
        if fails and webhook in many:
            raise RuntimeError("cannot")
        return make_message(webhook, *arguments, **options)

    monkeypatch.setattr(sending, "make_message", told)
    duty = WebhooksDuty()
    for _ in range(2):
        duty.do()
        end(list(Job.objects.filter(kind="queueops.webhook_jobs", project_id="acme", status="queued")))  # taken at once
    assert WebhookJob.objects.get(webhook=late).delivery_id is not None


def test_a_message_tells_what_ended_and_links_to_the_rest(settings):
    batch = make_batch()
    webhook = hear()
    done = end(make_job(batch=batch, tags=("red",), user_id=USERS[0]))[0]
    failed = end(make_job(), "failed")[0]
    Job.objects.filter(pk__in=[done.pk, failed.pk]).update(
        last_error_code="boom", last_error_message="secret text", result={"secret": "text"}
    )
    count_all()
    WebhooksDuty().do()
    [message] = messages(webhook)
    delivery = WebhookDelivery.objects.get()
    ended_at = Job.objects.get(pk=done.pk).finished_at
    assert ended_at is not None
    assert message["type"] == "jobs.ended"
    assert message["timestamp"] == delivery.created_at.isoformat()
    assert message["data"]["project"] == "acme"
    assert message["data"]["jobs"][0] == {
        "job": str(done.pk), "kind": "http.request", "batch": str(batch.pk), "user": str(USERS[0]), "tags": ["red"],
        "outcome": "completed", "error_code": "", "ended_at": ended_at.isoformat(),
        "links": {"job": f"/api/v1/jobs/{done.pk}/", "batch": f"/api/v1/batches/{batch.pk}/"},
    }  # fmt: skip
    second = message["data"]["jobs"][1]
    assert (second["outcome"], second["error_code"], second["batch"]) == ("failed", "boom", None)
    assert "secret" not in json.dumps(message)


def deliver_to(answer: Any, webhook: Webhook) -> list[tuple[dict[str, str], Any]]:
    """Carry out the messages of a webhook, each twice; returns headers and bodies that arrived."""
    received: list[tuple[dict[str, str], Any]] = []

    async def take(request: web.Request) -> web.Response:
        received.append(({name.lower(): value for name, value in request.headers.items()}, await request.json()))
        return web.Response(status=answer)

    async def deliver() -> None:
        async with serving(take) as url:
            await Webhook.objects.filter(pk=webhook.pk).aupdate(url=f"{url}/hook")
            handler = find_handler("queueops.webhook_jobs")
            async for delivery in WebhookDelivery.objects.filter(webhook=webhook).order_by("pk"):
                for attempt in (1, 2):
                    job = RunningJob(
                        id=uuid4(), payload=WebhookPayload(delivery_id=delivery.pk), project="acme", user_id=None,
                        effect_key=str(delivery.pk), attempt=attempt, report=lambda percent, message: None,
                    )  # fmt: skip
                    await handler.function(job)
            await close_handlers()
            await sync_to_async(connections.close_all)()

    asyncio.run(deliver())
    return received


def test_a_repeated_message_is_known_by_its_id_and_is_the_same():
    webhook = hear()
    end(make_jobs(3))
    count_all()
    WebhooksDuty().do()
    first, again = deliver_to(200, webhook)
    assert first[0]["webhook-id"] == again[0]["webhook-id"] == str(WebhookDelivery.objects.get().pk)
    assert first[1] == again[1]
    assert len(first[1]["data"]["jobs"]) == 3
    assert first[0]["webhook-signature"].startswith("v1,")


def test_a_test_arrives_also_where_the_webhook_is_switched_off_and_tells_of_no_job():
    webhook = hear(enabled=False)
    made = webhooks.send_test(webhook.pk, project_id="acme", actor="user:1")
    received = deliver_to(200, webhook)
    assert received[0][1]["type"] == "webhook.test"
    assert received[0][0]["webhook-id"] == str(made.pk)
    with pytest.raises(UnknownWebhook):
        webhooks.send_test(webhook.pk, project_id="globex", actor="user:1")


def test_a_webhook_hears_of_batches_or_of_jobs_or_of_both():
    jobs_alone, batches_alone = hear(), make_webhook(make_project())
    batch = make_batch()
    end(make_job(batch=batch))
    finish_batches()
    count_all()
    WebhooksDuty().do()
    assert list(batches_alone.deliveries.values_list("event", flat=True)) == ["batch.finished"]
    assert list(jobs_alone.deliveries.values_list("event", flat=True)) == ["jobs.ended"]


def test_what_waits_for_a_webhook_that_is_switched_off_or_a_project_that_moved_is_not_sent_meanwhile():
    webhook = hear()
    end(make_job())
    count_all()
    Webhook.objects.update(enabled=False)
    WebhooksDuty().do()
    Webhook.objects.update(enabled=True)
    Project.objects.update(move=ProjectMove.MOVED)
    WebhooksDuty().do()
    assert not WebhookDelivery.objects.exists()
    Project.objects.update(move=ProjectMove.NONE)
    WebhooksDuty().do()
    assert WebhookDelivery.objects.get().webhook == webhook


@pytest.mark.django_db
def test_an_address_that_was_stored_and_cannot_be_called_keeps_no_batch_open_and_can_be_switched_off():
    unusable = make_webhook(make_project(), url="https://app.example.org:99999/", hears_jobs=True)
    make_job(batch=make_batch(), state=JobState.CANCELLED)
    finish_batches()
    assert not Batch.objects.filter(finished_at=None).exists()
    message = compose(WebhookDelivery.objects.get().pk)
    assert message is not None
    with pytest.raises(ProviderError) as refused:
        asyncio.run(post_message(message))
    assert refused.value.code == "target_refused"
    off, _ = webhooks.save_webhook(unusable.pk, {"enabled": False}, project_id="acme", actor="user:1")
    assert not off.enabled


def test_what_is_under_way_as_a_webhook_is_switched_off_is_told_when_it_is_on_again():
    webhook = hear()
    [job] = end(make_job())
    count_all()
    WebhooksDuty().do()
    first = WebhookDelivery.objects.get()
    Webhook.objects.update(enabled=False)
    assert compose(first.pk) is None
    end(first.job)
    Webhook.objects.update(enabled=True)
    WebhooksDuty().do()
    second = WebhookDelivery.objects.exclude(pk=first.pk).get()
    message = compose(second.pk)
    assert message is not None
    assert [one["job"] for one in json.loads(message.body)["data"]["jobs"]] == [str(job.pk)]
    assert heard(webhook) == [job.pk]


def test_rows_are_kept_as_long_as_their_jobs_and_no_message_is_made_again():
    webhook = hear()
    told, kept = end(make_jobs(2))
    count_all()
    WebhooksDuty().do()
    delivery = WebhookDelivery.objects.get()
    end(delivery.job)
    Job.objects.filter(pk__in=[delivery.job_id, told.pk]).update(finished_at=Now() - timedelta(days=90))
    apply_retention(seconds=60)
    assert not WebhookDelivery.objects.exists()
    assert list(WebhookJob.objects.values_list("job_id", "delivery_id")) == [(kept.pk, delivery.pk)]
    WebhooksDuty().do()
    assert not WebhookDelivery.objects.exists(), "it was told, by a message that is deleted"
    assert heard(webhook) == [kept.pk]


def test_a_webhook_for_one_user_hears_of_nobody_once_that_user_is_erased():
    of_one, of_all = hear(user_id=USERS[0]), hear()
    end(make_job(user_id=USERS[0]))
    count_all()
    erase_user("acme", USERS[0], store=None, cancel=False, actor="user:1", reason="asked", say=lambda words: None)
    end(make_job())
    count_all()
    of_one.refresh_from_db(fields=["hears_jobs", "user_id"])
    assert (of_one.hears_jobs, of_one.user_id) == (False, None)
    assert (len(heard(of_one)), len(heard(of_all))) == (1, 2)
    WebhooksDuty().do()
    assert str(USERS[0]) not in json.dumps(messages(of_all))
    assert not find_traces("acme", USERS[0], archive=None)


BAD: dict[str, tuple[dict[str, Any], str, str]] = {
    "a kind that nobody carries out": ({"kinds": ["http.reqest"]}, "kinds", "Is 'http.request' meant"),
    "our own kind": ({"kinds": ["queueops.webhook"]}, "kinds", "No handler"),
    "too many kinds": ({"kinds": [f"k{place}" for place in range(60)]}, "kinds", "At most 50"),
    "a tag with a comma": ({"tags": ["a,b"]}, "tags", "without commas"),
    "an empty tag": ({"any_tag": [""]}, "any_tag", "printable"),
    "too many tags": ({"tags": [f"t{place}" for place in range(21)]}, "tags", "20"),
    "an outcome that is none": ({"outcomes": ["queued"]}, "outcomes", "not a valid choice"),
    "another project's batch": ({"batch_id": uuid4()}, "batch_id", "no such batch"),
    "no address": ({"url": "nowhere"}, "url", "valid URL"),
    "another scheme": ({"url": "ftp://example.org/"}, "url", "https://"),
    "a password": ({"url": "https://user:hush@example.org/"}, "url", "no user and no password"),
    "a user": ({"url": "https://user@example.org/"}, "url", "no user and no password"),
    "none of a message": ({"most_jobs": 0}, "most_jobs", "greater than or equal to 1"),
    "too many of a message": ({"most_jobs": 201}, "most_jobs", "less than or equal to 200"),
    "nothing to hear": ({"hears_jobs": False}, "hears_jobs", "nothing"),
}


@pytest.mark.django_db
@every_case("case", BAD, undone=True)
def test_what_no_webhook_can_mean_is_refused_at_its_field(case):
    figures, field, words = BAD[case]
    with pytest.raises(BadWebhook) as caught:
        hear(**figures)
    assert list(caught.value.fields) == [field]
    assert words in caught.value.fields[field][0]
    assert not Webhook.objects.exists()


@pytest.mark.django_db
@pytest.mark.parametrize("of", [{}, {"hears_batches": True, "hears_jobs": False}], ids=["jobs", "batches"])
def test_a_project_has_a_bounded_number_of_webhooks_that_are_looked_at_for_each_end(monkeypatch, of):
    monkeypatch.setattr(webhooks, "MAX_HEARERS", 2)
    one, _ = hear(**of), hear(**of)
    hear("globex", **of)
    with pytest.raises(BadWebhook) as refused:
        hear(**of)
    assert list(refused.value.fields) == ["hears_batches" if of else "hears_jobs"]
    webhooks.save_webhook(one.pk, {"kinds": ["http.request"]}, project_id="acme", actor="user:1")


@pytest.mark.django_db
def test_tags_that_nothing_has_so_far_are_told_and_taken():
    make_job(tags=("red",))
    webhook = hear(tags=["red", "bleu"])
    assert webhooks.unknown_tags(webhook) == ["bleu"]
    assert Tag.objects.filter(name="red").exists()


@pytest.mark.django_db
def test_the_api_takes_the_states_in_which_jobs_end():
    assert set(get_args(JobOutcome)) == set(TERMINAL)
