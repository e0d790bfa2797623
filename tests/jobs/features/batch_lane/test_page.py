"""What people and the service's figures are told of a batch."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from django.test import Client

from jobs.handlers.llm.requests.payload import LlmGenerate
from jobs.handlers.registry import find_handler
from jobs.models import Job, JobEvent, ProviderBatch
from queueops.tenancy.models import ProducerKey, Scope
from ratelimits.models import Price, Spend
from ratelimits.money import prices
from tests.jobs.features.batch_lane.conftest import Lane

SINCE = datetime(2026, 1, 1, tzinfo=UTC)


def page_of(client, batch: ProviderBatch) -> str:
    found: str = client.get(f"/admin/jobs/providerbatch/{batch.pk}/change/").content.decode()
    return found


@pytest.mark.django_db(transaction=True)
def test_the_page_offers_what_can_be_done(lane, sandbox, admin_client):
    sandbox.turn(batches={"processing": {"mode": "fixed", "seconds": 60}})
    lane.credential()
    lane.submit(3)
    lane.tend()
    batch = ProviderBatch.objects.get()
    live = f'datetime="{batch.live_at.isoformat()}"'
    assert "Cancel batch" in page_of(admin_client, batch)
    assert live in page_of(admin_client, batch)
    ProviderBatch.objects.update(state="completed")
    assert "Cancel batch" not in page_of(admin_client, batch)
    assert live not in page_of(admin_client, batch), "no rest goes live of what has ended"


@pytest.mark.django_db(transaction=True)
def test_the_cost_of_a_batch_is_that_of_its_lines(lane, admin_client):
    for unit in ("input_tokens", "output_tokens"):
        Price.objects.create(provider="openai", model="small-1", unit=unit, via="batch", amount=10**6, valid_from=SINCE)
    prices.forget()
    lane.credential()
    lane.submit(3)
    batch = lane.tend_until_closed()
    spent = sum(one.money or 0 for one in Spend.objects.all())
    assert spent
    assert f"{spent / 10**6:.6f}".rstrip("0") in page_of(admin_client, batch)
    assert "for 3 calls" in page_of(admin_client, batch)


@pytest.fixture
def own_prices(lane: Lane) -> None:
    """Live a million input tokens cost 2 of the currency and output 8; by batch half of it."""
    for unit, amount in (("input_tokens", 2 * 10**6), ("output_tokens", 8 * 10**6)):
        for via, share in (("live", 1), ("batch", 2)):
            given = {"provider": "openai", "model": "small-1", "unit": unit, "via": via}
            Price.objects.create(**given, amount=amount // share, valid_from=SINCE)
    prices.forget()


def asked(job: Job) -> dict[str, Any]:
    _, secret = ProducerKey.issue(job.project, name="k", scopes=list(Scope.values))
    found: dict[str, Any] = Client(headers={"Authorization": f"Bearer {secret}"}).get(f"/api/v1/jobs/{job.pk}/").json()
    return found


@pytest.mark.django_db(transaction=True)
def test_a_job_tells_what_both_ways_cost_and_its_batch(lane, sandbox, own_prices, admin_client):
    sandbox.turn(batches={"processing": {"mode": "fixed", "seconds": 0.05}})
    lane.credential()
    lane.submit(1)
    job = Job.objects.get()
    units = find_handler(job.kind).estimated_cost(LlmGenerate.model_validate(job.payload)).units
    told = asked(job)
    assert (told["via"], told["provider_batch"]) == ("batch", None)
    expected = 2 * units["input_tokens"] + 8 * units["output_tokens"]
    assert told["prices"] == {"live": expected, "batch": expected // 2, "is_used": False}
    batch = lane.tend_until_closed()
    told = asked(job)
    assert told["provider_batch"] == {"id": str(batch.pk), "state": "completed", "provider_id": batch.provider_id}
    spent = Spend.objects.get()
    assert told["prices"] == {"live": 2 * told["cost_money"], "batch": told["cost_money"], "is_used": True}
    assert told["cost_money"] == spent.money
    page = admin_client.get(f"/admin/jobs/job/{job.pk}/change/").content.decode()
    assert "Price of both ways" in page
    assert "by what its last call used" in page


def test_the_price_of_a_way_without_one_is_not_known(lane, own_prices, admin_client):
    Price.objects.filter(via="batch").delete()
    prices.forget()
    lane.credential()
    lane.submit(1, via="live")
    job = Job.objects.get()
    told = asked(job)
    assert told["provider_batch"] is None
    assert told["prices"]["live"] > 0
    assert told["prices"]["batch"] is None
    assert "no price by batch" in admin_client.get(f"/admin/jobs/job/{job.pk}/change/").content.decode()
    Price.objects.all().delete()
    prices.forget()
    page = admin_client.get(f"/admin/jobs/job/{job.pk}/change/").content.decode()
    assert "<dd>no price</dd>" in page, "what calls like it have used says nothing then"


def test_a_job_that_can_go_live_alone_has_no_two_prices(lane, own_prices):
    lane.credential(base_url="https://acme.openai.azure.com")
    lane.submit(1, via="live")
    assert asked(Job.objects.get())["prices"] is None


@pytest.mark.django_db(transaction=True)
def test_the_time_in_a_batch_is_none_of_the_services_pace(lane):
    lane.credential()
    lane.submit(3)
    lane.tend_until_closed()
    ends = JobEvent.objects.filter(to_status="completed").values_list("data", flat=True)
    assert [(data or {}).keys() & {"duration_ms", "waited_ms"} for data in ends] == [set()] * 3
