"""Records the costs of the calls behind outcomes, in the ledger and in the budgets that hold money for the calls."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from functools import reduce
from http import HTTPStatus
from uuid import UUID

from jobs.models import Job
from jobs.services.finish.bounds import may_be_billed, most_by_prices
from jobs.services.finish.claimed import ClaimedJob
from jobs.services.finish.outcomes import Failed, GivenBack, Outcome
from ratelimits.costs import Usage
from ratelimits.models import Spend, Via
from ratelimits.money.holds import NO_USAGE, end_holds
from ratelimits.money.spend import MadeCall, Payer, record_calls, write_ledger


def record_spend(outcomes: Sequence[Outcome], *, lost: Collection[UUID]) -> None:
    """
    Write the costs of calls in the caller's transaction; without such calls no statement runs.

    A call counts if its handler knows what the call used, if it holds money of budgets, or if it may be billed.

    A call is paid for whether its outcome was written or came too late: the ledger counts it once, by its token. A call
    that may have been made, but whose use is not known, counts at the most that it can have cost. For jobs that left as
    one call, one outcome tells what they used, see `told_once`.

    Args:
        lost: Jobs whose outcome was refused; the costs of erased jobs, and of jobs that moved away, are left out.
    """
    free = {of for of in {(one.job.kind, one.job.service) for one in outcomes} if not may_be_billed(*of)}
    may_cost = (
        one
        for one in outcomes
        if one.usage is not None or one.job.bound is not None or (one.job.kind, one.job.service) not in free
    )
    ended = [one for one in map(_with_bound, may_cost) if one is not None]
    if not ended:
        return
    late = {outcome.job.id for outcome in ended} & set(lost)
    if late:
        # An erased job still has a row, with another user.
        there = set(Job.objects.filter(pk__in=late).values_list("pk", "user_id"))
        ended = [one for one in ended if one.job.id not in late or (one.job.id, one.job.user_id) in there]
    # Leave out calls that were taken from their executor and whose use is not known: they count when their hold ends.
    untold = {one.job.id for one in ended if one.job.id in late and one.usage is None and may_have_cost(one)}
    ended = [outcome for outcome in ended if outcome.job.id not in untold]
    held = [_call_of(one) for one in ended if one.job.bound is not None]
    locked = end_holds(held, paid=[(_payer(one), one.job.claimed_at) for one in ended])
    record_calls(
        [
            made_by(outcome.job, outcome.via)._replace(usage=outcome.usage)
            for outcome in ended
            if outcome.usage is not None
        ],
        bounds={_call_of(one): one.job.bound for one in ended if one.job.bound is not None},
        locked=locked,
    )
    unknown = [
        (made_by(outcome.job, outcome.via), Spend.Kind.UNKNOWN, outcome.job.bound)
        for outcome in ended
        if outcome.usage is None and may_have_cost(outcome)
    ]
    if unknown:
        write_ledger(unknown, locked=locked)


def _with_bound(outcome: Outcome) -> Outcome | None:
    """
    Add the most that the call can have cost, if no budget holds money for it and the provider did not state its use.

    Returns None if the call costs nothing.
    """
    used, job = outcome.usage, outcome.job
    if job.bound is not None or (used is not None and None not in (used.input_tokens, used.output_tokens)):
        return outcome
    if job.group not in (None, job.id):  # it left in another job's call, whose outcome states the use of all
        return outcome if used is not None else None
    is_billed, most = most_by_prices(job, Via(outcome.via)) if may_have_cost(outcome) else (False, None)
    if most is not None:
        return replace(outcome, job=job._replace(bound=most))
    return outcome if is_billed or used is not None else None


def may_have_cost(outcome: Outcome) -> bool:
    """Whether a call whose use is unknown may have been made and billed: providers bill no refusals and no errors."""
    if isinstance(outcome, Failed):
        failure = outcome.failure
        if failure.outcome in ("not_sent", "refused") or failure.push_back is not None:
            return False
        return not (failure.outcome == "answered" and (failure.status or 0) >= HTTPStatus.BAD_REQUEST)
    if isinstance(outcome, GivenBack):
        return outcome.cost != 0 and not outcome.misfit
    return True


def told_once(outcomes: Sequence[Outcome | None], *, bound: int | None) -> list[Outcome | None]:
    """
    If jobs left as one call, let one of their outcomes state what the call used, and end what budgets hold for it.

    The jobs' tokens are added up. Their requests are not, as it was one call: the largest number of them counts.

    Args:
        outcomes: One for each job; None: nobody wants the job's outcome.
        bound: The most that the whole call can cost; None: no budget counts the call.
    """
    told = [one.usage for one in outcomes if one is not None and one.usage is not None]
    if bound is None and len(told) < 2:  # noqa: PLR2004 - as with a job alone
        return list(outcomes)
    tells: Callable[[Outcome], bool] = (lambda one: one.usage is not None) if told else may_have_cost
    there = [place for place, one in enumerate(outcomes) if one is not None]
    teller = min(there, key=lambda place: not tells(outcomes[place]), default=None)  # type: ignore[arg-type]
    return [
        one
        if one is None
        else _with(one, reduce(_sum, told) if told else None, bound)
        if place == teller
        else _with(one, None, None)
        for place, one in enumerate(outcomes)
    ]


def _with(outcome: Outcome, usage: Usage | None, bound: int | None) -> Outcome:
    # If the cost was computed from the tokens used, compute it again: another outcome now states the tokens.
    follows = outcome.usage is not None and outcome.cost == outcome.usage.tokens
    cost = outcome.cost if not follows else 0 if usage is None else usage.tokens
    return replace(outcome, usage=usage, cost=cost, job=outcome.job._replace(bound=bound))


def _sum(one: Usage, other: Usage) -> Usage:
    """Add up two parts of a call; a figure that one part lacks is unknown for the whole."""
    return Usage(
        _plus(one.input_tokens, other.input_tokens),
        _plus(one.cached_tokens, other.cached_tokens),
        _plus(one.output_tokens, other.output_tokens),
        _plus(one.tokens, other.tokens),
        max(one.requests, other.requests),
        _plus(one.written_tokens, other.written_tokens),
        _plus(one.written_1h_tokens, other.written_1h_tokens),
        one.tier or other.tier,
    )


def _plus(one: int | None, other: int | None) -> int | None:
    return None if one is None or other is None else one + other


def _call_of(outcome: Outcome) -> tuple[UUID, int]:
    """Return the key of an outcome's call in the ledger and in budgets: the job that leads the call, and the token."""
    return outcome.job.group or outcome.job.id, outcome.job.token


def made_by(job: ClaimedJob, via: str) -> MadeCall:
    """Return the call of a claimed job, with its use unknown."""
    payer = Payer(job.project, job.user_id, job.batch_id)
    leader, model = job.group or job.id, job.model or ""
    return MadeCall(leader, job.token, payer, job.service, model, job.claimed_at, NO_USAGE, via)


def _payer(outcome: Outcome) -> Payer:
    return Payer(outcome.job.project, outcome.job.user_id, outcome.job.batch_id)
