"""Batches at providers."""

from __future__ import annotations

from rest_framework import serializers

from jobs.models import ProviderBatch

PROVIDER_BATCH_FIELDS = (
    "id",
    "kind",
    "service",
    "model",
    "state",
    "provider_id",
    "provider_state",
    "lines",
    "done",
    "succeeded",
    "failed",
    "handed_back",
    "unanswered",
    "dropped",
    "enqueued_tokens",
    "complete_by",
    "live_at",
    "cancel_requested_at",
    "cancel_reason",
    "error",
    "created_at",
    "submitted_at",
    "ended_at",
    "closed_at",
)


class ProviderBatchSerializer(serializers.ModelSerializer[ProviderBatch]):
    class Meta:
        model = ProviderBatch
        fields = PROVIDER_BATCH_FIELDS
        read_only_fields = PROVIDER_BATCH_FIELDS
