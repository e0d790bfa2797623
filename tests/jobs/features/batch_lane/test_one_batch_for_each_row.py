"""A row goes on with one batch of its provider: its own, of the lines that it has now."""

from __future__ import annotations

import pytest

from jobs.features.batch_lane.steps.adopt import adopt
from jobs.handlers.batch_form import Remote
from jobs.models import Job, ProviderBatch
from jobs.services.operate.job_actions import cancel_jobs
from tests.factories import make_provider_batch
from tests.support.provider_batches import refuse_for_now, tend_interrupted

pytestmark = pytest.mark.django_db(transaction=True)

LONG = {"processing": {"mode": "fixed", "seconds": 60}}


@pytest.mark.parametrize("provider", ["openai", "anthropic"])
def test_what_a_frozen_process_makes_beside_the_batch_of_another_is_cancelled_at_once(lane, sandbox, provider):
    sandbox.turn(batches=LONG)
    lane.credential(provider)
    lane.submit(3, provider=provider)
    tend_interrupted(lane.tend)
    first, second = sandbox.batches()
    row = ProviderBatch.objects.get()
    assert (row.state, row.creations, row.provider_id) == ("open", 2, first["id"])
    assert first["phase"] == "in_progress"
    assert second["phase"] in {"cancelling", "cancelled"}
    lane.tend()
    assert sandbox.batches()[0]["phase"] == "in_progress"


def test_a_file_whose_lines_nobody_wants_any_more_is_not_sent(lane, sandbox):
    sandbox.turn(batches=LONG)
    lane.credential()
    lane.submit(3)
    tend_interrupted(refuse_for_now)
    old = ProviderBatch.objects.get().files["input"]
    cancel_jobs([Job.objects.earliest("pk").pk], actor="user:1", reason="not wanted")
    lane.tend()
    batch = ProviderBatch.objects.get()
    [made] = sandbox.batches()
    assert (batch.state, made["lines"], batch.dropped) == ("open", 2, 1)
    assert batch.files["input"] != old
    [deleted] = [call for call in sandbox.calls(method="DELETE") if call["path"].endswith(old)]
    assert deleted["status"] == 200


def test_a_file_whose_lines_are_the_same_is_sent_again(lane, sandbox):
    lane.credential()
    lane.submit(3)
    tend_interrupted(refuse_for_now)
    old = ProviderBatch.objects.get().files["input"]
    lane.tend()
    assert ProviderBatch.objects.get().files["input"] == old


def test_a_gateways_long_id_of_a_batch_is_kept():
    """A gateway writes the model and its deployment into the id."""
    row = make_provider_batch(state=ProviderBatch.State.CREATING)
    assert adopt(row, Remote(id="batch_" + 994 * "x", state="validating"))
    assert len(ProviderBatch.objects.get().provider_id) == 1000
