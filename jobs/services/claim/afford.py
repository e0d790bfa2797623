"""Between choosing and asking the limits: whether budgets can pay for chosen jobs. Asks nobody where there is none."""

from __future__ import annotations

import logging
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Generic, NamedTuple, TypeVar
from uuid import UUID

from django.conf import settings

from jobs.classify import Failure
from jobs.handlers.registry import Handler, UnknownKind, find_handler
from jobs.models import BudgetWait, Job
from jobs.services.finish.claimed import ClaimedJob
from jobs.services.finish.finish import bury
from jobs.services.operate.budget_waits import why_unknown
from jobs.transitions import Move
from queueops.core.clock import Now
from ratelimits.costs import OUTPUT_TOKENS, Usage
from ratelimits.models import Via
from ratelimits.money import most_of, shown
from ratelimits.services.money.budgets import (
    COST_UNKNOWN,
    EXHAUSTED,
    MISSING_PRICE,
    UNBOUNDED,
    UNCOUNTED,
    UNSTATED,
    AskedMoney,
    Shortage,
    Weighed,
    budgets_of,
    hold_money,
    places_of,
    weigh_budgets,
)
from ratelimits.services.money.prices import bills, price_list
from ratelimits.services.money.spend import Payer, tell_missing

logger = logging.getLogger(__name__)


class ChosenLine(NamedTuple):
    """A job that is to be a line of a provider's batch; the fields are those of a ClaimedJob."""

    id: UUID
    token: int
    project: str
    user_id: UUID | None
    batch_id: UUID | None
    kind: str
    payload: str
    service: str
    model: str | None
    claimed_at: float
    bound: int | None = None


J = TypeVar("J", ClaimedJob, ChosenLine)


@dataclass(slots=True)
class Affordable(Generic[J]):
    """
    Chosen jobs that budgets can pay for, whether or not any counts them.

    Attributes:
        jobs: Each with `bound` where a budget counts it.
        asked: By job, what was asked for; of one call with others, with what these can cost.
    """

    jobs: Sequence[J]
    lease_seconds: float
    asked: dict[UUID, AskedMoney] = field(default_factory=dict)
    weighed: Weighed = field(default_factory=Weighed)

    def take_along(self, leader: J, companion: J) -> bool:
        """
        Whether a job may leave in the call of another one, as far as budgets go: one call, which the leader pays.

        Both are of one project and user. Where budgets count either of them, they must be the same budgets: else the
        budget of one batch would pay for another's. The call can cost as much more as the companion by itself, less
        the request.
        """
        if leader.id not in self.asked and not budgets_of(companion.project):
            return True
        payers = [Payer(job.project, job.user_id, job.batch_id) for job in (leader, companion)]
        if places_of(payers[0]) != places_of(payers[1]):
            return False
        more = _ask(companion, self.lease_seconds, Via.LIVE, alone=False)
        if more is None or leader.id not in self.asked:
            return more is None
        own = self.asked[leader.id]
        if own.most is None or more.most is None:
            return False
        # What was asked for as well, to go by itself, has been taken with the request.
        if companion.id not in self.weighed.places and not self.weighed.take_more(leader.id, more.most):
            return False
        self.asked[leader.id] = own._replace(most=own.most + more.most)
        return True

    def bound_of(self, job: J) -> int | None:
        """What the call of a job that may go can cost at most, where a budget counts it."""
        return self.asked[job.id].most if self.weighed.places.get(job.id) else None

    def hold(self, admitted: Sequence[J]) -> None:
        """Reserve for those that the limits admit, too, one a call; in the transaction of the claim."""
        hold_money([self.asked[job.id] for job in admitted if job.id in self.asked], self.weighed)


def afford(chosen: Sequence[J], *, lease_seconds: float, via: Via = Via.LIVE) -> Affordable[J]:
    """
    Ask the budgets, in the caller's transaction that has locked the jobs; locks the budgets' periods.

    Jobs that a budget has no room for are held until there is, or fail, as the budget says. A job without a price, or
    of which nobody knows how much it can use, is held too: no budget could be kept.
    """
    paying = {project for project in {job.project for job in chosen} if budgets_of(project)}
    asked = [call for job in chosen if job.project in paying and (call := _ask(job, lease_seconds, via))]
    found = Affordable(chosen, lease_seconds)
    if not asked:
        return found
    found.asked, found.weighed = {call.job_id: call for call in asked}, weigh_budgets(asked)
    shortages = found.weighed.shortages
    _keep_back([(job, shortages[job.id]) for job in chosen if job.id in shortages])
    priceless = [call for call in asked if call.why == MISSING_PRICE]
    missing = {(call.provider, call.model, str(call.via)): call.payer.project for call in priceless}
    if missing:
        tell_missing(missing)
    found.jobs = [job._replace(bound=found.bound_of(job)) for job in chosen if job.id not in shortages]
    return found


def _ask(job: J, lease_seconds: float, via: Via, *, alone: bool = True) -> AskedMoney | None:
    """
    What a job asks for; None: no budget counts it, or it calls nobody who bills.

    Args:
        alone: False: it leaves in another's call, and makes no request of its own.
    """
    payer = Payer(job.project, job.user_id, job.batch_id)
    if not places_of(payer):
        return None
    try:
        handler = find_handler(job.kind)
    except UnknownKind:
        return None
    if handler.most is None and not bills(job.service):
        return None
    try:
        payload = handler.schema.validate_json(job.payload)
    except ValueError:  # it calls nobody: its handler will refuse it
        return None
    amount, why = _bound(job, handler, payload, via, alone=alone)
    hold = handler.timeout.total_seconds() + lease_seconds
    return AskedMoney(job.id, job.token, payer, job.service, job.model or "", job.claimed_at, amount, hold, via, why)


def _bound(job: J, handler: Handler, payload: Any, via: Via, *, alone: bool) -> tuple[int | None, str]:
    """What a call can cost at most, in micro-units; None: nobody knows, and why."""
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


def _keep_back(refused: Sequence[tuple[ClaimedJob | ChosenLine, Shortage]]) -> None:
    failures = {job.id: (job.kind, _failure(job, shortage)) for job, shortage in refused if shortage.rejects}
    moves = [
        Move(job_id, error_code=failure.code, message=failure.message) for job_id, (_, failure) in failures.items()
    ]
    if failures:
        bury("reject", failures, moves)
    waiting = [(job, shortage) for job, shortage in refused if not shortage.rejects]
    if waiting:
        BudgetWait.objects.bulk_create(
            [
                BudgetWait(
                    job_id=job.id,
                    project_id=job.project,
                    budget_id=shortage.budget,
                    key=shortage.key,
                    needed=shortage.most,
                    why=shortage.why,
                    provider=job.service,
                    model=job.model or "",
                )
                for job, shortage in waiting
            ],
            update_conflicts=True,
            unique_fields=["job_id"],
            update_fields=["budget_id", "key", "needed", "why", "provider", "model"],
        )
        Job.objects.filter(pk__in=[job.id for job, _ in waiting]).update(held=True, updated_at=Now())


def _failure(job: ClaimedJob | ChosenLine, shortage: Shortage) -> Failure:
    details = {"budget": shortage.name}
    if shortage.most is None:
        why = why_unknown(shortage.why, kind=job.kind, provider=job.service, model=job.model or "")
        return Failure(COST_UNKNOWN, "CostUnknown", f"{shortage.name}: {why}", "not_sent", details=details)
    room = max(0, shortage.amount - shortage.spent)
    most, left, amount = (shown(one, settings.QUEUEOPS.currency) for one in (shortage.most, room, shortage.amount))
    message = f"{shortage.name}: it can cost {most}, and {left} of {amount} are left"
    return Failure(EXHAUSTED, "BudgetExhausted", message, "not_sent", details=details)
