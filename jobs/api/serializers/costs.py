"""The costs of jobs, and by which way they go."""

from __future__ import annotations

from typing import Any

from django.conf import settings
from rest_framework import serializers

from jobs.features.forecast.delivery import WayPrices, provider_batch_of, way_prices
from jobs.models import Job, ProviderBatch
from ratelimits.money.reports import SpendSum


class WayPricesSerializer(serializers.Serializer[WayPrices]):
    """The price of the work by each way, in millionths of the currency; null: a price is missing."""

    live = serializers.IntegerField(allow_null=True)
    batch = serializers.IntegerField(allow_null=True)
    is_used = serializers.BooleanField(
        help_text="By what its last call used, at the prices of then; else by what calls like it have had, at today's."
    )


class BatchOfJobSerializer(serializers.Serializer[ProviderBatch]):
    """The batch of its provider that a job was a line of last."""

    id = serializers.UUIDField()
    state = serializers.ChoiceField(choices=ProviderBatch.State.choices)
    provider_id = serializers.CharField(help_text="What its provider calls it; empty while it is not known there.")


def money_answer(spent: SpendSum | None) -> dict[str, Any]:
    """The cost of calls; null where a part of a sum is missing."""
    known = spent is not None and not spent.unpriced
    return {"cost_money": spent.money if spent and known else None, "currency": settings.QUEUEOPS.currency}


def ways_answer(job: Job) -> dict[str, Any]:
    """The price of a job by each way, and the batch of its provider."""
    prices, batch = way_prices(job), provider_batch_of(job)
    return {
        "prices": prices and WayPricesSerializer(prices).data,
        "provider_batch": batch and BatchOfJobSerializer(batch).data,
    }
