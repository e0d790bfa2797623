"""Fields that several answers share."""

from __future__ import annotations

from typing import Any

from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers

MOMENT = serializers.DateTimeField()


@extend_schema_field({})
class AnyJSON(serializers.JSONField):
    """
    Any JSON, null included. Do not set `allow_null`: the field would be described as one of two types that null fits.
    """


# A docstring would be read as the description of both answers in the OpenAPI document.
class DetailSerializer(serializers.Serializer[Any]):
    cost_money = serializers.IntegerField(
        allow_null=True,
        help_text="What its calls cost so far, in millionths of `currency`; null: not known, or a price is missing.",
    )
    currency = serializers.CharField(help_text="Three letters, such as USD.")
    cursor = serializers.IntegerField(
        help_text="Everything up to here is in this answer: `resume` a socket from it to get what came after. 0 while "
        "none is known."
    )
    epoch = serializers.CharField(
        help_text="Of the cursor: a restored database begins a new one. Send it with the cursor."
    )
