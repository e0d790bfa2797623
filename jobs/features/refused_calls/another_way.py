"""
Sends the waiting jobs of an account without credit another way, if their payloads name one for that case.

The duty that holds such jobs runs in one process, which may be unable to read some of their payloads, for want of a key
or a kind. Each cluster therefore looks through the held jobs for those that it can send on.
"""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

from django.db import transaction
from django.db.models import Q, TextField
from django.db.models.functions import Cast

from jobs.features.fallback.fallback import LEFT_SECONDS, REROUTED_AT_ONCE, WaitsForWay, reroute
from jobs.features.fallback.ways import NAMED, kinds_with_ways
from jobs.features.refused_calls.models import RefusedCalls
from jobs.handlers.refusals import ACCOUNT_CLOSED
from jobs.models import Job
from queueops.core.sealing import MARK as SEALED
from queueops.core.sql import run_sql

STATEMENTS_AT_ONCE = 10  # of a round, each of which reads REROUTED_AT_ONCE held jobs
NO_ID = UUID(int=0)


class StoppedRounds:
    """
    Looks through all held jobs, a bounded number at once; after the last it rests for LEFT_SECONDS.

    The rounds share no duty, whose holder may be the one host that cannot read a job.
    """

    def __init__(self, executor: UUID, _: object = None) -> None:
        self._after = NO_ID
        self._rests_until = float("-inf")

    def do(self, now: float) -> None:
        if now < self._rests_until:
            return
        if not RefusedCalls.objects.filter(stopped_at__isnull=False, code__in=ACCOUNT_CLOSED).exists():
            self._after = NO_ID
            return
        for _ in range(STATEMENTS_AT_ONCE):
            last = _look_behind(self._after)
            self._after = last or NO_ID
            if last is None:
                self._rests_until = now + LEFT_SECONDS
                return

    def stop(self) -> None:
        """Do nothing: no round leaves anything running."""


def send_another_way(ids: Sequence[UUID]) -> int:
    """Send waiting jobs another way, in the caller's transaction; return how many went. They stay held until then."""
    columns = ("pk", "kind", "text", "fallback_step", "project_id", "user_id", "service", "model", "credential")
    sent = 0
    for first in range(0, len(ids), REROUTED_AT_ONCE):  # payloads may be large
        few = Job.objects.filter(pk__in=ids[first : first + REROUTED_AT_ONCE])
        waiting = few.annotate(text=Cast("payload", TextField()))
        # An encrypted payload shows only once it is opened whether it names another way.
        naming = waiting.filter(Q(text__contains=NAMED) | Q(text__contains=SEALED))
        rows = [
            WaitsForWay(pk, "no_credit", kind, text, step, project, user, service, model, credential, 0.0)
            for pk, kind, text, step, project, user, service, model, credential in naming.values_list(*columns)
        ]
        sent += reroute(rows).moved
    return sent


@transaction.atomic
def _look_behind(after: UUID) -> UUID | None:
    """Send on what this process can of the held jobs behind an id; return the last id read, None: no job was left."""
    looking = {"after": after, "most": REROUTED_AT_ONCE, "kinds": kinds_with_ways(), "codes": sorted(ACCOUNT_CLOSED)}
    ids: list[UUID] | None
    last: UUID | None
    [(ids, last)] = run_sql("jobs", "choose_stopped", looking)
    if ids and send_another_way(ids):
        run_sql("jobs", "release_held_jobs", {"after": after, "most": REROUTED_AT_ONCE, "batch": None})
    return last
