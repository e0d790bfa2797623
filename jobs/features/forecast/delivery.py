"""A job's two ways to its provider: what it costs by each, and the batch that it is or was in."""

from __future__ import annotations

from typing import NamedTuple

from django.utils import timezone
from pydantic_core import to_json

from jobs.handlers.registry import UnknownKind, find_handler
from jobs.models import Job, ProviderBatch, ProviderBatchLine
from queueops.tenancy.secrets.credentials import base_url_of
from ratelimits.costs import INPUT_TOKENS, OUTPUT_TOKENS, Usage
from ratelimits.limiter.estimates import Alike, Typical, typical_calls
from ratelimits.models import Spend, Via
from ratelimits.money.prices import price_of
from ratelimits.money.spend import usage_of

from .costs import expected_tokens


class WayPrices(NamedTuple):
    """
    The cost of a job's work by each way, in millionths of the currency; None: a price is missing.

    Attributes:
        is_used: Whether the cost is that of the job's last call, at the prices of its time. Otherwise it is estimated
            from calls like it, at today's prices.
    """

    live: int | None
    batch: int | None
    is_used: bool


def way_prices(job: Job) -> WayPrices | None:
    """Price a job's work by both ways; None: it can only go live, or its tokens are unknown."""
    try:
        handler = find_handler(job.kind)
        if handler.batch is None:
            return None
        payload = handler.schema.validate_json(to_json(job.payload))
    except (UnknownKind, ValueError):
        return None
    if not handler.batch.api_of(payload, base_url_of(job.credential)):
        return None
    model = job.model or ""
    call = (
        Spend.objects.filter(job_id=job.pk, kind=Spend.Kind.CALL, output_tokens__isnull=False).order_by("-id").first()
    )
    if call is not None:
        usage, at = usage_of(call), call.at
    else:
        cost = handler.estimated_cost(payload)
        units = cost.units
        if not units:
            return None
        alike = Alike(job.project_id, job.service, handler.kind, job.model)
        typical = typical_calls([alike]).get(alike, Typical())
        known, most = units.get(INPUT_TOKENS, 0), units.get(OUTPUT_TOKENS, 0)
        entered, answered = expected_tokens(known, most, typical, is_bound=cost.is_bound)
        usage, at = Usage(round(entered), None, round(answered)), timezone.now()
    live, batch = (price_of(job.service, model, usage, via=via, at=at) for via in (Via.LIVE, Via.BATCH))
    return WayPrices(live, batch, is_used=call is not None)


def provider_batch_of(job: Job) -> ProviderBatch | None:
    """The provider batch that last had a line of the job; None: no batch had one."""
    if job.via is None:
        return None
    lines = ProviderBatchLine.objects.filter(job_id=job.pk).select_related("provider_batch").order_by("-pk")
    line = lines.first()
    return None if line is None else line.provider_batch
