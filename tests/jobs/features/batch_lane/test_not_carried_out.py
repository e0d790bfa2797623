"""What fails by the provider's own fault goes again without an attempt, and not for ever."""

from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone

from jobs.features.batch_lane.steps import advance
from jobs.features.batch_lane.steps.again import MAX_FREE_LINES
from jobs.models import Job, JobEvent, ProviderBatch, ProviderBatchLine
from tests.jobs.features.batch_lane.conftest import DEADLINE
from tests.support.batch_provider import ProviderWire, Telling
from tests.support.provider_batches import make_round

pytestmark = pytest.mark.django_db(transaction=True)

SOON = {"processing": {"mode": "fixed", "seconds": 0.05}}
FAULTS = [("openai", 500), ("openai", 429), ("gemini", 500), ("gemini", 503), ("anthropic", 500), ("anthropic", 529)]


@pytest.mark.parametrize(("provider", "status"), FAULTS)
def test_a_line_that_the_provider_could_not_carry_out_goes_by_the_next_batch_at_no_attempt(
    lane, sandbox, provider, status
):
    sandbox.turn(batches=SOON | {"line_error_rates": {status: 1}})
    lane.credential(provider)
    lane.submit(6, provider=provider)
    batch = lane.tend_until_closed()
    assert (batch.state, batch.handed_back, batch.failed, batch.dropped) == ("completed", 6, 0, 0)
    assert set(Job.objects.values_list("status", "retry_count")) == {("retried", 0)}
    assert not Job.objects.filter(scheduled_at__lte=timezone.now() + DEADLINE / 2).exists(), "none goes live"
    told = JobEvent.objects.filter(to_status="retried").values_list("message", flat=True)
    assert {" answered " in one and "by the next batch, and no attempt" in one for one in told} == {True}
    sandbox.turn(batches={"line_error_rates": {}})
    following = lane.tend_until_closed()
    assert (following.pk != batch.pk, following.succeeded) == (True, 6)
    assert set(Job.objects.values_list("status", "retry_count")) == {("completed", 0)}
    assert (sandbox.billing()["prompts_paid_again"], sandbox.billing()["custom_ids_paid_again"]) == (0, 0)


def test_it_goes_live_where_there_is_no_time_for_another_batch(lane, sandbox):
    sandbox.turn(batches=SOON | {"line_error_rates": {500: 1}})
    lane.credential()
    lane.submit(2, complete_by=(timezone.now() + DEADLINE / 5).isoformat())
    lane.tend_until_closed()
    assert set(Job.objects.values_list("status", "retry_count")) == {("retried", 0)}
    assert not Job.objects.filter(scheduled_at__gt=timezone.now()).exists()


def test_one_that_goes_round_too_often_spends_attempts_and_goes_live_by_its_retry_rules(lane, sandbox):
    sandbox.turn(batches=SOON | {"line_error_rates": {500: 1}})
    lane.credential()
    lane.submit(2)
    for _ in range(MAX_FREE_LINES):
        lane.tend_until_closed()
        assert set(Job.objects.values_list("retry_count", flat=True)) == {0}
    batch = lane.tend_until_closed()
    assert (batch.handed_back, batch.failed) == (0, 2)
    assert set(Job.objects.values_list("status", "retry_count", "last_error_code")) == {("retried", 1, "server_error")}
    assert not Job.objects.filter(scheduled_at__gt=timezone.now() + DEADLINE / 10).exists()


def test_an_answer_that_comes_twice_gives_its_job_back_once(lane, sandbox, monkeypatch):
    monkeypatch.setattr(advance, "LINES_OF_A_SLICE", 1)  # the second is written after the first
    sandbox.turn(batches=SOON | {"line_error_rates": {500: 1}, "repeated_line_rate": 1})
    lane.credential()
    lane.submit(3)
    batch = lane.tend_until_closed()
    assert (batch.handed_back, batch.dropped) == (3, 0)
    assert JobEvent.objects.filter(to_status="retried").count() == 3
    assert set(ProviderBatchLine.objects.values_list("state", flat=True)) == {"unavailable"}


def test_a_job_that_names_another_way_takes_it(lane, sandbox):
    sandbox.turn(batches=SOON | {"line_error_rates": {503: 1}})
    lane.credential()
    lane.credential("gemini")
    fallback = [{"when": ["unavailable"], "provider": "gemini", "credential": "gemini-key", "model": "small-1"}]
    lane.submit(1, payload_fields={"fallback": fallback})
    lane.tend_until_closed()
    assert list(Job.objects.values_list("service", "fallback_step", "retry_count")) == [("gemini", 1, 0)]


FORMS: dict[str, dict[str, Any]] = {
    "nothing": {"response": None, "error": None},
    "an error": {"response": None, "error": {"message": "no"}},
    "another form": {"response": {"answer": "yes"}},
    "expired, in a completed batch": {"response": None, "error": {"code": "batch_expired"}},
}


@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
def test_no_form_of_a_line_goes_round_until_the_deadline(lane, form):
    lane.credential()
    lane.submit(1)
    wire = ProviderWire(Telling(output=[(0, form)]))
    for _ in range(3 * MAX_FREE_LINES):
        unfinished = ProviderBatch.objects.filter(closed_at=None)
        unfinished.update(look_at=timezone.now())
        unfinished.filter(missing__gt=0).update(missing_since=timezone.now() - timedelta(hours=1), missing=5)
        make_round(wire)
    wire.close()
    assert not ProviderBatch.objects.filter(closed_at=None)
    assert ProviderBatch.objects.count() <= MAX_FREE_LINES + 1
    job = Job.objects.get()
    assert job.scheduled_at is not None
    assert job.scheduled_at < timezone.now() + DEADLINE / 10, "it goes live"
    assert not JobEvent.objects.filter(to_status="retried", message="").exists(), "and each time it says why"


def test_a_provider_that_ends_its_batches_before_their_turn_is_asked_so_often_and_no_more(lane, sandbox):
    sandbox.turn(batches=SOON | {"expires_at_share": 0})
    lane.credential()
    lane.submit(2)
    for _ in range(MAX_FREE_LINES):
        assert lane.tend_until_closed().state == "expired"
        assert not Job.objects.filter(scheduled_at__lte=timezone.now() + DEADLINE / 2).exists()
    assert lane.tend_until_closed().handed_back == 2
    assert not Job.objects.filter(scheduled_at__gt=timezone.now()).exists(), "they go live"
