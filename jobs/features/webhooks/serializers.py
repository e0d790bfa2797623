"""Webhooks and their messages."""

from __future__ import annotations

from typing import Any

from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers

from jobs.models import Webhook, WebhookDelivery, WebhookJob
from jobs.states import JobState


class HeardJobsSerializer(serializers.Serializer[Webhook]):
    kinds = serializers.ListField(child=serializers.CharField())
    tags = serializers.ListField(child=serializers.CharField(), help_text="All of these.")
    any_tag = serializers.ListField(child=serializers.CharField(), help_text="One of these, or several.")
    outcomes = serializers.ListField(child=serializers.CharField())
    user_id = serializers.UUIDField(allow_null=True)
    batch_id = serializers.UUIDField(allow_null=True)


class WebhookSerializer(serializers.ModelSerializer[Webhook]):
    batches = serializers.BooleanField(source="hears_batches")
    jobs = serializers.SerializerMethodField(help_text="Which ended jobs it is told of. Null: of none.")
    paused_because = serializers.CharField(
        help_text="`silent`: it accepted nothing for three days. `gone`: it answered 410, and was switched off."
    )
    two_signatures_until = serializers.DateTimeField(
        source="former_secret_until",
        allow_null=True,
        help_text="Until then the secret before the last change signs, too. Null: it was never changed.",
    )

    class Meta:
        model = Webhook
        fields: tuple[str, ...] = (
            *("id", "url", "enabled", "batches", "jobs", "most_jobs", "created_at"),
            *("failing_since", "paused_at", "paused_because", "two_signatures_until"),
        )
        read_only_fields = fields

    @extend_schema_field(HeardJobsSerializer(allow_null=True))
    def get_jobs(self, row: Webhook) -> Any:
        return HeardJobsSerializer(row).data if row.hears_jobs else None


class WebhookWithSecretSerializer(WebhookSerializer):
    secret = serializers.CharField(
        allow_null=True, help_text="With which messages are signed, as Standard Webhooks want it. Shown now or never."
    )

    class Meta(WebhookSerializer.Meta):
        fields = (*WebhookSerializer.Meta.fields, "secret")
        read_only_fields = fields


class SentAgainSerializer(serializers.Serializer[Webhook]):
    sent = serializers.IntegerField(help_text="Messages that were sent again.")
    left = serializers.IntegerField(help_text="Messages that failed and wait to be sent again.")
    confirmed = serializers.BooleanField(help_text="False: nothing was sent.")


class WebhookDeliverySerializer(serializers.ModelSerializer[WebhookDelivery]):
    event = serializers.ChoiceField(choices=WebhookDelivery.Event.choices)
    batch_id = serializers.UUIDField(allow_null=True, help_text="That ended.")
    job_id = serializers.UUIDField(help_text="That carries the message out.")
    state = serializers.ChoiceField(source="job.status", choices=JobState.choices, help_text="Of that job.")
    error_code = serializers.CharField(source="job.last_error_code", help_text="Of its last failed attempt.")

    class Meta:
        model = WebhookDelivery
        fields = ("id", "event", "batch_id", "jobs_told", "job_id", "state", "error_code", "created_at")
        read_only_fields = fields


class WebhookJobSerializer(serializers.ModelSerializer[WebhookJob]):
    class Meta:
        model = WebhookJob
        fields = ("id", "job_id", "delivery_id", "created_at")
        read_only_fields = fields
