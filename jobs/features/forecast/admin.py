"""The forecast that is shown before somebody submits."""

from __future__ import annotations

from typing import Any

from jobs.features.forecast.submission import SubmissionForecast, SubmissionWay, forecast_submission
from jobs.features.uploads.uploads import lines_of
from jobs.models import Upload
from jobs.services.submit.documents.accept_document import LineError
from queueops.core.errors import QueueOpsError
from queueops.screens import formatting
from ratelimits.models import Budget
from ratelimits.money.amounts import shown

MAX_LIMITS_SHOWN = 5
MAX_AT_ONCE = 10_000  # lines; more lines take seconds, and are checked only when a person asks


def forecast_of_upload(upload: Upload, *, asked: bool) -> dict[str, Any]:
    """The forecast on an upload's page. The upload is read and checked again, as limits, prices and queues change."""
    if upload.lines > MAX_AT_ONCE and not asked:
        return {"forecast_waits": True}
    try:
        lines, first_line = lines_of(upload)
        told = forecast_submission(lines, project_id=upload.project_id, partial=True, first_line=first_line)
    except QueueOpsError as error:
        return {"forecast_fault": error.message}
    return {"forecast": _shown(told)}


def forecast_of_job(text: str, *, project_id: str) -> tuple[dict[str, Any], LineError | None]:
    """
    The forecast of one job, as JSON text, or what is wrong with it. Nothing is stored.

    Raises:
        QueueFull
    """
    told = forecast_submission([text], project_id=project_id, partial=True)
    return _shown(told), next(iter(told.rejected), None)


def _shown(told: SubmissionForecast) -> dict[str, Any]:
    currency = told.currency if told.tokens else None
    ways = [_way("Live", told.live, currency)]
    if told.batch.seconds is not None:
        ways.append(_way("By batch", told.batch, currency))
    return {
        "jobs": told.jobs,
        "ways": ways,
        "tokens": [f"{one.expected:,.0f} {unit.replace('_', ' ')}" for unit, one in told.tokens.items()],
        "guessed": told.learned is False,
        "missing": dict.fromkeys(f"{one.service} {one.model}".strip() for one in told.missing_prices),
        "budgets": [
            {"name": one.budget, "left": shown(one.left, told.currency), "rejects": one.policy == Budget.Policy.REJECT}
            for one in told.budgets
        ],
        "limits": [
            {
                "name": one.limit,
                "key": one.key,
                "share": formatting.bar(100 * one.share, f"{one.share:.0%} of the time"),
            }
            for one in told.binding[:MAX_LIMITS_SHOWN]
        ],
    }


def _price(way: SubmissionWay, currency: str) -> str:
    if way.price_range is None:
        return shown(way.price, currency)
    least, most = way.price_range
    return f"{shown(least, currency)} to {'nobody knows what' if most is None else shown(most, currency)}"


def _way(name: str, way: SubmissionWay, currency: str | None) -> dict[str, Any]:
    return {
        "name": name,
        "price": "not counted" if currency is None else _price(way, currency),
        "ends": None if way.finish_at is None else formatting.ago(way.finish_at),
        "why": way.why,
    }
