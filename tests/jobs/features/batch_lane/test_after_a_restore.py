"""The database is put back to an earlier moment, and the provider is not: nothing is paid for a second time."""

from __future__ import annotations

import json
import re
from datetime import timedelta
from io import StringIO
from pathlib import Path
from uuid import UUID, uuid4

import pytest
from django.core.management import call_command
from django.utils import timezone

from jobs.executor.outcome_log import OutcomeLog
from jobs.features.batch_lane.steps.collect import collect_waiting
from jobs.features.batch_lane.steps.rounds import kinds_with_batches
from jobs.features.batch_lane.watch import watch_provider_batches
from jobs.handlers.batch_form import batch_of, custom_id_of, job_of, line_of
from jobs.models import BatchSearch, Job, JobEvent, ProviderBatch, ProviderBatchLine, new_id
from jobs.services.operate.epochs import declare_restored
from jobs.services.operate.pauses import resume_scope
from queueops.audit.models import AuditEntry
from ratelimits.models import QuotaAlert
from tests.jobs.features.batch_lane.conftest import Lane
from tests.support.earlier import Clock
from tests.support.processes import wait_for

pytestmark = pytest.mark.django_db(transaction=True)

LONG = {"processing": {"mode": "fixed", "seconds": 60}}
SOON = {"processing": {"mode": "fixed", "seconds": 0.05}}
PROVIDERS = ["openai", "gemini", "anthropic"]


def put_back(clock: Clock, lane: Lane) -> None:
    """Restore, as `manage.py restored` ends it; the processes of before are gone."""
    lane.restart()
    clock.put_back()
    declare_restored(actor="system:test")


def resume() -> None:
    resume_scope("global", "", actor="user:1")


def until_open(lane: Lane) -> None:
    def is_open() -> bool:
        lane.tend()
        return ProviderBatch.objects.filter(state="open").exists()

    wait_for(is_open, what="the batch at the provider")


def until_all_are_completed(lane: Lane) -> None:
    def are_completed() -> bool:
        lane.tend()
        return set(lane.states()) == {"completed"}

    wait_for(are_completed, what="the end of all jobs")


def reconciled(log: Path) -> str:
    out = StringIO()
    call_command("reconcile", str(log), apply=True, yes=True, stdout=out)
    return out.getvalue()


@pytest.fixture
def logged(lane: Lane, tmp_path: Path) -> Path:
    lane.log = OutcomeLog(tmp_path / "outcomes", uuid4(), most_bytes=10**9, days=7.0)
    (tmp_path / "outcomes").mkdir()
    return tmp_path / "outcomes"


@pytest.mark.parametrize("provider", PROVIDERS)
def test_a_batch_that_was_made_after_the_restored_moment_goes_on_and_is_not_made_again(lane, sandbox, clock, provider):
    sandbox.turn(batches=LONG)
    lane.credential(provider)
    lane.submit(6, provider=provider)
    clock.keep_moment()
    until_open(lane)
    made = ProviderBatch.objects.get()
    put_back(clock, lane)
    assert lane.states() == ["queued"] * 6
    resume()
    sandbox.move_clock(seconds=60)
    until_all_are_completed(lane)
    lane.tend_until_closed()
    found = ProviderBatch.objects.get()
    assert (found.pk, found.provider_id, found.succeeded) == (made.pk, made.provider_id, 6)
    assert (found.model, found.credential, found.lines) == (made.model, made.credential, made.lines)
    search = BatchSearch.objects.get()
    assert (search.adopted, search.left_alone, search.closed_at is None) == (1, 0, False)
    assert (sandbox.billing()["batches"]["made"], sandbox.billing()["prompts_paid_again"]) == (1, 0)
    entry = AuditEntry.objects.get(action="take_in_provider_batch")
    assert (entry.moved, entry.after) == (6, {"provider_id": made.provider_id, "jobs": 6, "jobs_not_here": 0})
    told = JobEvent.objects.filter(message=f"found in {made.provider_id} after a restore", to_status="in_progress")
    assert told.count() == 6
    assert found.files == {}, "its files are deleted"


def test_under_the_pause_its_jobs_are_in_progress_where_the_provider_tells_whose_lines_it_has(lane, sandbox, clock):
    sandbox.turn(batches=LONG)
    lane.credential()
    lane.submit(4)
    clock.keep_moment()
    until_open(lane)
    put_back(clock, lane)
    lane.tend()
    assert lane.states() == ["in_progress"] * 4
    ProviderBatch.objects.update(live_at=timezone.now())
    lane.tend_until_closed()
    [remote] = sandbox.batches()
    assert remote["phase"] == "cancelled", "the deadline calls it back as any other"


@pytest.mark.parametrize("provider", ["gemini", "anthropic"])
def test_nothing_is_collected_while_a_batch_works_whose_lines_nobody_tells(lane, sandbox, clock, provider):
    sandbox.turn(batches=LONG)
    lane.credential(provider)
    lane.submit(4, provider=provider)
    clock.keep_moment()
    until_open(lane)
    put_back(clock, lane)
    resume()
    for _ in range(3):
        lane.tend()
    assert not ProviderBatch.objects.exists()
    search = BatchSearch.objects.get()
    assert search.closed_at is None
    assert "does not tell its lines yet" in search.error
    BatchSearch.objects.update(created_at=timezone.now() - timedelta(hours=1))
    watch_provider_batches()
    assert "does not tell its lines yet" in QuotaAlert.objects.get(resolved_at=None).message


def test_what_had_jobs_of_after_the_moment_too_keeps_their_results_at_the_provider(lane, sandbox, clock):
    sandbox.turn(batches=LONG)
    lane.credential()
    lane.submit(2)
    clock.keep_moment()
    lane.submit(3, prompt="later")
    until_open(lane)
    put_back(clock, lane)
    lane.tend()
    batch = ProviderBatch.objects.get()
    assert (batch.lines, batch.all_lines.count(), batch.unknown_lines) == (5, 2, 3)
    ProviderBatch.objects.update(live_at=timezone.now())  # ends it: what the provider has done by then is read
    lane.tend_until_closed()
    assert not sandbox.calls(method="DELETE")


def test_what_another_installation_made_is_left_alone(lane, sandbox, clock):
    sandbox.turn(batches=SOON)
    lane.credential()
    clock.keep_moment()
    lane.submit(2)
    until_open(lane)
    put_back(clock, lane)
    lane.submit(3, prompt="after the restore")
    BatchSearch.objects.create(
        kind="llm.generate", service="openai", credential="openai-key", made_before=timezone.now()
    )
    resume()
    until_all_are_completed(lane)
    search = BatchSearch.objects.get()
    assert (search.adopted, search.left_alone) == (0, 1)
    assert not [call for call in sandbox.calls(method="DELETE") if search.judged[0] in call["path"]]
    watch_provider_batches()
    alert = QuotaAlert.objects.get(kind=QuotaAlert.Kind.PROVIDER_BATCH, resolved_at=None)
    assert "has left 1 batch alone" in alert.message


def test_an_intent_of_before_the_moment_is_not_made_while_others_may_have_its_jobs(lane, sandbox, clock):
    """It was collected, and called back; the next batch has its jobs, and the restored row knows nothing of both."""
    sandbox.turn(batches=LONG)
    lane.credential()
    lane.submit(3)
    collect_waiting(kinds_with_batches())
    clock.keep_moment()
    ProviderBatch.objects.update(cancel_requested_at=timezone.now())
    lane.tend_until_closed()
    lane.let_wait_for_next()
    until_open(lane)
    put_back(clock, lane)
    resume()
    until_open(lane)
    assert sorted(ProviderBatch.objects.values_list("state", flat=True)) == ["cancelled", "open"]
    assert lane.states() == ["in_progress"] * 3
    assert sandbox.billing()["batches"]["made"] == 1


def test_lines_that_were_answered_after_the_moment_are_told_by_the_outcome_log(lane, sandbox, clock, logged):
    lane.credential()
    lane.submit(5)
    clock.keep_moment()
    lane.tend_until_closed()
    results = dict(Job.objects.values_list("pk", "result"))
    put_back(clock, lane)
    assert "5 completed" in reconciled(logged)
    assert dict(Job.objects.values_list("pk", "result")) == results
    resume()
    lane.tend()
    assert (sandbox.billing()["batches"]["made"], sandbox.billing()["prompts_paid_again"]) == (1, 0)


def test_a_batch_that_was_open_at_the_moment_and_read_since_is_reconciled_too(lane, sandbox, clock, logged):
    sandbox.turn(batches=LONG)
    lane.credential()
    lane.submit(5)
    until_open(lane)
    clock.keep_moment()
    sandbox.move_clock(seconds=60)
    lane.tend_until_closed()
    put_back(clock, lane)
    assert lane.states() == ["in_progress"] * 5
    assert "5 completed" in reconciled(logged)
    assert lane.states() == ["completed"] * 5
    resume()
    lane.tend_until_closed()
    assert (sandbox.billing()["batches"]["made"], sandbox.billing()["prompts_paid_again"]) == (1, 0)


def test_the_outcome_log_tells_of_lines_that_failed_as_of_calls(lane, sandbox, logged):
    sandbox.turn(batches=SOON | {"line_error_rates": {408: 1}})
    lane.credential()
    lane.submit(2)
    lane.tend_until_closed()
    told = [json.loads(line) for path in logged.glob("*.ndjson") for line in path.read_text().splitlines()]
    assert [line["event"] for line in told] == ["begun", "begun", "ended", "ended"]
    assert {line.get("outcome") for line in told} == {None, "retry"}
    tokens = set(ProviderBatchLine.objects.values_list("token", flat=True))
    assert {line["token"] for line in told} == tokens


def test_a_line_is_sent_under_a_name_that_tells_its_job_and_that_every_provider_takes():
    batch, job = new_id(), UUID(int=2**128 - 1)
    sent = custom_id_of(batch, 99_999, job)
    assert re.fullmatch(r"[a-zA-Z0-9-]{1,64}", sent)
    assert (batch_of(sent), line_of(sent, batch), job_of(sent)) == (batch, 99_999, job)
    assert (batch_of("request-1"), line_of(f"{job.hex}-1-1", batch), job_of("request-1")) == (None, None, None)
