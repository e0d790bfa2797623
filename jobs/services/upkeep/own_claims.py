"""
Compares an executor's memory of its claims with a database that it has just connected to.

The database shows which claims were committed. Only the executor remembers which calls it has begun. In a database that
was put back to an earlier moment, calls that ended long ago seem to be under way. Calls that are under way may
seem to wait.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple
from uuid import UUID

from django.db import transaction

from jobs.classify import OUTCOME_UNKNOWN, Failure
from jobs.models import Job
from jobs.services.finish.claimed import ClaimedJob, holder_of
from jobs.services.finish.finish import bury
from jobs.states import RUNNING, WAITING
from jobs.transitions import Move, move_jobs
from ratelimits.limiter.decide import reclaim
from ratelimits.money.holds import end_holds, losing_known

from .upkeep import is_closed, is_repeatable

CUT_OFF = "its claim was cut off before it began"
BEGUN = "its call had begun before the database was put back to an earlier moment"
UNKNOWN_END = f"{BEGUN}, and how it ended is not known here"


class SettledClaims(NamedTuple):
    """How many rows were moved: given back as never begun, given back to be repeated, buried as `outcome_unknown`."""

    unbegun: int
    repeated: int
    unknown: int


@transaction.atomic()
def compare_claims(executor_id: UUID, owned: Collection[ClaimedJob], *, begun_up_to: int) -> SettledClaims:
    """
    Settle claims of this executor that are in the database but not in its memory.

    A claim whose token is above `begun_up_to` comes from a commit whose answer was lost with the connection. It was
    never begun, so it costs neither an attempt nor a crash. A claim with a lower token was begun and ended after the
    moment to which the database was put back. It is given back if it may be repeated, and otherwise buried. A job that
    runs here but waits in the database is buried unless it may be repeated. A claim whose payload this process cannot
    open is left until its lease lapses.

    Args:
        owned: The claims that the executor is carrying out.
        begun_up_to: The highest fencing token of all claims that this executor has begun. Tokens only rise, and those
            of a new epoch begin far above.
    """
    tokens = {job.id: job.token for job in owned}
    claims = Job.objects.order_by("id").values_list("pk", "fencing_token")
    held = claims.filter(executor=executor_id, status__in=RUNNING)
    running = _locked({pk for pk, token in held if tokens.get(pk) != token}, RUNNING)
    running = [job for job in running if job.executor == executor_id and job.fencing_token != tokens.get(job.pk)]
    waiting = claims.filter(pk__in=list(tokens), status__in=WAITING)
    undone = _locked({pk for pk, token in waiting if token < tokens[pk]}, WAITING)
    undone = [job for job in undone if job.fencing_token < tokens[job.pk] and not is_repeatable(job)]
    unbegun = [job for job in running if job.fencing_token > begun_up_to]
    begun = [job for job in running if job.fencing_token <= begun_up_to]
    again = [job for job in begun if is_repeatable(job)]
    unknown = [job for job in begun if job not in again]
    end_holds([(job.pk, job.fencing_token) for job in unbegun])  # locks budgets before counters, as claims do
    losing_known([(job.pk, job.fencing_token) for job in begun])
    reclaim([holder_of(job.pk, job.fencing_token) for job in running])
    return SettledClaims(
        len(move_jobs("hand_back", [_move(job) for job in unbegun], message=CUT_OFF)),
        len(move_jobs("hand_back", [_move(job) for job in again], message=BEGUN)),
        len(_bury("fail", unknown)) + len(_bury("reject", undone)),
    )


def _locked(ids: set[UUID], states: Collection[str]) -> list[Job]:
    if not ids:
        return []
    rows = Job.objects.filter(pk__in=ids, status__in=states).order_by("id").select_for_update()
    return [job for job in rows if not is_closed(job)]


def _move(job: Job) -> Move:
    return Move(job.pk, token=job.fencing_token, delay_seconds=0)


def _bury(edge: str, jobs: Collection[Job]) -> set[UUID]:
    failure = Failure(OUTCOME_UNKNOWN, "crash", UNKNOWN_END)
    moves = [Move(job.pk, token=job.fencing_token, error_code=failure.code, message=failure.message) for job in jobs]
    return bury(edge, {job.pk: (job.kind, failure) for job in jobs}, moves)
