"""P13: whoever notes ended jobs, makes messages of them or sends one dies before or after each statement."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from uuid import UUID

import pytest
from django.db import connection

from jobs.features.flow import flow
from jobs.features.webhooks.tell import WebhooksDuty
from jobs.handlers.webhook import compose
from jobs.models import Batch, FlowCursor, Job, Webhook, WebhookDelivery, WebhookJob
from jobs.services.finish.claimed import ClaimedJob
from jobs.services.finish.outcomes import Succeeded
from jobs.services.upkeep.batches import finish_batches
from queueops.tenancy.models import Project
from tests.crash_points.worlds import ONCE, POOR, REPEATABLE, Operation, Queue
from tests.factories import make_webhook
from tests.support.flow import count_all
from tests.support.processes import wait_for

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.proves("P13")]

IS_CERTAIN = (
    "SELECT horizon <= pg_snapshot_xmin(pg_current_snapshot())::text::bigint FROM jobs_flowcursor WHERE log = %s"
)


@dataclass
class Hooks(Queue):
    """
    A queue whose ended jobs and batches are told to two webhooks.

    Attributes:
        heard: What came, by the message's id; each time that it came.
    """

    project: str = POOR
    heard: dict[str, list[object]] = field(default_factory=dict)

    def empty(self) -> None:
        super().empty()
        self.heard.clear()
        count_all()

    def outside(self) -> object:
        return super().outside(), {name: len(times) for name, times in self.heard.items()}

    def call(self, job: ClaimedJob) -> None:
        super().call(job)
        if job.service != "webhook":
            return
        message = compose(UUID(json.loads(job.payload)["delivery_id"]))
        assert message is not None
        told = json.loads(message.body)["data"]
        self.heard.setdefault(message.id, []).append(told.get("jobs") or told["batch"])

    def succeeded(self, job: ClaimedJob) -> Succeeded:
        return Succeeded(job, "webhook", None, 5.0) if job.service == "webhook" else super().succeeded(job)

    def recover(self) -> None:
        super().recover()
        count_all()
        WebhooksDuty().do()
        finish_batches()
        self.carry_on()

    def end_some(self) -> None:
        self.write(*map(self.succeeded, self.running(REPEATABLE, ONCE)))

    def check(self) -> None:
        super().check()
        hooks = list(Webhook.objects.all())
        ours = Job.objects.exclude(service="webhook")
        noted = Counter(WebhookJob.objects.values_list("webhook", "job_id"))
        assert noted == Counter({(hook.pk, job.pk): 1 for hook in hooks for job in ours}), "not noted once for each"
        assert not WebhookJob.objects.filter(delivery_id=None).exists(), "a job is told in no message"
        of_batches = Counter(WebhookDelivery.objects.exclude(batch=None).values_list("webhook", "batch"))
        assert of_batches == Counter({(hook.pk, batch.pk): 1 for hook in hooks for batch in Batch.objects.all()})
        deliveries = {str(pk) for pk in WebhookDelivery.objects.values_list("pk", flat=True)}
        assert self.heard.keys() == deliveries, "not every message came, or one came under another id"
        assert all(times.count(times[0]) == len(times) for times in self.heard.values()), "a repetition tells another"
        told = Counter(job["job"] for times in self.heard.values() if isinstance(times[0], list) for job in times[0])
        assert told == Counter({str(job.pk): len(hooks) for job in ours}), "a job is told under two ids"


@pytest.fixture
def hooks(queue: Queue) -> Iterator[Hooks]:
    for _ in range(2):
        make_webhook(Project.objects.get(pk=POOR), hears_jobs=True, hears_batches=True)
    found = Hooks()
    yield found
    found.close()


def is_certain() -> bool:
    with connection.cursor() as cursor:
        return bool(cursor.execute(IS_CERTAIN, [flow.EVENT_LOG]).fetchone()[0])


def note(hooks: Hooks) -> Operation:
    hooks.end_some()
    cursor = FlowCursor.objects.filter(pk=flow.EVENT_LOG)
    while cursor.get().horizon is None:
        flow.sum_up(settle_seconds=0)
    wait_for(is_certain, what="the end of all transactions before")
    return lambda: flow._count_events(0, flow.EVENTS_AT_ONCE)


def make_messages(hooks: Hooks) -> Operation:
    hooks.end_some()
    count_all()
    return lambda: WebhooksDuty().do()


def end_a_batch(hooks: Hooks) -> Operation:
    hooks.end_some()
    return finish_batches


def deliver(hooks: Hooks) -> Operation:
    make_messages(hooks)()
    job = hooks.claim()[0]

    def call_and_write() -> None:
        hooks.call(job)
        hooks.write(hooks.succeeded(job))

    return call_and_write


POINTS: dict[Callable[[Hooks], Operation], int] = {note: 14, make_messages: 42, end_a_batch: 34, deliver: 16}


@pytest.mark.parametrize("operation", POINTS, ids=lambda one: one.__name__)
def test_whoever_tells_webhooks_may_die_anywhere(operation: Callable[[Hooks], Operation], hooks: Hooks, figures):
    figures(hooks.case(operation).crash_everywhere(at_least=POINTS[operation]))
