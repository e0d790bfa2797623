"""Jobs go by their providers' batches: each line is paid for once, and no fault of a provider loses a job."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from django.db import transaction
from django.test import Client
from django.utils import timezone

from jobs.features.batch_lane.steps import calls as batch_calls
from jobs.features.batch_lane.steps import settle
from jobs.features.budget_holds import spend
from jobs.features.results.garbage_collect import sweep_results
from jobs.features.results.read import whole_result
from jobs.features.results.reference import stored_in
from jobs.features.results.store import result_store
from jobs.features.results.totals import ResultFigures, add_figures
from jobs.features.results.writer import write_result
from jobs.handlers.llm.batches.gemini import GeminiBatches
from jobs.models import DeadLetter, Job, JobEvent, ProviderBatch, ProviderBatchLine, ResultStoreTotals
from jobs.services.finish import finish
from jobs.services.finish.claimed import ClaimedJob
from jobs.services.finish.outcomes import Outcome, Succeeded
from jobs.services.operate.job_actions import cancel_jobs
from jobs.testing import drain
from queueops.tenancy.models import ProducerKey, Scope
from tests.support.processes import wait_for
from tests.support.racing import run_together

pytestmark = pytest.mark.django_db(transaction=True)

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


def test_large_answers_go_to_the_result_store_and_are_counted_together(lane, settings, tmp_path, monkeypatch):
    written: list[int] = []

    def counted(figures: ResultFigures) -> None:
        written.append(figures.stored)
        add_figures(figures)

    monkeypatch.setattr(settle, "add_figures", counted)
    settings.QUEUEOPS = replace(settings.QUEUEOPS, result_store=str(tmp_path), result_store_over=10)
    lane.credential()
    lane.submit(6)
    lane.tend_until_closed()
    jobs = Job.objects.all()
    assert {job.status for job in jobs} == {"completed"}
    assert all(stored_in(job.result) and whole_result(job)["text"] for job in jobs)
    assert ResultStoreTotals.objects.get().stored == 6
    assert written == [6]


def test_no_line_is_locked_while_results_are_stored_and_what_became_of_its_job_meanwhile_counts(
    lane, settings, tmp_path, monkeypatch
):
    unwanted: list[ClaimedJob] = []

    def write_as_the_job_is_cancelled(job: ClaimedJob, text: str) -> str | None:
        def lock(_: int) -> int:
            with transaction.atomic():
                return len(ProviderBatchLine.objects.select_for_update(nowait=True))

        assert run_together(1, lock) == [3]
        written = write_result(job, text)
        if not unwanted:
            unwanted.append(job)
            cancel_jobs([job.id], actor="user:1", reason="not wanted")
        return written

    monkeypatch.setattr(settle, "write_result", write_as_the_job_is_cancelled)
    settings.QUEUEOPS = replace(settings.QUEUEOPS, result_store=str(tmp_path), result_store_over=10)
    lane.credential()
    lane.submit(3)
    batch = lane.tend_until_closed()
    assert (batch.succeeded, batch.dropped) == (2, 1)
    [cancelled] = Job.objects.filter(status="cancelled")
    assert ([cancelled.pk], cancelled.result) == ([unwanted[0].id], None)
    store = result_store()
    assert store is not None
    assert sweep_results(store, grace=timedelta()).removed == 1, "what was written for it"
    assert all(whole_result(job)["text"] for job in Job.objects.filter(status="completed"))


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


FAULTS: list[dict[str, Any]] = [
    {"lost_line_rate": 0.3},
    {"malformed_line_rate": 0.3},
    {"repeated_line_rate": 0.5},
    {"expires_at_share": 0.5},
    {"results_error_rate": 0.7, "status_error_rate": 0.5},
    {"results_cut_rate": 0.6},
    {"line_error_rates": {500: 0.1}},
]


@pytest.mark.parametrize(
    ("provider", "faults"),
    [
        (provider, faults)
        for provider in PROVIDERS
        for faults in FAULTS
        if (provider, *faults) != ("gemini", "malformed_line_rate")  # its results are one JSON value
    ],
    ids=lambda value: value if isinstance(value, str) else next(iter(value)),
)
def test_no_fault_of_the_provider_loses_a_job_or_pays_for_an_answer_twice(lane, sandbox, provider, faults):
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


def test_results_within_an_operation_may_be_more_than_is_kept_in_memory(lane, sandbox, monkeypatch):
    monkeypatch.setattr(batch_calls, "MAX_KEPT_BYTES", 20_000)
    sandbox.turn(batches=SOON, gemini={"output_tokens": 2_000})
    lane.credential("gemini")
    lane.submit(10, provider="gemini", payload_fields={"max_output_tokens": 2_000})
    batch = lane.tend_until_closed()
    assert (batch.state, batch.succeeded, batch.faults) == ("completed", 10, 0)
    assert sum(len(job.result["text"]) for job in Job.objects.all()) > 2 * batch_calls.MAX_KEPT_BYTES


def test_more_is_read_than_the_largest_batch_of_gemini_can_answer():
    tokens, bytes_of_a_token, times_told = 65_536, 6, 2
    assert GeminiBatches.most_lines * tokens * bytes_of_a_token * times_told < batch_calls.MAX_FETCHED_BYTES


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


def test_what_would_be_late_is_called_back_and_goes_live(lane, sandbox, admin_client):
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
    drain()
    assert set(Job.objects.values_list("status", "via")) == {("completed", "live")}
    told = JobEvent.objects.filter(job_id=Job.objects.latest("pk").pk).order_by("pk")
    ways = [event.data["via"] for event in told if event.data and "via" in event.data]
    assert ways == ["batch", "live", "live"], "collected, its time has come, claimed"
    messages = [event.message for event in told]
    assert "its batch was called back (it would be late: what it has not done goes live)" in messages
    assert "its time has come: it goes live" in messages
    _, secret = ProducerKey.issue(batch.project, name="k", scopes=[Scope.READ])
    client = Client(headers={"Authorization": f"Bearer {secret}"})
    counts = {way: len(client.get(f"/api/v1/jobs/?via={way}").json()["results"]) for way in ("live", "batch")}
    assert counts == {"live": 6, "batch": 0}
    page = admin_client.get(f"/admin/jobs/job/{Job.objects.latest('pk').pk}/change/").content.decode()
    assert "live, though it was to go by a batch of its provider" in page


def test_an_interrupted_duty_goes_on_in_another_process(lane):
    lane.credential()
    lane.submit(8)
    lane.tend()
    lane.restart()
    batch = lane.tend_until_closed()
    assert (batch.state, batch.succeeded) == ("completed", 8)


@pytest.mark.parametrize("hits", ["one", "all"])
def test_a_mistake_in_writing_fails_the_one_that_it_hits_and_keeps_all_for_later_if_it_hits_all(
    lane, sandbox, monkeypatch, hits
):
    sandbox.turn(batches=SOON)
    lane.credential()
    lane.submit(3)
    odd, told = Job.objects.earliest("pk").pk, spend.record_spend

    def record_spend(outcomes: Sequence[Outcome], **given: Any) -> None:
        if any(isinstance(one, Succeeded) and (hits == "all" or one.job.id == odd) for one in outcomes):
            raise KeyError("as a mistake in a handler's code does")
        told(outcomes, **given)

    monkeypatch.setattr(finish, "record_spend", record_spend)
    if hits == "one":
        lane.tend_until_closed()
        assert lane.states() == ["completed", "completed", "failed"]
        assert DeadLetter.objects.get().error_code == "result_not_stored"
        return
    lane.tend()
    wait_for(lambda: sandbox.billing()["custom_ids_paid"] == 3, what="the end at the provider")
    lane.tend()
    assert ProviderBatch.objects.get().state == "collecting"
    assert lane.states() == ["in_progress"] * 3
    monkeypatch.undo()
    assert lane.tend_until_closed().succeeded == 3
    assert sandbox.billing()["custom_ids_paid"] == 3
