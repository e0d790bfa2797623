"""Large documents through a small limit: real executors, judged from the provider's side."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from jobs.models import DeadLetter, Job
from jobs.services.submit.submit import submit_batch
from jobs.states import TERMINAL, JobState
from ratelimits.limits import catalogue
from ratelimits.models import Limit
from sandbox.llm import count_tokens
from tests.faults.clusters import cluster
from tests.faults.ledger import Ledger
from tests.support.documents import (
    MAX_TOKENS_OF_A_CALL,
    MIN_TOKENS,
    OUTPUT_TOKENS,
    PROJECT,
    TOKENS_PER_MINUTE,
    Model,
    document,
    documents,
)
from tests.support.processes import wait_for
from tests.support.sandbox import Sandbox

# A call of more than half the limit reserves nothing for its output; the headroom is for that.
OPENAI = pytest.param(Model("openai", 1, late_seconds=0.9, headroom_percent=1), id="openai-second")
GEMINI = pytest.param(Model("gemini", 1, late_seconds=0.9), id="gemini-second")
MINUTE = [
    pytest.param(Model("openai", 60, late_seconds=0.5, headroom_percent=1), id="openai-minute", marks=pytest.mark.soak),
    pytest.param(Model("gemini", 60, late_seconds=0.5), id="gemini-minute", marks=pytest.mark.soak),
]
TOO_LARGE = (35_000, 50_000)


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    return Ledger(tmp_path)


def submit(lines: list[dict[str, Any]]) -> None:
    submit_batch(lines, project_id=PROJECT, actor="key:documents")


def wait_until_ended(model: Model, tokens: int) -> float:
    """Wait for every job, at most four times as long as the limit needs for so many tokens; the seconds it took."""
    begun = time.monotonic()
    least = tokens / TOKENS_PER_MINUTE * (model.window_seconds + model.late_seconds)
    unfinished = Job.objects.exclude(status__in=TERMINAL)
    wait_or_tell(lambda: not unfinished.exists(), seconds=60 + 4 * least, what="the end of every document")
    return time.monotonic() - begun


def wait_or_tell(condition: Callable[[], bool], *, seconds: float, what: str) -> None:
    try:
        wait_for(condition, seconds=seconds, what=what)
    except AssertionError as error:
        jobs = Job.objects.values_list("status", "scheduled_at", "deferral_count", "last_error_message")
        raise AssertionError(f"{error}: {list(jobs)}") from None


def require_none_above_the_quota(sandbox: Sandbox, model: Model, *, calls: int) -> None:
    assert [call for call in sandbox.calls() if not call["accepted"]] == []
    for quota in sandbox.usage(model.provider):
        assert (quota["accepted_calls"], quota["rejected_calls"]) == (calls, 0)
        assert quota["peak"] <= quota["limit"]


def test_the_documents_are_real_text_of_the_sizes_they_claim():
    texts = documents(20)
    sizes = sorted(count_tokens(text) for text in texts)
    assert (sizes[0], sizes[-1], len(set(texts))) == (MIN_TOKENS, MAX_TOKENS_OF_A_CALL, 20)
    assert len({word for text in texts for word in text.split()}) > 5_000
    assert count_tokens(document(35_000, seed=1)) == 35_000
    assert document(5_000, seed=3) == document(5_000, seed=3)


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("model", [OPENAI, *MINUTE])
def test_twenty_documents_pass_a_limit_that_each_nearly_fills(model: Model, ledger: Ledger, sandbox: Sandbox, figures):
    texts = documents(20)
    tokens = sum(count_tokens(text) for text in texts)
    model.set_up(sandbox)
    with cluster(ledger):
        submit([model.line(text) for text in texts])
        took = wait_until_ended(model, tokens)
    figures(
        f"{tokens:,} tokens in {took:.0f} s at {TOKENS_PER_MINUTE:,} per {model.window_seconds:g} s, "
        f"{Job.objects.filter(deferral_count__gt=0).count()} of 20 deferred"
    )
    assert set(Job.objects.values_list("status", "retry_count")) == {(JobState.COMPLETED, 0)}
    assert not DeadLetter.objects.exists()
    require_none_above_the_quota(sandbox, model, calls=20)
    usages = Job.objects.values_list("result__usage", flat=True)
    assert sum(usage["input_tokens"] for usage in usages if usage) == tokens
    assert {usage["output_tokens"] for usage in usages if usage} == {OUTPUT_TOKENS}


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("model", [GEMINI])
def test_documents_larger_than_the_whole_limit_fail_at_once_and_pass_in_parts(
    model: Model, ledger: Ledger, sandbox: Sandbox, figures
):
    texts = [document(tokens, seed=tokens) for tokens in TOO_LARGE]
    model.set_up(sandbox)
    with cluster(ledger):
        submit([model.line(text) for text in texts])
        wait_until_ended(model, 0)
        letters = {letter.job_id: letter for letter in DeadLetter.objects.all()}
        refused = list(Job.objects.all())
        assert [(job.status, job.retry_count, job.started_at) for job in refused] == [(JobState.FAILED, 0, None)] * 2
        assert sandbox.calls() == []
        for job in refused:
            assert letters[job.id].error_code == "limit_rejected"
            assert f"{model.service}-tokens" in letters[job.id].error_message
        submit([model.line(text, split=True, stream=True) for text in texts])
        took = wait_until_ended(model, sum(TOO_LARGE))
    parts = list(Job.objects.filter(status=JobState.COMPLETED, retry_count=0).values_list("result__parts", flat=True))
    calls = sum(len(part) for part in parts if part)
    figures(f"{sum(TOO_LARGE):,} tokens of 2 documents in {calls} calls in {took:.0f} s")
    assert len(parts) == 2
    assert calls == len(sandbox.calls())
    assert calls >= sum(TOO_LARGE) / 8_000
    assert sum(part["usage"]["input_tokens"] for document_parts in parts for part in document_parts) >= sum(TOO_LARGE)
    require_none_above_the_quota(sandbox, model, calls=calls)


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("model", [OPENAI])
def test_without_a_limit_the_same_documents_are_refused(model: Model, ledger: Ledger, sandbox: Sandbox, figures):
    model.set_up(sandbox)
    Limit.objects.all().delete()
    catalogue.forget()
    with cluster(ledger):
        submit([model.line(text) for text in documents(20)])
        wait_or_tell(lambda: sandbox.counters()["received"] >= 20, seconds=60, what="every document's call")
    refused = [call for call in sandbox.calls() if call["cause"] == "provider_quota"]
    figures(f"{len(refused)} of the first {len(sandbox.calls())} calls were above the quota")
    assert len(refused) > 5
