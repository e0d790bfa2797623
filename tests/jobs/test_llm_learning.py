"""What calls really cost comes back from the executors and lowers the next estimates."""

from __future__ import annotations

import pytest

from jobs.models import Job
from jobs.services.submit.prepare import JobSpec
from jobs.services.submit.submit import submit_batch, submit_job
from jobs.states import JobState
from jobs.testing import drain
from ratelimits.models import CostEstimate
from ratelimits.services.limiter import estimates
from ratelimits.services.limits import catalogue
from tests.support.documents import OUTPUT_TOKENS, PROJECT, Model

WORDS = "word " * 80  # 100 tokens
LARGEST_OUTPUT = 2_000


@pytest.fixture(autouse=True)
def nothing_cached():
    catalogue.forget()
    estimates.forget()
    yield
    estimates.forget()


@pytest.mark.django_db(transaction=True)
def test_the_output_of_the_next_call_is_taken_to_be_what_ten_needed(sandbox):
    model = Model("openai", 1, late_seconds=0.9)
    model.set_up(sandbox)
    lines = [model.line(WORDS, max_output_tokens=LARGEST_OUTPUT) for _ in range(12)]
    submit_batch(lines, project_id=PROJECT, actor="key:test")
    assert set(Job.objects.values_list("cost", "known_cost")) == {(100 + LARGEST_OUTPUT, 100)}
    drain()
    assert set(Job.objects.values_list("status", flat=True)) == {JobState.COMPLETED}
    submit_batch([model.line(WORDS * 45, split=True, split_tokens=1_000)], project_id=PROJECT, actor="key:test")
    drain(seconds=60)  # its parts are smaller than what was known of it, and teach nothing
    row = CostEstimate.objects.get()
    assert (row.id, set(row.samples), row.p90) == ("llm.generate|small-1", {OUTPUT_TOKENS}, OUTPUT_TOKENS)
    assert (set(row.outputs), row.output_p90) == ({OUTPUT_TOKENS}, OUTPUT_TOKENS)
    estimates.forget()
    spec = JobSpec.model_validate(model.line(WORDS, max_output_tokens=LARGEST_OUTPUT))
    taught = submit_job(spec, project_id=PROJECT, actor="key:test")
    job = Job.objects.get(pk=taught.id)
    assert (job.cost, job.costs) == (100 + OUTPUT_TOKENS, {"input_tokens": 100, "output_tokens": OUTPUT_TOKENS})
