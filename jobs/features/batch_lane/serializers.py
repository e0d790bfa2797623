"""Batches at providers."""

from __future__ import annotations

from rest_framework import serializers

from jobs.api.examples import AT, LATER
from jobs.models import ProviderBatch

PROVIDER_BATCH = {
    "id": "01938a44-1f2e-7d10-9a3b-7c5d20e1f604",
    "kind": "llm.generate",
    "service": "openai",
    "model": "small-1",
    "state": "open",
    "provider_id": "batch_67c41fa5a8a48190b3b6c8d8f5a0f3c1",
    "provider_state": "in_progress",
    "lines": 5000,
    "done": 1200,
    "succeeded": 0,
    "failed": 0,
    "handed_back": 0,
    "unanswered": 0,
    "dropped": 0,
    "enqueued_tokens": 2_400_000,
    "complete_by": "2026-03-03T09:15:04.120394Z",
    "live_at": "2026-03-03T08:45:04.120394Z",
    "cancel_requested_at": None,
    "cancel_reason": "",
    "error": "",
    "created_at": AT,
    "submitted_at": LATER,
    "ended_at": None,
    "closed_at": None,
}


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
