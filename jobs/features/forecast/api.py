"""The cost and end of a batch, foreseen before it is submitted."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any, ClassVar

from rest_framework.request import Request
from rest_framework.response import Response

from jobs.api import examples, inputs
from jobs.api.batch_body import read_batch
from jobs.api.views.base import SUBMIT, ApiView
from jobs.features.forecast.answers import FORECAST, ForecastAnswer
from jobs.features.forecast.submission import SubmissionForecast, SubmissionWay, forecast_submission
from queueops.rest.parsers import JSON, NDJSON, JSONDocument, JSONLines
from queueops.rest.schema import operation

MAX_LIMITS_TOLD = 10


class ForecastBatch(ApiView):
    needs: ClassVar = {"POST": SUBMIT}
    for_users = True
    query: ClassVar = {"POST": inputs.BatchInput.model_fields}
    parser_classes = (JSONDocument, JSONLines)

    @operation(
        "Forecast a batch before submitting it",
        tag="batches",
        operation_id="forecast",
        body={JSON: inputs.BatchDocument, NDJSON: {"type": "string"}},
        body_example=examples.BATCH,
        lines_example=examples.LINES,
        answer=ForecastAnswer,
        example=FORECAST,
        description=(
            "Takes the body of `POST /api/v1/batches/` and checks it alike, but stores nothing: says what it would "
            "cost, when it would end, which limits set its pace and which jobs would be refused. A forecast from "
            "limits, queues and prices as they are now, never a promise."
        ),
    )
    def post(self, request: Request) -> Response:
        body = read_batch(request)
        told = forecast_submission(
            body.lines,
            project_id=self.caller.project_id,
            only_user=self.caller.user_id,
            partial=body.options.partial,
            start_interval_seconds=body.options.start_interval_seconds,
            after=body.options.after,
            on_finish=body.options.on_finish,
        )
        return Response(_answer(told))


def _answer(told: SubmissionForecast) -> dict[str, Any]:
    return {
        "accepted": told.accepted,
        "jobs": {
            "count": told.jobs,
            "duplicates": told.duplicates,
            "by_batch": told.by_batch,
            "by_model": [
                {"kind": of.kind, "service": of.service, "model": of.model or None, "jobs": count}
                for of, count in told.by_model.items()
            ],
        },
        "tokens": {
            unit: {"known": round(one.known), "expected": round(one.expected), "reserved": round(one.reserved)}
            for unit, one in told.tokens.items()
        },
        "learned": told.learned,
        "currency": told.currency,
        "live": _way(told.live),
        "batch": _way(told.batch),
        "missing_prices": [one._asdict() for one in told.missing_prices],
        "budgets": [asdict(one) for one in told.budgets],
        "binding": [
            {
                "limit": one.limit,
                "key": one.key,
                "unit": one.unit,
                "needed": round(one.needed, 3),
                "ahead": round(one.ahead, 3),
                "seconds": one.seconds,
                "share": round(one.share, 3),
            }
            for one in told.binding[:MAX_LIMITS_TOLD]
        ],
        "rejected": {"count": told.rejected_count, "jobs": [one.as_dict() for one in told.rejected]},
    }


def _way(way: SubmissionWay) -> dict[str, Any]:
    return {
        "price": way.price,
        "price_range": way.price_range and way.price_range._asdict(),
        "finish_at": way.finish_at,
        "seconds": way.seconds,
        "why": way.why,
    }
