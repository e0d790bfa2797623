"""Lines that were asked for by a JSON Schema: their object, or a failure that is paid for all the same."""

from __future__ import annotations

import pytest

from jobs.models import Job
from ratelimits.models import Spend

pytestmark = pytest.mark.django_db(transaction=True)

PROVIDERS = ["openai", "gemini", "anthropic"]
SCHEMA = {
    "type": "object",
    "properties": {"total": {"type": "number"}},
    "required": ["total"],
    "additionalProperties": False,
}


@pytest.mark.parametrize("provider", PROVIDERS)
def test_a_line_that_fits_has_its_object(lane, provider):
    lane.credential(provider)
    lane.submit(2, provider=provider, payload_fields={"schema": SCHEMA})
    lane.tend_until_closed()
    assert lane.states() == ["completed"] * 2
    assert [job.result["data"] for job in Job.objects.all()] == [{"total": 7.5}] * 2


@pytest.mark.parametrize("provider", PROVIDERS)
def test_a_line_that_does_not_fit_is_asked_again_and_is_in_the_ledger(lane, sandbox, provider):
    sandbox.turn(**{provider: {"schema_mismatch": True}})
    lane.credential(provider)
    lane.submit(2, provider=provider, payload_fields={"schema": SCHEMA})
    lane.tend_until_closed()
    assert set(Job.objects.values_list("status", "retry_count", "last_error_code")) == {
        ("retried", 1, "schema_mismatch")
    }
    spent = Spend.objects.filter(kind=Spend.Kind.CALL, via="batch", output_tokens__gt=0)
    assert spent.values("job_id").distinct().count() == spent.count() == 2
    sandbox.turn(**{provider: {"schema_mismatch": False}})
    lane.let_wait_for_next()
    lane.tend_until_closed()
    assert lane.states() == ["completed"] * 2
    assert Spend.objects.filter(kind=Spend.Kind.CALL).count() == 4
