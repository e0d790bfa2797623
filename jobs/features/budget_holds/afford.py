"""Checks whether budgets can pay for chosen jobs, before the limits are asked. Without a budget no query runs."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Generic, NamedTuple, TypeVar
from uuid import UUID

from django.conf import settings

from jobs.classify import Failure
from jobs.features.budget_holds.waits import why_unknown
from jobs.models import BudgetWait, Job
from jobs.services.finish.bounds import bound_of, read_billed
from jobs.services.finish.claimed import ClaimedJob
from jobs.services.finish.finish import bury
from queueops.core.clock import Now
from ratelimits.costs import REQUESTS
from ratelimits.models import Via
from ratelimits.money.amounts import shown
from ratelimits.money.budgets import (
    COST_UNKNOWN,
    EXHAUSTED,
    NO_PRICE_OF,
    PRICELESS,
    AskedMoney,
    Shortage,
    Weighed,
    budgets_of,
    hold_money,
    places_of,
    weigh_budgets,
)
from ratelimits.money.spend import Payer, Unpriced, tell_missing

logger = logging.getLogger(__name__)


class ChosenLine(NamedTuple):
    """A job that is to be a line of a provider's batch; its fields are those of a ClaimedJob."""

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
    Chosen jobs that budgets can pay for, and jobs that no budget counts.

    Attributes:
        jobs: The jobs, with `bound` set for each job that a budget counts.
        asked: By job, the money asked for; the job that leads a call asks for its companions, too.
    """

    jobs: Sequence[J]
    lease_seconds: float
    asked: dict[UUID, AskedMoney] = field(default_factory=dict)
    weighed: Weighed = field(default_factory=Weighed)

    def take_along(self, leader: J, companion: J) -> bool:
        """
        Whether budgets let a companion leave in its leader's call, for which the leader pays.

        Both jobs are of one project and user. If budgets count either job, the same budgets must count both: otherwise
        one batch's budget would pay for another batch's job. The companion adds to the call what it could cost by
        itself, less the price of a request.
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
        # A companion that the claim also chose has its money already, with the price of a request of its own.
        if companion.id not in self.weighed.places and not self.weighed.take_more(leader.id, more.most):
            return False
        self.asked[leader.id] = own._replace(most=own.most + more.most)
        return True

    def bound_of(self, job: J) -> int | None:
        """Return the most that a job's call can cost; None: no budget counts the call."""
        return self.asked[job.id].most if self.weighed.places.get(job.id) else None

    def hold(self, admitted: Sequence[J]) -> None:
        """Reserve money for the jobs that the limits have admitted, once for each call, in the claim's transaction."""
        hold_money([self.asked[job.id] for job in admitted if job.id in self.asked], self.weighed)


def afford(chosen: Sequence[J], *, lease_seconds: float, via: Via = Via.LIVE) -> Affordable[J]:
    """
    Ask the budgets, in the caller's transaction that has locked the jobs; locks the budgets' periods.

    Jobs that a budget has no room for are held until it has room, or fail, as the budget says. A job without a price or
    without a bound on its use does not go either: otherwise no budget could be kept.
    """
    paying = {project for project in {job.project for job in chosen} if budgets_of(project)}
    asked = [call for job in chosen if job.project in paying and (call := _ask(job, lease_seconds, via))]
    found = Affordable(chosen, lease_seconds)
    if not asked:
        return found
    found.asked, found.weighed = {call.job_id: call for call in asked}, weigh_budgets(asked)
    shortages = found.weighed.shortages
    _keep_back([(job, shortages[job.id]) for job in chosen if job.id in shortages])
    if missing := [_unpriced(call) for call in asked if call.why in PRICELESS]:
        tell_missing(missing)
    found.jobs = [job._replace(bound=found.bound_of(job)) for job in chosen if job.id not in shortages]
    return found


def _ask(job: J, lease_seconds: float, via: Via, *, alone: bool = True) -> AskedMoney | None:
    """
    Return what a job asks of budgets; None: no budget counts it, or it calls no provider that bills.

    Args:
        alone: False: the job leaves in another job's call, and makes no request of its own.
    """
    payer = Payer(job.project, job.user_id, job.batch_id)
    if not places_of(payer) or (read := read_billed(job)) is None:
        return None
    handler, payload = read
    amount, why = bound_of(job, handler, payload, via, alone=alone)
    hold = handler.timeout.total_seconds() + lease_seconds
    return AskedMoney(job.id, job.token, payer, job.service, job.model or "", job.claimed_at, amount, hold, via, why)


def _unpriced(call: AskedMoney) -> Unpriced:
    # A call without input is not named as lacking a price of requests: a price of input would do as well.
    units = {unit for unit, why in NO_PRICE_OF.items() if why == call.why and unit != REQUESTS}
    return Unpriced(call.provider, call.model, str(call.via), call.payer.project, frozenset(units))


def _keep_back(refused: Sequence[tuple[ClaimedJob | ChosenLine, Shortage]]) -> None:
    failures = {job.id: (job.kind, _failure(job, shortage)) for job, shortage in refused if shortage.rejects}
    if failures:
        bury("reject", failures)
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
