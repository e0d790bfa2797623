"""The upper bound of a call's cost, from its payload and the prices."""

from __future__ import annotations

import logging
import math
from datetime import UTC, datetime
from typing import Any, Protocol

from jobs.handlers.registry import Handler, UnknownKind, find_handler
from ratelimits.costs import OUTPUT_TOKENS, WRITTEN_1H_TOKENS, Usage
from ratelimits.models import Via
from ratelimits.money.amounts import most_of, unpriced
from ratelimits.money.budgets import MISSING_PRICE, NO_PRICE_OF, UNBOUNDED, UNCOUNTED, UNSTATED
from ratelimits.money.prices import bills, is_served_by_priority, price_list

logger = logging.getLogger(__name__)


class Billable(Protocol):
    """The attributes of a job that decide the bound of its call's cost. `payload`: JSON text."""

    @property
    def kind(self) -> str: ...
    @property
    def payload(self) -> str: ...
    @property
    def service(self) -> str: ...
    @property
    def project(self) -> str: ...
    @property
    def model(self) -> str | None: ...
    @property
    def claimed_at(self) -> float: ...


def most_by_prices(job: Billable, via: Via) -> tuple[bool, int | None]:
    """Return whether a job's call may be billed, and the most that it can cost; None: the most is unknown."""
    read = read_billed(job)
    return (False, None) if read is None else (True, bound_of(job, *read, via, alone=True)[0])


def may_be_billed(kind: str, service: str) -> bool:
    """Whether calls of jobs of a kind may cost money at a service."""
    try:
        return find_handler(kind).most is not None or bills(service)
    except UnknownKind:
        return False


def read_billed(job: Billable) -> tuple[Handler, Any] | None:
    """
    Return the handler and the payload of a job; None: the job makes no call that may be billed.

    A payload that does not fit the handler is such a case: the handler will refuse it without a call.
    """
    if not may_be_billed(job.kind, job.service):
        return None
    try:
        handler = find_handler(job.kind)
        return handler, handler.schema.validate_json(job.payload)
    except ValueError:
        return None
    except Exception:  # otherwise a mistake in one kind's schema would stop the claims and outcomes of all
        logger.exception("the schema of %s fails on a payload", job.kind)
        return None


def bound_of(job: Billable, handler: Handler, payload: Any, via: Via, *, alone: bool) -> tuple[int | None, str]:
    """Return the upper bound of a call's cost in micro-units and ""; or None and why the bound is unknown."""
    if handler.most is None:
        return None, UNSTATED
    prices = price_list(job.service, job.model or "", via=via)
    claimed_at = datetime.fromtimestamp(job.claimed_at, UTC)
    if not prices.at(claimed_at):
        return None, MISSING_PRICE
    try:
        most = handler.most(payload)
    except Exception:  # otherwise a mistake of one handler would keep all jobs from being claimed
        logger.exception("%s does not say how much a call can use; its job waits", handler.kind)
        most = Usage()
    if most.input_tokens is None:
        return None, UNCOUNTED
    bounds = (most.output_tokens, prices.most_output, _documented_output(handler, payload))
    output = next((bound for bound in bounds if bound is not None), None)
    if output is None:
        return None, UNBOUNDED
    # Jobs that leave together are one call, whose input is the sum of their inputs: any rate by length may apply.
    longest = math.inf if handler.coalesce else most.input_tokens
    rates = prices.most_at(claimed_at, longest)
    if via == Via.LIVE:
        rates = _dearest(rates, _tier_rates(job, most, claimed_at, longest))
    if most.written_1h_tokens == 0:  # the dearest input, which few calls ask for: all others would reserve for it, too
        rates.pop(WRITTEN_1H_TOKENS, None)
    if unit := unpriced(most.input_tokens, output, rates):
        return None, NO_PRICE_OF[unit]
    return most_of(most.input_tokens, output, rates, requests=most.requests if alone else 0), ""


def _tier_rates(job: Billable, most: Usage, moment: datetime, longest: float) -> dict[str, int]:
    """
    Return the prices of the tier that the handler asks for, or by which the provider serves the project unasked.

    Empty: it is the usual tier, or one without prices.
    """
    tier = Via(most.tier) if most.tier else Via.PRIORITY
    rates = price_list(job.service, job.model or "", via=tier).most_at(moment, longest)
    return rates if rates and (most.tier or is_served_by_priority(job.project, job.service)) else {}


def _dearest(rates: dict[str, int], others: dict[str, int]) -> dict[str, int]:
    return {unit: max(rates.get(unit, 0), others.get(unit, 0)) for unit in rates | others}


def _documented_output(handler: Handler, payload: Any) -> int | None:
    """Return the most output tokens that the call's model can produce; None: the handler only guesses it."""
    try:
        cost = handler.estimated_cost(payload)
    except Exception:  # as in bound_of
        logger.exception("%s does not say what a call costs", handler.kind)
        return None
    return cost.units.get(OUTPUT_TOKENS) if cost.is_bound else None
