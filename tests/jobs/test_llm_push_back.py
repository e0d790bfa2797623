"""A provider that allows less than the limit says: it is obeyed, and no attempt is spent."""

from __future__ import annotations

import pytest

from jobs.models import Job
from jobs.services.submit.submit import submit_batch
from jobs.states import JobState
from jobs.testing import drain
from tests.support.documents import PROJECT, TOKENS_PER_MINUTE, Model, document


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("provider", ["openai", pytest.param("gemini", marks=pytest.mark.soak)])
@pytest.mark.matrix
def test_documents_pass_a_provider_that_allows_half_of_what_the_limit_says(sandbox, provider, figures):
    model = Model(provider, 1, late_seconds=0.9)
    model.set_up(sandbox)
    sandbox.turn(**{provider: {"tokens_per_minute": TOKENS_PER_MINUTE // 2}})
    # What the first answer says of the quota comes when more has been sent than it allows.
    sandbox.turn(latency={"mode": "fixed", "milliseconds": 300})
    lines = [model.line(document(7_000, seed=number)) for number in range(8)]
    submit_batch(lines, project_id=PROJECT, actor="key:test")
    drain(seconds=120)
    refused = sandbox.calls(status=429)
    figures(f"{len(refused)} of {len(sandbox.calls())} calls were refused")
    assert refused
    assert set(Job.objects.values_list("status", "retry_count")) == {(JobState.COMPLETED, 0)}
