"""The upper bound of a call's cost, from its payload and the prices."""

from __future__ import annotations

import logging
import math
from datetime import UTC, datetime
from typing import Any, Protocol

from jobs.handlers.registry import Handler, UnknownKind, find_handler
from ratelimits.costs import OUTPUT_TOKENS, Usage
from ratelimits.models import Via
from ratelimits.money import most_of
from ratelimits.services.money.budgets import MISSING_PRICE, UNBOUNDED, UNCOUNTED, UNSTATED
from ratelimits.services.money.prices import bills, price_list

logger = logging.getLogger(__name__)


class Billable(Protocol):
    """A job, as far as it says what its call can cost. `payload`: JSON text."""

    @property
    def kind(self) -> str: ...
    @property
    def payload(self) -> str: ...
    @property
    def service(self) -> str: ...
    @property
    def model(self) -> str | None: ...
    @property
    def claimed_at(self) -> float: ...


def most_by_prices(job: Billable, via: Via) -> tuple[bool, int | None]:
    """Whether a job calls somebody who bills, and what its call can cost at most; None: nobody knows."""
    read = read_billed(job)
    return (False, None) if read is None else (True, bound_of(job, *read, via, alone=True)[0])


def may_be_billed(kind: str, service: str) -> bool:
    """Whether calls of jobs of a kind may cost money at a service."""
    try:
        return find_handler(kind).most is not None or bills(service)
    except UnknownKind:
        return False


def read_billed(job: Billable) -> tuple[Handler, Any] | None:
    """The handler and the payload of a job; None: it calls nobody who bills."""
    if not may_be_billed(job.kind, job.service):
        return None
    try:
        handler = find_handler(job.kind)
        return handler, handler.schema.validate_json(job.payload)
    except ValueError:  # it calls nobody: its handler will refuse it
        return None


def bound_of(job: Billable, handler: Handler, payload: Any, via: Via, *, alone: bool) -> tuple[int | None, str]:
    """Return the upper bound of a call's cost in micro-units; or None, and why it is not known."""
    if handler.most is None:
        return None, UNSTATED
    prices = price_list(job.service, job.model or "", via=via)
    claimed_at = datetime.fromtimestamp(job.claimed_at, UTC)
    if not prices.at(claimed_at):
        return None, MISSING_PRICE
    try:
        most = handler.most(payload)
    except Exception:  # a handler's own mistake would keep everybody's jobs from being claimed
        logger.exception("%s does not say how much a call can use; its job waits", handler.kind)
        most = Usage()
    if most.input_tokens is None:
        return None, UNCOUNTED
    bounds = (most.output_tokens, prices.most_output, _documented_output(handler, payload))
    output = next((bound for bound in bounds if bound is not None), None)
    if output is None:
        return None, UNBOUNDED
    # Jobs that leave together are one call, whose input is that of all.
    longest = math.inf if handler.coalesce else most.input_tokens
    rates = prices.most_at(claimed_at, longest)
    amount = most_of(most.input_tokens, output, rates, requests=most.requests if alone else 0)
    return amount, "" if amount is not None else MISSING_PRICE


def _documented_output(handler: Handler, payload: Any) -> int | None:
    """The most output tokens that a call's model is known to bring; None: the handler only guesses."""
    cost = handler.estimated_cost(payload)
    return cost.units.get(OUTPUT_TOKENS) if cost.is_bound else None
