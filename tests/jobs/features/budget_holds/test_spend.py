"""What jobs cost: every answer whose provider counts it is in the ledger once, whoever writes its outcome."""

from __future__ import annotations

from datetime import date
from uuid import uuid4

import pytest

from jobs.classify import Failure
from jobs.handlers.llm.dialect import Generation
from jobs.models import Job
from jobs.services.claim.claim import claim_jobs
from jobs.services.claim.fair_share import ClassTurns
from jobs.services.finish.claimed import ClaimedJob
from jobs.services.finish.finish import record_outcomes, retry_policies
from jobs.services.finish.outcomes import Failed, Succeeded
from jobs.services.submit.submit import submit_batch
from jobs.states import JobState
from jobs.testing import drain
from ratelimits.costs import Usage
from ratelimits.models import QuotaAlert, Spend
from ratelimits.money.reports import grouped, spent_between, spent_on_batch, total
from tests.factories import make_jobs
from tests.support.documents import OUTPUT_TOKENS, PROJECT, Model
from tests.support.money import set_prices

WORDS = "word " * 80  # 100 tokens


def usage_of(job: Job) -> dict[str, int]:
    found: dict[str, int] = (job.result or {})["usage"]
    return found


def begin(count: int) -> list[ClaimedJob]:
    make_jobs(count)
    return claim_jobs(uuid4(), wanted=count, lease_seconds=30, turns=ClassTurns())


@pytest.mark.django_db
@pytest.mark.parametrize("provider", ["openai", "gemini"])
def test_what_a_batch_cost_is_what_its_provider_counted(sandbox, provider):
    model = Model(provider, 1, late_seconds=0.9)
    model.set_up(sandbox)
    set_prices(model.service)
    lines = [model.line(WORDS, max_output_tokens=OUTPUT_TOKENS) for _ in range(5)]
    batch = submit_batch(lines, project_id=PROJECT, actor="key:test").id
    drain()
    assert set(Job.objects.values_list("status", flat=True)) == {JobState.COMPLETED}
    usages = [usage_of(job) for job in Job.objects.all()]
    expected = sum(usage["input_tokens"] * 2 + usage["output_tokens"] * 8 for usage in usages)
    spent = spent_on_batch(batch)
    assert spent is not None
    assert (spent.calls, spent.money, spent.unpriced) == (5, expected, 0)
    [of_model] = grouped(Spend.objects.all(), "model")
    assert (of_model.key, of_model.sum.output_tokens) == (f"{model.service}/small-1", 5 * OUTPUT_TOKENS)


@pytest.mark.django_db
def test_each_part_of_a_long_document_is_a_call_of_its_own(sandbox):
    model = Model("openai", 1, late_seconds=0.9)
    model.set_up(sandbox)
    set_prices(model.service)
    submit_batch(
        [model.line(WORDS * 30, split=True, split_tokens=1_000, max_output_tokens=OUTPUT_TOKENS)],
        project_id=PROJECT,
        actor="key:test",
    )
    drain(seconds=60)
    job = Job.objects.get()
    usage = usage_of(job)
    rows = Spend.objects.filter(job_id=job.pk)
    assert rows.count() == 3
    assert total(rows).money == usage["input_tokens"] * 2 + usage["output_tokens"] * 8


@pytest.mark.django_db
def test_an_outcome_that_is_told_twice_or_too_late_is_paid_for_once():
    set_prices("test")
    [job] = begin(1)
    job = job._replace(service="test", model="small-1")
    done = Succeeded(job, "test", None, 5.0, usage=Usage(100, 0, 10, 110))
    assert not record_outcomes([done], policies={}).lost
    assert record_outcomes([done], policies={}).lost == {job.id}
    assert list(Spend.objects.values_list("money", "token")) == [(100 * 2 + 10 * 8, job.token)]


@pytest.mark.django_db
@pytest.mark.parametrize("is_erased", [True, False])
def test_what_comes_late_for_an_erased_user_is_not_written_under_their_id(is_erased):
    set_prices("test")
    [job] = begin(1)
    late = job._replace(service="test", model="small-1", token=job.token - 1)
    if is_erased:
        Job.objects.filter(pk=job.id).update(user_id=uuid4())
    assert record_outcomes([Succeeded(late, "test", None, 5.0, usage=Usage(100, 0, 10, 110))], policies={}).lost
    assert Spend.objects.count() == (not is_erased)


def test_counts_that_no_call_can_have_are_none():
    assert Usage(100, 0, 10, 110).is_sound
    assert not Usage(100, 0, 10**19, None).is_sound
    assert not Usage(-1).is_sound
    answer = Generation()
    answer.count({"a": 7, "b": 10**19}, {"a": "input_tokens", "b": "output_tokens"})
    assert answer.usage == {"input_tokens": 7}


@pytest.mark.django_db
@pytest.mark.parametrize("day", [date.max, date.min])
def test_the_first_and_the_last_day_can_be_asked_for(day):
    assert total(spent_between(day, day)).calls == 0


@pytest.mark.django_db
def test_a_job_whose_handler_knows_of_no_usage_pays_nothing():
    [job] = begin(1)
    assert not record_outcomes([Succeeded(job, "test", None, 5.0)], policies={}).lost
    assert not Spend.objects.exists()


@pytest.mark.django_db
def test_what_may_be_billed_and_is_not_told_counts_at_its_most_as_unknown_also_without_a_budget(sandbox):
    model = Model("openai", 1, late_seconds=0.9)
    model.set_up(sandbox)
    set_prices(model.service)
    sandbox.turn(openai={"missing_usage_rate": 1})
    batch = submit_batch([model.line(WORDS, max_output_tokens=9)] * 3, project_id=PROJECT, actor="key:test").id
    answered, *cut = claim_jobs(uuid4(), wanted=2, lease_seconds=30, turns=ClassTurns())
    broken = Failure("stream_cut", "ProviderError", "the stream ended before the answer did")
    refused = Failure("http_400", "ProviderError", "answered 400", "answered", status=400)
    for job, failure in zip([answered, *cut], [broken, refused], strict=True):
        failed = Failed(job, model.service, "moderate", repeatable=True, failure=failure, duration_ms=1.0)
        record_outcomes([failed], policies=retry_policies())
    [row] = Spend.objects.all()
    most = row.money or 0
    assert (row.kind, most > 9 * 8) == ("unknown", True), "what was cut off may be billed, what was refused is not"
    drain()
    assert Job.objects.filter(status=JobState.COMPLETED).count() == 2
    assert list(Spend.objects.values_list("kind", "money")) == [("unknown", most)] * 3
    spent = spent_on_batch(batch)
    assert spent is not None
    assert (spent.unknown, spent.unknown_money, spent.unpriced) == (3, 3 * most, 0)
    assert not QuotaAlert.objects.filter(kind="missing_price").exists(), "it has a price: the usage is missing"
