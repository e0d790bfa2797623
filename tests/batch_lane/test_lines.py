"""Jobs go by their providers' batches: each line is paid for once, and no fault of a provider loses a job."""

from datetime import timedelta

import pytest
from django.utils import timezone

from jobs.models import DeadLetter, Job, ProviderBatch
from jobs.services.operate.operate import cancel_jobs
from jobs.testing import drain
from tests.support.processes import wait_for

SOON = {"processing": {"mode": "fixed", "seconds": 0.05}}
PROVIDERS = ["openai", "gemini", "anthropic"]


@pytest.mark.parametrize("provider", PROVIDERS)
def test_jobs_go_by_one_batch_and_are_completed(lane, sandbox, provider):
    lane.credential(provider)
    lane.submit(25, provider=provider)
    assert set(Job.objects.values_list("status", "via")) == {("queued", "batch")}
    batch = lane.tend_until_closed()
    assert (batch.state, batch.succeeded, batch.lines) == ("completed", 25, 25)
    assert lane.states() == ["completed"] * 25
    assert all(Job.objects.values_list("result__text", flat=True))
    assert batch.files == {}, "its files are deleted"
    assert sandbox.billing()["custom_ids_paid"] == 25
    assert [row["via"] for row in sandbox.billing()["billed"]] == ["batch"]


@pytest.mark.parametrize("provider", PROVIDERS)
def test_a_batch_whose_creation_was_not_answered_is_found_and_not_made_again(lane, sandbox, provider):
    sandbox.turn(batches={"lost_create_rate": 1})
    lane.credential(provider)
    lane.submit(5, provider=provider)
    lane.tend()
    batch = ProviderBatch.objects.get()
    assert (batch.state, batch.creations, batch.provider_id) == ("creating", 1, "")
    batch = lane.tend_until_closed()
    assert (batch.state, batch.creations, batch.succeeded) == ("completed", 1, 5)
    assert sandbox.billing()["batches"]["made"] == 1


@pytest.mark.parametrize("provider", PROVIDERS)
@pytest.mark.parametrize(
    "faults",
    [
        {"lost_line_rate": 0.3},
        {"malformed_line_rate": 0.3},
        {"repeated_line_rate": 0.5},
        {"expires_at_share": 0.5},
        {"results_error_rate": 0.7, "status_error_rate": 0.5},
        {"results_cut_rate": 0.6},
        {"line_error_rates": {500: 0.1}},
    ],
    ids=lambda faults: next(iter(faults)),
)
def test_no_fault_of_the_provider_loses_a_job_or_pays_for_an_answer_twice(lane, sandbox, provider, faults):
    if provider == "gemini" and "malformed_line_rate" in faults:
        pytest.skip("its results are one JSON value: no line of it is malformed alone")
    sandbox.turn(batches=SOON | faults)
    lane.credential(provider)
    lane.submit(40, provider=provider)
    for _ in range(3):
        lane.tend_until_closed()
        lane.let_wait_for_next()
    sandbox.turn(batches=SOON | dict.fromkeys(faults, 0) | ({"expires_at_share": None, "line_error_rates": {}}))

    def are_completed() -> bool:
        lane.tend_until_closed()
        lane.let_wait_for_next()
        return bool(lane.states() == ["completed"] * 40)

    wait_for(are_completed, what="the end of all jobs")
    billing = sandbox.billing()
    assert (billing["prompts_paid_again"], billing["custom_ids_paid_again"]) == (0, 0)


def test_a_refused_file_sends_what_it_names_live_and_the_rest_by_the_next_batch(lane, sandbox):
    sandbox.turn(openai={"models": ["other-1"]})
    lane.credential()
    lane.submit(3)
    batch = lane.tend_until_closed()
    assert batch.state == "failed"
    assert "does not exist" in batch.error
    assert lane.states() == ["retried"] * 3, "none has spent an attempt"
    assert list(Job.objects.values_list("retry_count", flat=True)) == [0] * 3
    assert not Job.objects.filter(scheduled_at__gt=timezone.now()).exists(), "they go live"


def test_a_model_that_the_provider_does_not_know_ends_in_its_words_and_costs_nothing(lane, sandbox):
    sandbox.turn(openai={"models": ["other-1"]})
    lane.credential()
    lane.submit(2)
    lane.tend_until_closed()
    drain()
    assert lane.states() == ["failed"] * 2
    told = DeadLetter.objects.values_list("error_code", "http_status").distinct()
    assert list(told) == [("model_not_found", 404)]
    assert sandbox.billing()["billed"] == []


@pytest.mark.parametrize("provider", ["openai", "gemini"])  # Anthropic's say it line by line
def test_a_batch_that_its_provider_gives_up_whole_says_why_and_its_jobs_go_on(lane, sandbox, provider):
    sandbox.turn(batches=SOON | {"failed_rate": 1})
    lane.credential(provider)
    lane.submit(3, provider=provider)
    batch = lane.tend_until_closed()
    assert (batch.state, batch.succeeded) == ("failed", 0)
    assert batch.error
    assert set(Job.objects.values_list("status", "retry_count")) == {("retried", 0)}
    assert sandbox.billing()["billed"] == []
    sandbox.turn(batches={"failed_rate": 0})

    def are_completed() -> bool:
        lane.let_wait_for_next()
        lane.tend_until_closed()
        return bool(lane.states() == ["completed"] * 3)

    wait_for(are_completed, what="the jobs by the next batch")
    assert sandbox.billing()["custom_ids_paid_again"] == 0


def test_a_cancelled_job_is_dropped_and_a_batch_that_nobody_wants_is_cancelled(lane, sandbox):
    sandbox.turn(batches={"processing": {"mode": "fixed", "seconds": 60}})
    lane.credential()
    lane.submit(4)
    lane.tend()
    lane.tend()
    assert ProviderBatch.objects.get().state == "open"
    cancel_jobs(list(Job.objects.values_list("pk", flat=True)), actor="user:1", reason="not wanted")
    batch = lane.tend_until_closed()
    assert (batch.state, batch.dropped) == ("cancelled", 4)
    assert batch.cancel_reason == "nobody wants its jobs any more"
    assert lane.states() == ["cancelled"] * 4


def test_what_would_be_late_is_called_back_and_goes_live(lane, sandbox, settings):
    sandbox.turn(batches={"processing": {"mode": "fixed", "seconds": 60}})
    lane.credential()
    lane.submit(6)
    lane.tend()
    lane.tend()
    ProviderBatch.objects.update(live_at=timezone.now())
    Job.objects.update(complete_by=timezone.now() + timedelta(minutes=30))
    batch = lane.tend_until_closed()
    assert batch.state == "cancelled"
    assert batch.cancel_reason.startswith("it would be late")
    assert batch.succeeded + batch.handed_back == 6
    assert not Job.objects.filter(status="retried", scheduled_at__gt=timezone.now()).exists()


def test_an_interrupted_duty_goes_on_in_another_process(lane):
    lane.credential()
    lane.submit(8)
    lane.tend()
    lane.restart()
    batch = lane.tend_until_closed()
    assert (batch.state, batch.succeeded) == ("completed", 8)
