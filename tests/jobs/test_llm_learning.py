"""What calls really cost comes back from the executors and lowers the next estimates."""

from __future__ import annotations

import pytest

from jobs.models import Job
from jobs.services.submit.spec import JobSpec
from jobs.services.submit.submit import submit_batch, submit_job
from jobs.states import JobState
from jobs.testing import drain
from queueops.tenancy.models import Credential, Project
from queueops.tenancy.secrets.credentials import seal
from ratelimits.limiter import estimates
from ratelimits.models import CostEstimate
from ratelimits.tuning.limits import create_limit
from tests.support.documents import OUTPUT_TOKENS, PROJECT, Model, document

WORDS = "word " * 80  # 100 tokens
MAX_LEARNED_OUTPUT = 2_000


@pytest.mark.django_db
def test_the_output_of_the_next_call_is_taken_to_be_what_ten_needed(sandbox):
    model = Model("openai", 1, late_seconds=0.9)
    model.set_up(sandbox)
    lines = [model.line(WORDS, max_output_tokens=MAX_LEARNED_OUTPUT) for _ in range(12)]
    submit_batch(lines, project_id=PROJECT, actor="key:test")
    assert set(Job.objects.values_list("cost", "known_cost")) == {(100 + MAX_LEARNED_OUTPUT, 100)}
    drain()
    assert set(Job.objects.values_list("status", flat=True)) == {JobState.COMPLETED}
    submit_batch([model.line(WORDS * 45, split=True, split_tokens=1_000)], project_id=PROJECT, actor="key:test")
    drain(seconds=60)  # its parts are smaller than what was known of it, and teach nothing
    row = CostEstimate.objects.get()
    assert (row.id, set(row.samples), row.p90) == (
        f"{PROJECT}|llm|llm.generate|small-1",
        {OUTPUT_TOKENS},
        OUTPUT_TOKENS,
    )
    assert (set(row.outputs), row.output_p90) == ({OUTPUT_TOKENS}, OUTPUT_TOKENS)
    estimates.forget()
    spec = JobSpec.model_validate(model.line(WORDS, max_output_tokens=MAX_LEARNED_OUTPUT))
    taught = submit_job(spec, project_id=PROJECT, actor="key:test")
    job = Job.objects.get(pk=taught.id)
    told = {"input_tokens": 100, "output_tokens": OUTPUT_TOKENS, "max_output_tokens": MAX_LEARNED_OUTPUT}
    assert (job.cost, job.costs) == (100 + OUTPUT_TOKENS, told)


UNCACHED_QUOTA = 4_000  # a window
SYSTEM_TOKENS = 1_000


@pytest.mark.django_db
@pytest.mark.matrix
def test_an_instruction_that_a_cache_has_is_not_reserved_of_the_uncached_input(sandbox, figures):
    window = 2.0
    quota = {"window_seconds": window, "input_tokens_per_minute": UNCACHED_QUOTA, "requests_per_minute": None}
    sandbox.turn(anthropic={**quota, "output_tokens_per_minute": None, "output_tokens": 5, "cache_minimum_tokens": 100})
    project, _ = Project.objects.get_or_create(pk=PROJECT, defaults={"name": PROJECT})
    secret = seal({"api_key": f"project:{PROJECT}/user:robot"})
    key = Credential.objects.create(
        name="claude", service="anthropic", quota_project=PROJECT, secret=secret, base_url=sandbox.url
    )
    key.projects.add(project)
    limit = {"name": "claude-input", "service": "anthropic", "scope": "project", "per_model": True}
    create_limit(
        {
            **limit, "unit": "input_tokens", "counts_cached": False, "algorithm": "sliding_window",
            "capacity": UNCACHED_QUOTA, "window_seconds": window, "slack_seconds": 1.0,
        },
        actor="user:1",
    )  # fmt: skip
    payload = {
        "provider": "anthropic",
        "credential": "claude",
        "model": "small-1",
        "system": document(SYSTEM_TOKENS, seed=1),
        "cache_system": True,
        "prompt": WORDS,
        "max_output_tokens": 5,
    }
    lines = [{"kind": "llm.generate", "payload": payload}] * 21
    submit_batch(lines, project_id=PROJECT, actor="key:test")
    drain(seconds=120)
    estimates.forget()
    before = len(sandbox.calls())
    submit_batch(lines * 2, project_id=PROJECT, actor="key:test")
    drain(seconds=120)
    assert set(Job.objects.values_list("status", flat=True)) == {JobState.COMPLETED}
    calls = sandbox.calls()
    assert not [call["cause"] for call in calls if not call["accepted"]]
    learned = CostEstimate.objects.get()
    assert learned.cached_p10 == pytest.approx(SYSTEM_TOKENS / (SYSTEM_TOKENS + 100), abs=0.01)
    last = calls[before:]
    uncached = sum(call["prompt_tokens"] - call["cached_tokens"] for call in last)
    seconds = max(call["at"] for call in last) - min(call["at"] for call in last)
    figures(f"{len(last)} calls of {uncached / len(last):.0f} uncached tokens in {seconds:.1f} s, 0 refused")
    # Reserved whole, three calls would go in a window.
    assert seconds < len(last) * (SYSTEM_TOKENS + 100) / UNCACHED_QUOTA * window / 2
