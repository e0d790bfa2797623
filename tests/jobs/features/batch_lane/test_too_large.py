"""A batch that its provider refuses as too large is halved, down to one line."""

from datetime import timedelta

import pytest
from django.db.models import Sum
from django.utils import timezone

from jobs.features.batch_lane.steps.collect import collect_waiting
from jobs.features.batch_lane.steps.rounds import kinds_with_batches
from jobs.features.batch_lane.steps.split import TOO_LARGE, split
from jobs.models import Job, ProviderBatch, ProviderBatchLine
from ratelimits.limits import catalogue
from ratelimits.models import Charge, Limit
from tests.support.cases import every_case
from tests.support.processes import wait_for

pytestmark = pytest.mark.django_db(transaction=True)

PROVIDERS = ["openai", "gemini", "anthropic"]
SOON = {"processing": {"mode": "fixed", "seconds": 0.05}}


def tend_until_all_closed(lane) -> None:
    def are_closed() -> bool:
        lane.tend()
        return not ProviderBatch.objects.filter(state__in=ProviderBatch.UNFINISHED).exists()

    wait_for(are_closed, what="the end of all batches")


BOUNDS = [(provider, {"batch_bytes": 1_700}) for provider in PROVIDERS] + [("openai", {"batch_lines": 3})]


@pytest.mark.parametrize(("provider", "bounds"), BOUNDS)
def test_a_batch_that_is_too_large_goes_in_halves_that_fit_and_none_of_it_live(lane, sandbox, provider, bounds):
    sandbox.turn(batches=SOON, **{provider: bounds})
    lane.credential(provider)
    lane.submit(7, provider=provider, prompt="word " * 60)
    tend_until_all_closed(lane)
    assert lane.states() == ["completed"] * 7
    assert set(Job.objects.values_list("via", "retry_count")) == {("batch", 0)}
    batches = ProviderBatch.objects.all()
    assert {batch.state for batch in batches} == {"completed"}
    assert len(batches) > 2
    assert sum(batch.lines for batch in batches) == sum(batch.succeeded for batch in batches) == 7
    for batch in batches:
        numbers = list(batch.all_lines.values_list("number", flat=True))
        assert numbers == list(range(batch.lines))
        assert set(Job.objects.filter(pk__in=batch.all_lines.values("job_id")).values_list("executor", flat=True)) == {
            batch.pk
        }
    assert sandbox.billing()["custom_ids_paid"] == 7
    assert all(batch.files == {} and not batch.is_kept for batch in batches)
    assert sandbox.billing()["prompts_paid_again"] == 0


@pytest.mark.parametrize("provider", PROVIDERS)
def test_a_line_that_is_too_large_by_itself_goes_live_alone(lane, sandbox, provider):
    sandbox.turn(batches=SOON, **{provider: {"batch_bytes": 2_000}})
    lane.credential(provider)
    lane.submit(5, provider=provider)
    lane.submit(1, provider=provider, prompt="word " * 600)
    tend_until_all_closed(lane)
    live = Job.objects.get(status="retried")
    assert "word word" in live.payload["prompt"]
    assert not Job.objects.filter(status="retried", scheduled_at__gt=timezone.now()).exists()
    assert Job.objects.filter(status="completed", via="batch").count() == 5
    refused = ProviderBatch.objects.get(state="failed")
    assert refused.lines == 1


def test_the_halves_hold_the_enqueued_tokens_that_the_whole_has_held(lane, sandbox):
    sandbox.turn(batches={"processing": {"mode": "fixed", "seconds": 60}}, openai={"batch_bytes": 1_500})
    lane.credential()
    Limit.objects.create(
        name="enqueued", service="openai", unit="enqueued_tokens", algorithm="concurrency", capacity=700, scope="global"
    )
    catalogue.forget()
    lane.submit(6, prompt="word " * 60)
    lane.tend()
    whole = ProviderBatch.objects.aggregate(tokens=Sum("enqueued_tokens"))["tokens"]
    lane.tend()
    assert ProviderBatch.objects.count() > 1
    assert ProviderBatch.objects.aggregate(tokens=Sum("enqueued_tokens"))["tokens"] == whole
    held = {charge.holder.removeprefix("provider_batch:") for charge in Charge.objects.all()}
    assert held == {str(batch.pk) for batch in ProviderBatch.objects.all()}
    assert ProviderBatchLine.objects.filter(state="waiting").count() == 6


@pytest.mark.parametrize(("provider", "count"), [("openai", 8), ("gemini", 5)])  # Gemini's says it by a 429
def test_a_batch_that_alone_is_more_than_may_be_enqueued_is_halved_until_there_is_room(lane, sandbox, provider, count):
    sandbox.turn(batches=SOON, **{provider: {"enqueued_tokens": 200}})
    lane.credential(provider)
    lane.submit(count, provider=provider, prompt="word " * 60)

    def are_completed() -> bool:
        lane.tend()
        ProviderBatch.objects.filter(closed_at__isnull=False).update(closed_at=timezone.now() - timedelta(hours=1))
        return bool(lane.states() == ["completed"] * count)

    wait_for(are_completed, what="the end of all jobs by batch")
    assert set(Job.objects.values_list("via", "retry_count")) == {("batch", 0)}
    assert sandbox.billing()["prompts_paid_again"] == 0


def test_what_waits_for_the_end_of_another_batch_is_not_halved(lane, sandbox):
    sandbox.turn(batches={"processing": {"mode": "fixed", "seconds": 60}}, openai={"enqueued_tokens": 250})
    lane.credential()
    lane.submit(2, prompt="word " * 60)
    lane.tend()
    wait_for(lambda: sandbox.batches()[0]["phase"] == "in_progress", what="the first batch")
    lane.submit(4, prompt="word " * 60)
    wait_for(
        lambda: lane.tend() or ProviderBatch.objects.filter(state="failed").exists(), what="the refusal of the second"
    )
    refused = ProviderBatch.objects.get(state="failed")
    assert (refused.found_no_room, refused.lines, refused.handed_back) == (True, 4, 4)
    assert sum(call["status"] == 200 for call in sandbox.calls(method="POST", path="/v1/batches")) == 2


def test_a_refusal_that_comes_late_takes_no_line_out_of_a_batch_that_was_made_meanwhile(lane, sandbox):
    sandbox.turn(batches={"processing": {"mode": "fixed", "seconds": 60}})
    lane.credential()
    lane.submit(4)
    [made] = collect_waiting(kinds_with_batches())
    stale = ProviderBatch.objects.get(pk=made)
    lane.tend()
    assert split(stale, "answered 413", creations=0)
    batch = ProviderBatch.objects.get()
    assert (batch.state, bool(batch.provider_id), batch.all_lines.count()) == ("open", True, 4)


@every_case(
    ("words", "is_of_the_size"),
    [
        ('answered 400: {"error": {"message": "File is too large.", "type": "invalid_request_error"}}', True),
        ("answered 400: Request payload size exceeds the limit: 20971520 bytes.", True),
        ("answered 413: Request exceeds the maximum size", True),
        ("answered 400: The batch input file is larger than the 200 MB that are allowed", True),
        ("answered 400: The request body exceeded 20 MB", True),
        ("answered 403: Your request would exceed your account's spend limit", False),
        ("answered 400: Your batch has reached the limit of enqueued tokens", False),
        ("answered 400: Invalid file format for Batch API. Must be .jsonl", False),
        ("answered 404: The model large-1 was not found for batch requests", False),
    ],
)
def test_words_of_the_size_are_told_from_other_refusals(words, is_of_the_size):
    assert (TOO_LARGE.search(words) is not None) is is_of_the_size
