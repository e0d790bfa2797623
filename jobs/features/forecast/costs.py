"""Costs of jobs that are not submitted yet: tokens as limits reserve them, and tokens that calls like them used."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import NamedTuple
from uuid import UUID

from jobs.services.submit.choose_lane import ChosenLane
from jobs.services.submit.prepare import PreparedJob
from ratelimits.costs import (
    CACHED_TOKENS,
    CALLS,
    INPUT_OF_CALLS,
    INPUT_TOKENS,
    OUTPUT_TOKENS,
    REQUESTS,
    TOKENS,
    Amounts,
    Usage,
)
from ratelimits.limiter.estimates import Typical
from ratelimits.models import Via
from ratelimits.money.amounts import cost_of
from ratelimits.money.prices import price_list

from .queue_calls import LineJob

UNITS = (INPUT_TOKENS, OUTPUT_TOKENS, TOKENS)
MIN_OUTPUT, MAX_OUTPUT, UNBOUNDED = "least_output", "most_output", "unbounded"


class Priced(NamedTuple):
    """
    The key by which a job's price is found, and the job's user.

    Attributes:
        has_form: Whether the job could go by a batch of the provider.
        above_tokens: The highest bound of a long-input price that the expected input exceeds; 0: none.
    """

    service: str
    model: str
    user_id: UUID | None
    has_form: bool
    above_tokens: int


class PriceBounds(NamedTuple):
    """
    The bounds of the cost, in micro-units, of work whose tokens are guessed: no calls like it were measured.

    Attributes:
        at_least: The cost if the guessed calls have no output at all.
        at_most: The cost if the guessed calls have the most output that they can; None: some have no bound.
    """

    at_least: int
    at_most: int | None


class MissingPrice(NamedTuple):
    service: str
    model: str
    via: str


@dataclass(slots=True)
class TokenSum:
    """
    Tokens of one unit.

    Attributes:
        known: Tokens that are counted, not guessed.
        expected: Tokens that calls like these have had on average.
        reserved: Tokens that limits reserve until the answers say how many were used.
    """

    known: float = 0.0
    expected: float = 0.0
    reserved: float = 0.0


@dataclass(slots=True)
class SubmissionCosts:
    """
    Attributes:
        tokens: The tokens by unit; jobs that count no tokens are left out.
        learned, guessed: How many jobs have tokens learned from calls like them, and how many have guessed tokens.
        used: By price key, the expected requests, input, cached and output tokens, and the bounds of the output.
    """

    tokens: dict[str, TokenSum] = field(default_factory=lambda: {unit: TokenSum() for unit in UNITS})
    learned: int = 0
    guessed: int = 0
    used: defaultdict[Priced, dict[str, float]] = field(default_factory=lambda: defaultdict(dict))

    def add(self, job: PreparedJob, chosen: ChosenLane, typical: Typical) -> LineJob:
        """Count a job; return it as a job that waits in its lane, at its expected cost."""
        details = job.details
        reserved: Mapping[str, int] = _units_beside(job) | (json.loads(chosen.units) if chosen.units else {})
        if not reserved.keys() & {INPUT_TOKENS, OUTPUT_TOKENS}:
            unknown = 0.0 if details.known_cost is None else job.cost - details.known_cost
            if unknown and typical.unknown is not None:
                unknown = min(unknown, typical.unknown)
            cost = job.cost if details.known_cost is None else details.known_cost + unknown
            return _line(job, chosen, (cost, details.known_cost), reserved)
        most = (details.units or reserved).get(OUTPUT_TOKENS, 0)
        times = reserved.get(CALLS, 1)
        known = reserved.get(INPUT_OF_CALLS, times * reserved.get(INPUT_TOKENS, 0)) / times  # of an average call
        entered, answered = expected_tokens(known, most, typical, is_bound=details.is_bound)
        counts_output = details.known_cost is not None
        typically = entered + (answered if counts_output else 0.0)
        cost = typically if job.spec.cost is None else float(job.spec.cost)
        is_guessed = typical.output is None
        self.guessed += is_guessed
        self.learned += not is_guessed
        smaller = reserved.get(INPUT_TOKENS, 0) - known if times > 1 else 0.0
        of_cost = (job.cost if details.known_cost is None else details.known_cost) - smaller
        self._sum(INPUT_TOKENS, (known, entered, known), times)
        self._sum(OUTPUT_TOKENS, (0.0, answered, reserved.get(OUTPUT_TOKENS, 0)), times)
        self._sum(TOKENS, (of_cost, cost, chosen.cost - smaller), times)
        cached = entered * (typical.cached or 0.0)
        amounts = {INPUT_TOKENS: entered, CACHED_TOKENS: cached, OUTPUT_TOKENS: answered}
        model = details.model or ""
        above = max(price_list(job.service, model, via=via).length_below(round(entered)) for via in Via)
        used = self.used[Priced(job.service, model, job.spec.user_id, job.way.has_form, above)]
        between = {
            MIN_OUTPUT: 0.0 if is_guessed else answered,
            MAX_OUTPUT: answered,
            UNBOUNDED: float(is_guessed and not details.is_bound),
        }
        for unit, amount in ({REQUESTS: 1.0} | amounts | between).items():
            used[unit] = used.get(unit, 0.0) + times * amount
        if times > 1:
            amounts[CALLS] = times
        return _line(job, chosen, (cost, entered if counts_output else None), amounts)

    def _sum(self, unit: str, of_call: tuple[float, float, float], times: float) -> None:
        """Add the known, expected and reserved tokens of `times` calls."""
        told, (known, expected, reserved) = self.tokens[unit], of_call
        told.known += times * known
        told.expected += times * expected
        told.reserved += times * reserved

    def price_range(self, via: Via, at: datetime) -> PriceBounds | None:
        """Return the bounds of the whole cost; None: nothing is guessed, or a price is missing."""
        if not self.guessed or self.price(via, at)[0] is None:
            return None
        least, most = (
            sum(
                _money(place, used, via if place.has_form else Via.LIVE, at, output=output) or 0
                for place, used in self.used.items()
            )
            for output in (MIN_OUTPUT, MAX_OUTPUT)
        )
        is_bound = not any(used[UNBOUNDED] for used in self.used.values())
        return PriceBounds(least, most if is_bound else None)

    def price(self, via: Via, at: datetime) -> tuple[int | None, list[MissingPrice]]:
        """
        Return the expected cost of all jobs, in micro-units, and the missing prices.

        The cost is None where a price is missing, and 0 where nothing counts tokens. Jobs that cannot go by batch are
        priced live, whatever `via` is.
        """
        total, missing = 0, dict[MissingPrice, None]()
        for place, used in self.used.items():
            by = via if place.has_form else Via.LIVE
            money = _money(place, used, by, at)
            if money is None:
                missing[MissingPrice(place.service, place.model, by.value)] = None
            else:
                total += money
        return (None if missing else total), sorted(missing)

    def prices_of_users(self, at: datetime) -> dict[UUID | None, int | None]:
        """Return the expected live cost of each user's jobs, in micro-units; None: a price is missing."""
        found: dict[UUID | None, int | None] = {}
        for place, used in self.used.items():
            money, before = _money(place, used, Via.LIVE, at), found.get(place.user_id, 0)
            found[place.user_id] = None if money is None or before is None else before + money
        return found


def expected_tokens(known: float, most: float, typical: Typical, *, is_bound: bool) -> tuple[float, float]:
    """
    Return the input and output tokens that a call should have.

    Args:
        known: The counted input tokens.
        most: The most output that the call can have; without a bound, the output assumed until some is learned.
    """
    entered = known * (1.0 if typical.ratio is None else typical.ratio)
    if typical.output is None:
        return entered, most
    return entered, min(most, typical.output) if is_bound else typical.output


def _money(
    place: Priced, used: Mapping[str, float], via: Via, at: datetime, *, output: str = OUTPUT_TOKENS
) -> int | None:
    usage = Usage(
        input_tokens=round(used[INPUT_TOKENS]),
        cached_tokens=round(used[CACHED_TOKENS]) or None,
        output_tokens=round(used[output]),
        requests=round(used[REQUESTS]),
    )
    return cost_of(usage, price_list(place.service, place.model, via=via).at(at, place.above_tokens + 1))


def _units_beside(job: PreparedJob) -> dict[str, int]:
    """Return the tokens by unit of a job whose producer gave its cost as one figure; otherwise empty."""
    if job.spec.cost is None:
        return {}
    return dict(job.handler.estimated_cost(job.handler.schema.validate_json(job.payload)).units)


def _line(job: PreparedJob, chosen: ChosenLane, costs: tuple[float, float | None], amounts: Amounts | None) -> LineJob:
    return LineJob(job.handler.kind, chosen.coalesce_key, len(job.payload), *costs, amounts)
