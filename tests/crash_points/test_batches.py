"""Whoever makes batches at a provider and reads them dies before or after each statement: no line is paid for twice."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any

import pytest
from django.conf import settings as django_settings
from django.db.models import F
from django.utils import timezone
from multidict import CIMultiDict, CIMultiDictProxy

from jobs.features.batch_lane.steps.advance import Step
from jobs.features.batch_lane.steps.calls import CallLoop
from jobs.features.batch_lane.steps.collect import collect_waiting
from jobs.features.batch_lane.steps.rounds import kinds_with_batches
from jobs.models import Job, ProviderBatch
from jobs.services.submit.submit import submit_batch
from jobs.states import JobState
from queueops.core.outbound.client import OutboundResponse
from queueops.tenancy.models import Credential, Project
from queueops.tenancy.secrets.credentials import seal
from ratelimits.models import Charge, Limit, Price
from tests.crash_points.worlds import PROJECT, Operation, Queue
from tests.support.batch_provider import Provider

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.proves("R10")]

LINES = 1
MAX_STEPS = 20


class Wire(CallLoop):
    """Calls that reach the provider of this test."""

    provider: Provider

    async def send(self, method: str, url: str, **given: Any) -> OutboundResponse:
        content = self.provider.answer(method, url.partition("/v1/")[2], given.get("body"))
        if given.get("on_line"):
            for line in content.splitlines():
                given["on_line"](line)
        return OutboundResponse(200, CIMultiDictProxy(CIMultiDict()), content, is_truncated=False, charset=None)


@dataclass
class Lane(Queue):
    """A queue whose jobs go by a batch of their provider, under a limit of what is enqueued and a budget."""

    wire: Wire = field(default_factory=Wire)

    def empty(self) -> None:
        super().empty()
        self.wire.provider = Provider()

    def outside(self) -> object:
        provider = self.wire.provider
        return len(provider.files), len(provider.batches), sum(provider.paid.values())

    def submit_lines(self) -> None:
        payload = {"provider": "openai", "credential": "key", "model": "small-1", "max_output_tokens": 20}
        by = {"complete_by": (timezone.now() + timedelta(hours=30)).isoformat(), "via": "batch"}
        submit_batch(
            [
                {"kind": "llm.generate", "payload": {**payload, "prompt": f"Question {number}"}, **by}
                for number in range(LINES)
            ],
            project_id=PROJECT,
            actor="key:test",
        )

    def collect(self) -> object:
        return collect_waiting(kinds_with_batches())

    def step(self) -> None:
        for batch in ProviderBatch.objects.filter(state__in=ProviderBatch.UNFINISHED):
            Step(batch, self.wire).make()

    def recover(self) -> None:
        self.check_log()
        unfinished = ProviderBatch.objects.filter(state__in=ProviderBatch.UNFINISHED)
        margin = timedelta(seconds=django_settings.QUEUEOPS.batch_margin_seconds)
        for _ in range(MAX_STEPS):
            if unfinished.update(look_at=timezone.now(), create_before=timezone.now() - timedelta(hours=1)):
                self.step()
            elif Job.objects.unfinished().exists():
                Job.objects.filter(status="retried").update(scheduled_at=F("complete_by") - margin)
                self.collect()
            else:
                break

    def check(self) -> None:
        self.check_log()
        assert set(Job.objects.values_list("status", flat=True)) == {JobState.COMPLETED}
        assert set(self.wire.provider.paid.values()) == {1}, f"paid for twice: {self.wire.provider.paid}"
        assert len(self.wire.provider.paid) == LINES
        assert not Charge.objects.exists(), "what an ended batch had enqueued is held"
        self.check_ledger()


@pytest.fixture
def lane(queue: Queue, settings: Any) -> Iterator[Lane]:
    settings.QUEUEOPS = replace(settings.QUEUEOPS, batch_collect_seconds=0.0)
    row = Credential.objects.create(
        name="key", service="openai", secret=seal({"api_key": "secret"}), base_url="http://127.0.0.1:9/v1"
    )
    row.projects.add(Project.objects.get(pk=PROJECT))
    Limit.objects.create(
        name="enqueued", service="openai", unit="enqueued_tokens", capacity=10**6, algorithm="concurrency",
        lease_seconds=90 * 86_400,
    )  # fmt: skip
    for unit in ("input_tokens", "output_tokens"):
        Price.objects.create(
            provider="openai", model="small-1", unit=unit, amount=1_000_000, via="batch", valid_from="2026-01-01T00:00Z"
        )
    found = Lane()
    yield found
    found.close()
    found.wire.close()


def collect(lane: Lane) -> Operation:
    lane.submit_lines()
    return lane.collect


def hand_over(lane: Lane) -> Operation:
    collect(lane)()
    return lane.step


def read(lane: Lane) -> Operation:
    hand_over(lane)()
    return lane.step


POINTS: dict[Callable[[Lane], Operation], int] = {collect: 52, hand_over: 32, read: 76}


@pytest.mark.parametrize("operation", POINTS, ids=lambda one: one.__name__)
def test_whoever_tends_batches_of_a_provider_may_die_anywhere(
    operation: Callable[[Lane], Operation], lane: Lane, figures
):
    figures(lane.case(operation).crash_everywhere(at_least=POINTS[operation]))
