"""Books the cost of lines that a provider may have billed without an answer: the most, until the cost is known."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

from jobs.features.budget_holds.spend import made_by
from jobs.services.finish.bounds import most_by_prices
from jobs.services.finish.claimed import ClaimedJob
from ratelimits.models import Spend, Via
from ratelimits.money.holds import NO_USAGE, end_holds, losing_known
from ratelimits.money.spend import MadeCall, Payer, write_ledger


def book_unread(jobs: Sequence[ClaimedJob]) -> None:
    """
    Book the most that these lines can have cost as an unknown cost, in the caller's transaction, which has locked them.

    A late answer or `settle_unread` corrects the amount.
    """
    losing_known([(job.id, job.token) for job in jobs if job.bound is not None])
    found = [(job, most_by_prices(job, Via.BATCH)) for job in jobs if job.bound is None]
    rows = [(made_by(job, Via.BATCH), Spend.Kind.UNKNOWN, most) for job, (is_billed, most) in found if is_billed]
    if rows:
        write_ledger(rows)


def settle_unread(calls: Sequence[tuple[UUID, int]], *, billed: bool) -> int:
    """
    Settle unknown costs, in the caller's transaction: at the booked cost if billed, otherwise at nothing.

    Args:
        calls: The job and fencing token of each; a call whose cost is known is left alone.

    Returns:
        How many costs were settled.
    """
    tokens = dict(calls)
    rows = [
        (
            MadeCall(
                row.job_id,
                row.token,
                Payer(row.project_id, row.user_id, row.batch_id),
                row.provider,
                row.model,
                row.at.timestamp(),
                NO_USAGE,
                row.via,
            ),
            Spend.Kind.CALL,
            row.money if billed else 0,
        )
        for row in Spend.objects.filter(job_id__in=tokens, kind=Spend.Kind.UNKNOWN).order_by("pk")
        if tokens[row.job_id] == row.token
    ]
    if rows:
        ended = [(call.job_id, call.token) for call, _, _ in rows]
        write_ledger(rows, locked=end_holds(ended, paid=[(call.payer, call.at) for call, _, _ in rows]))
    return len(rows)
