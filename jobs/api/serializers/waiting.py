"""The reasons why jobs wait, and when to ask again."""

from __future__ import annotations

import math
from typing import Any, get_args

from rest_framework import serializers

from jobs.features.forecast.reasons import HeldLane
from jobs.services.explain.waiting import Code, Reason, Waiting

from .fields import MOMENT


class ReasonSerializer(serializers.Serializer[Reason]):
    """One thing that keeps a job from running."""

    code = serializers.ChoiceField(choices=get_args(Code))
    text = serializers.CharField(help_text="For people; may change.")
    free_at = serializers.DateTimeField(
        allow_null=True, help_text="When it ends by itself. Null: nobody knows, or somebody must act."
    )
    limit = serializers.CharField(allow_null=True, help_text="The limit's name, for `limit` and `cooled_down`.")
    key = serializers.CharField(allow_null=True, help_text="Whom the limit counts: project:acme.")
    unit = serializers.CharField(allow_null=True, help_text="What it counts: requests, tokens or in_flight.")
    needed = serializers.FloatField(allow_null=True, help_text="In the limit's unit.")
    available = serializers.FloatField(allow_null=True, help_text="In the limit's unit.")
    capacity = serializers.FloatField(allow_null=True, help_text="In the limit's unit.")
    by = serializers.CharField(allow_null=True, help_text="Who gave it its time by hand: user:7.")


class WaitingSerializer(serializers.Serializer[Waiting]):
    """The reasons why a job waits, and when it should go."""

    reasons = ReasonSerializer(many=True, help_text="In the order in which they must end; none: it is next.")
    position = serializers.IntegerField(
        allow_null=True, help_text="Among the waiting calls it shares every limit with: 1 is next. Null: in no lane."
    )
    position_is_exact = serializers.BooleanField(
        allow_null=True, help_text="False: it stands further back; more than 10,000 are not counted."
    )
    ahead = serializers.DictField(
        child=serializers.IntegerField(),
        allow_null=True,
        help_text="How many of those go first, by the class that they have reached.",
    )
    predicted_start_at = serializers.DateTimeField(
        allow_null=True, help_text="A forecast from rates and queues as they are, never a promise. Null: none."
    )
    forecast = serializers.CharField(allow_null=True, help_text="What the forecast was computed from.")


class HeldLaneSerializer(serializers.Serializer[HeldLane]):
    """Waiting jobs of a batch that share their limits, and why they wait."""

    user = serializers.CharField(help_text="Whose they are; empty: nobody's, or they share no limit.")
    jobs = serializers.IntegerField(help_text="How many wait in it.")
    more = serializers.BooleanField(
        help_text="True: the batch has more than 100,000 waiting jobs, and there may be more here."
    )
    reasons = ReasonSerializer(many=True, help_text="Of the last of them, in the order in which they must end.")
    last_starts_at = serializers.DateTimeField(
        allow_null=True, help_text="When limits should let the last of them go. Null: nobody knows."
    )


class BatchWaitingSerializer(serializers.Serializer[Any]):
    results = HeldLaneSerializer(many=True)


def waiting_answer(waiting: Waiting) -> dict[str, Any]:
    position, forecast = waiting.position, waiting.forecast
    return {
        "reasons": [ReasonSerializer(reason).data for reason in waiting.reasons],
        "position": position and position.ahead + 1,
        "position_is_exact": position and position.is_exact,
        "ahead": position and {tier.value: count for tier, count in position.by_class.items()},
        "predicted_start_at": forecast and MOMENT.to_representation(forecast.starts_at),
        "forecast": forecast and forecast.basis,
    }


def retry_after(recheck_after_seconds: float | None) -> dict[str, str]:
    """Return the Retry-After header for a job or batch that has not ended; empty: it has ended."""
    return {} if recheck_after_seconds is None else {"Retry-After": str(math.ceil(recheck_after_seconds))}
