"""Recording that a job's handler held the event loop that all jobs of its worker share."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple
from uuid import UUID

from django.db import transaction
from django.db.models import F

from jobs.models import Executor
from jobs.services.finish.claimed import ClaimedJob
from queueops.core.clock import Now
from queueops.core.sql import plain_array, run_sql

from .admit import SUSPECT


class Held(NamedTuple):
    """
    One job whose handler did not give the loop back within its budget.

    Attributes:
        seconds: The longest time so far.
        has_ended: The run has ended and the job will run again; False: the first report of a run that goes on.
    """

    job: ClaimedJob
    seconds: float
    has_ended: bool = False


@transaction.atomic
def note_held(held: Sequence[Held], *, executor_id: UUID) -> None:
    """
    Log the held loop on the jobs, count it on their executor, and let the jobs run alone from now on.

    While the job runs, a held loop counts as one crash. If the process then dies, the job has two crashes and runs
    alone next. A job that dies only because another job crashed is not buried for that. When the run has ended and the
    job will run again, a held loop counts as two crashes.
    """
    run_sql(
        "jobs",
        "note_held_loop",
        {
            "ids": [one.job.id for one in held],
            "tokens": [one.job.token for one in held],
            "seconds": plain_array([one.seconds for one in held]),
            "crashes": plain_array([SUSPECT if one.has_ended else SUSPECT - 1 for one in held]),
        },
    )
    last = held[-1].job
    Executor.objects.filter(pk=executor_id).update(
        loops_held=F("loops_held") + sum(not one.has_ended for one in held),
        loop_held_at=Now(),
        loop_held_by=f"job {last.id} ({last.kind}, project {last.project})",
    )
