"""Caps of calls in flight."""

from __future__ import annotations

from typing import Any

from rest_framework import serializers


class AtOnceSerializer(serializers.Serializer[Any]):
    """A project's cap of calls in flight."""

    id = serializers.IntegerField(source="limit_id")
    name = serializers.CharField(help_text="Of the limit that it is.")
    kind = serializers.CharField(allow_blank=True, help_text="Empty: every kind.")
    service = serializers.CharField(allow_blank=True, help_text="Empty: every service.")
    each_user = serializers.BooleanField()
    at_most = serializers.FloatField()
    used = serializers.FloatField(help_text="In flight now; of caps for each user, of who has the most.")
    enforced = serializers.BooleanField(help_text="False: an operator has switched the limit off, or to shadow.")


class AtOnceCapsSerializer(serializers.Serializer[Any]):
    results = AtOnceSerializer(many=True)
