"""What the lane must not be misled by: haste, a provider that forgets, others' batches, and the deadline of one job."""

import json
from dataclasses import replace
from datetime import timedelta
from importlib import import_module
from typing import Any

import pytest
from django.utils import timezone

from jobs.features.batch_lane.operate import look_now
from jobs.features.batch_lane.steps import collect
from jobs.features.batch_lane.steps.calls import CallLoop
from jobs.features.batch_lane.steps.rounds import kinds_with_batches
from jobs.handlers.errors import ProviderError
from jobs.handlers.llm.batches import calls as batches_calls
from jobs.handlers.llm.batches.calls import compact
from jobs.models import Job, PauseSwitch, ProviderBatch, ProviderBatchLine, new_id
from jobs.services.claim.claim import promote_due
from jobs.services.operate.epochs import declare_restored
from queueops.core.outbound.client import OutboundResponse
from ratelimits.models import Spend
from tests.support.processes import wait_for

pytestmark = pytest.mark.django_db(transaction=True)

LONG = {"processing": {"mode": "fixed", "seconds": 60}}
SOON = {"processing": {"mode": "fixed", "seconds": 0.05}}


def test_a_look_that_somebody_asks_for_does_not_look_before_the_providers_list_can_tell(lane, sandbox):
    sandbox.turn(batches={"lost_create_rate": 1})
    lane.credential()
    lane.submit(3)
    lane.tend()
    batch = ProviderBatch.objects.get()
    look_now([batch.pk])
    lane.tend(now=False)
    batch.refresh_from_db()
    assert (batch.state, batch.creations) == ("creating", 1)
    assert batch.look_at > timezone.now()


def test_a_batch_that_the_provider_does_not_know_once_is_asked_for_again(lane, sandbox):
    sandbox.turn(batches=LONG)
    lane.credential()
    lane.submit(3)
    lane.tend()
    ProviderBatch.objects.update(provider_id="batch_of_nobody")
    lane.tend()
    assert ProviderBatch.objects.get().state == "open"
    assert lane.states() == ["in_progress"] * 3
    assert lane.tend_until_closed().state == "failed"


def test_a_job_with_little_time_does_not_pull_the_others_with_it(lane, sandbox):
    sandbox.turn(batches=LONG)
    lane.credential()
    lane.submit(1, complete_by=(timezone.now() + timedelta(hours=1)).isoformat())
    lane.submit(3)
    lane.tend()
    lane.tend()
    assert sorted(ProviderBatch.objects.values_list("lines", flat=True)) == [1, 3]


def test_a_job_of_a_batch_that_is_called_back_waits_for_the_next_where_its_own_deadline_leaves_time(lane, sandbox):
    sandbox.turn(batches=LONG)
    lane.credential()
    lane.submit(2)
    lane.tend()
    ProviderBatch.objects.update(live_at=timezone.now())
    lane.tend_until_closed()
    waiting = Job.objects.filter(status="retried")
    assert not waiting.filter(scheduled_at__lte=timezone.now() + timedelta(hours=20)).exists()
    [following] = collect.collect_waiting(kinds_with_batches())
    assert ProviderBatch.objects.get(pk=following).lines == 2


def test_a_job_that_is_tried_again_is_not_collected_before_its_backoff_is_over(lane, sandbox):
    sandbox.turn(batches={"processing": {"mode": "fixed", "seconds": 0.05}, "line_error_rates": {500: 1}})
    lane.credential()
    lane.submit(2)
    lane.tend_until_closed()
    Job.objects.update(scheduled_at=timezone.now() + timedelta(hours=2))
    assert lane.states() == ["retried"] * 2
    assert collect.collect_waiting(kinds_with_batches()) == []


def test_rows_in_backoff_hide_none_of_their_group(lane, settings):
    """However many of them are due first, and though a batch has no more lines than they are."""
    settings.QUEUEOPS = replace(settings.QUEUEOPS, batch_most_jobs=3)
    lane.credential()
    lane.submit(5)
    waiting = list(Job.objects.order_by("pk"))
    soon = timezone.now() + timedelta(minutes=5)
    in_backoff = [job.pk for job in waiting[:3]]
    Job.objects.filter(pk__in=in_backoff).update(status="retried", scheduled_at=soon, retry_count=1)
    [made] = collect.collect_waiting(kinds_with_batches())
    lines = ProviderBatch.objects.get(pk=made).all_lines.values_list("job_id", flat=True)
    assert sorted(lines) == sorted(job.pk for job in waiting[3:])
    assert set(Job.objects.filter(pk__in=in_backoff).values_list("status", "scheduled_at")) == {("retried", soon)}
    assert promote_due()[0] == 0
    Job.objects.filter(pk__in=in_backoff).update(scheduled_at=timezone.now())
    assert promote_due()[0] == 3, "they go live once it is over"


def test_a_group_that_cannot_be_collected_stops_no_other(lane, sandbox, monkeypatch):
    lane.credential()
    lane.credential("gemini")
    lane.submit(2)
    lane.submit(2, provider="gemini")
    spoken_by = collect._spoken_by

    def break_one(group):
        if group.service == "gemini":
            raise ZeroDivisionError
        return spoken_by(group)

    monkeypatch.setattr(collect, "_spoken_by", break_one)
    assert lane.tend_until_closed().succeeded == 2


def test_a_batch_of_another_credential_of_the_same_account_is_not_taken_for_ones_own(lane, sandbox):
    sandbox.turn(batches=LONG)
    lane.credential("anthropic")
    lane.submit(2, provider="anthropic")
    lane.tend()
    found = ProviderBatch.objects.get()
    assert found.state == "open"
    ProviderBatch.objects.filter(pk=found.pk).update(credential="anthropic-other")
    other = ProviderBatch.objects.get()
    other.pk, other.state, other.provider_id, other.credential = new_id(), "creating", "", "anthropic-key"
    other.creations = 1
    other.save(force_insert=True)
    ProviderBatchLine.objects.bulk_create(
        ProviderBatchLine(provider_batch=other, number=number, job_id=new_id(), token=1) for number in range(2)
    )
    lane.tend()
    other.refresh_from_db()
    assert (other.state, other.provider_id) == ("cancelled", "")


def test_after_a_restore_an_intent_is_looked_for_and_nothing_is_made_under_the_pause(lane, sandbox):
    lane.credential()
    lane.submit(2)
    collect.collect_waiting(kinds_with_batches())
    declare_restored(actor="system:test")
    lane.tend()
    batch = ProviderBatch.objects.get()
    assert (batch.state, batch.creations) == ("creating", 1)
    assert sandbox.billing()["batches"]["made"] == 0
    PauseSwitch.objects.all().delete()
    assert lane.tend_until_closed().succeeded == 2


def test_an_upload_that_is_refused_sends_its_jobs_live_at_once(lane, sandbox):
    lane.credential()
    lane.submit(2)
    collect.collect_waiting(kinds_with_batches())
    sandbox.revoke("project:acme/user:robot")
    lane.tend()
    assert ProviderBatch.objects.get().state == "failed"
    assert not Job.objects.filter(scheduled_at__gt=timezone.now()).exists()


def test_what_ended_while_nobody_was_there_to_look_is_read_though_its_deadline_is_over(lane, sandbox):
    lane.credential()
    lane.submit(3)
    lane.tend()
    wait_for(lambda: sandbox.billing()["custom_ids_paid"] == 3, what="the end at the provider")
    ProviderBatch.objects.update(live_at=timezone.now() - timedelta(hours=3), looked_at=None)
    assert lane.tend_until_closed().succeeded == 3


def test_a_batch_that_cannot_be_asked_for_is_closed_long_after_its_deadline(lane, sandbox):
    sandbox.turn(batches=LONG)
    credential = lane.credential()
    lane.submit(3)
    lane.tend()
    credential.delete()
    ProviderBatch.objects.update(live_at=timezone.now() - timedelta(days=2))
    batch = lane.tend_until_closed()
    assert (batch.state, batch.unanswered) == ("failed", 3)
    assert batch.error.startswith("nobody could ask for its end until long after its deadline: ")
    assert "openai-key" in batch.error, "the last fault says why"
    assert lane.states() == ["retried"] * 3


class Cut(CallLoop):
    """Results come, and each time the connection breaks before their end."""

    async def send(self, *where: str, on_line: Any = None, **given: Any) -> OutboundResponse:
        response = await super().send(*where, on_line=on_line, **given)
        if on_line is not None:
            raise ProviderError(None, "the connection broke", code="connection_broken", outcome="unknown")
        return response


class Failed(CallLoop):
    """Gemini gives up a batch whose lines it has done, and shows no results."""

    async def send(self, *where: str, on_piece: Any = None, **given: Any) -> OutboundResponse:
        body = bytearray()
        response = await super().send(*where, on_piece=body.extend if on_piece else None, **given)
        if on_piece is not None:
            stats = json.loads(body)["metadata"]["batchStats"]
            on_piece(json.dumps({"metadata": {"batchStats": stats, "state": "BATCH_STATE_FAILED"}}).encode())
        return response


def test_answers_that_came_count_though_their_end_does_not_come(lane, sandbox):
    sandbox.turn(batches=SOON)
    lane.credential()
    lane.submit(3)
    lane.tend()
    wait_for(lambda: sandbox.billing()["custom_ids_paid"] == 3, what="the end at the provider")
    lane.calls.close()
    lane.calls = Cut()
    lane.tend()
    batch = ProviderBatch.objects.get()
    assert (batch.state, batch.succeeded, batch.faults) == ("collecting", 3, 1)
    assert lane.states() == ["completed"] * 3
    lane.restart()
    assert lane.tend_until_closed().unanswered == 0


@pytest.mark.parametrize("provider", ["gemini", "openai"])
def test_a_batch_that_is_not_in_the_part_of_the_list_that_was_read_is_not_made_again(
    lane, sandbox, monkeypatch, provider
):
    module = import_module(f"jobs.handlers.llm.batches.{provider}")
    sandbox.turn(batches=LONG | {"lost_create_rate": 1})
    lane.credential(provider)
    lane.submit(3, provider=provider)
    lane.tend()
    sandbox.turn(batches={"lost_create_rate": 0})
    first = ProviderBatch.objects.get()
    ProviderBatch.objects.update(look_at=timezone.now() + timedelta(hours=1))
    lane.submit(1, provider=provider)  # newer, so the list begins with it
    lane.tend(now=False)
    for place in (module, batches_calls):
        monkeypatch.setattr(place, "MAX_PAGES_LISTED", 1, raising=False)
    monkeypatch.setattr(module, "PAGE_OF_BATCHES", 1)
    lane.tend()
    first.refresh_from_db()
    assert (first.state, first.creations) == ("creating", 1)
    assert "list goes on" in first.error
    monkeypatch.undo()
    lane.tend()
    first.refresh_from_db()
    assert (first.state, first.creations) == ("open", 1)


def test_lines_that_a_failed_batch_has_done_are_not_taken_for_free(lane, sandbox):
    sandbox.turn(batches=SOON)
    lane.credential("gemini")
    lane.submit(2, provider="gemini")
    lane.tend()
    wait_for(lambda: sandbox.billing()["custom_ids_paid"] == 2, what="the end at the provider")
    lane.calls.close()
    lane.calls = Failed()
    batch = lane.tend_until_closed()
    assert (batch.state, batch.unanswered) == ("failed", 2)
    assert Spend.objects.filter(kind="unknown").count() == 2


def test_a_line_is_as_long_as_its_letters():
    assert compact({"prompt": "Привет"}) == '{"prompt":"Привет"}'.encode()
