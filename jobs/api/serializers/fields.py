"""Fields that several answers share."""

from __future__ import annotations

from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers

CURSOR_HELP = (
    "Everything up to here is in this answer: `resume` a socket from it to get what came after. 0 while none is known."
)
EPOCH_HELP = "Of the cursor: a restored database begins a new one. Send it with the cursor."
MOMENT = serializers.DateTimeField()


@extend_schema_field({})
class AnyJSON(serializers.JSONField):
    """
    Any JSON, null included. Do not set `allow_null`: the field would be described as one of two types that null fits.
    """
