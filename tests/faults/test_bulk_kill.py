"""A bulk operation whose workers are killed in the middle of it."""

from __future__ import annotations

import contextlib
import os
import signal
from datetime import timedelta

import psycopg
import pytest
from django.db import connection, transaction
from django.db.models import Count

from jobs.models import BulkOperation, DeadLetter, Job, PauseSwitch
from jobs.services.operate import bulk
from jobs.services.operate.bulk_run import restart_stalled_operations
from queueops.audit.models import AuditEntry
from tests.factories import make_dead_letters
from tests.faults.clusters import Cluster, cluster
from tests.support.processes import wait_for
from tests.support.racing import waiting_for

pytestmark = pytest.mark.django_db(transaction=True)

LETTERS = 1200  # three chunks


def kill_workers(running: Cluster) -> None:
    """All of them: either may carry the operation's task out. The sentinel makes new ones."""
    for executor in running.executors():
        with contextlib.suppress(ProcessLookupError):
            os.kill(executor.pid, signal.SIGKILL)


@pytest.mark.proves("R1")
def test_killed_workers_leave_no_row_out_and_take_none_twice(ledger):
    PauseSwitch.objects.create(scope="global", paused_by="system")  # the new jobs themselves are not the matter
    letters = make_dead_letters(LETTERS)
    with (
        psycopg.connect(**connection.get_connection_params() | {"cursor_factory": None}) as blocker,
        cluster(ledger, executors=1) as running,
    ):
        # The second chunk cannot get past this row, so its worker dies with half of it done.
        blocker.execute("SELECT FROM jobs_deadletter WHERE id = %s FOR UPDATE", [letters[750].pk])
        operation = bulk.start_bulk_requeue({}, actor="user:7", rows_per_minute=60_000)
        wait_for(lambda: waiting_for(blocker), seconds=60, what="a worker at the blocked row")
        kill_workers(running)
        operation.refresh_from_db()
        assert (operation.done, operation.status) == (500, "running")
        assert DeadLetter.objects.open().count() == LETTERS - 500
        blocker.rollback()  # ends the killed worker's session: the server does not miss a client that it makes wait
        running.wait_until_ready()
        # What house-keeping does each minute, once nothing was heard for a while. Twice, before a worker can take the
        # first hand-out, which is void then.
        with transaction.atomic():
            for _ in range(2):
                assert restart_stalled_operations(stalled_after=timedelta(0)) == [operation.pk]
        wait_for(lambda: BulkOperation.objects.get().status == "done", seconds=60, what="the end of the operation")
    operation.refresh_from_db()
    assert (operation.done, operation.skipped, operation.total, operation.turn) == (LETTERS, 0, LETTERS, 3)
    made = Job.objects.filter(origin__isnull=False).values("origin").annotate(times=Count("pk"))
    assert made.count() == LETTERS
    assert not made.filter(times__gt=1).exists()
    assert [entry.moved for entry in AuditEntry.objects.order_by("id")] == [0, LETTERS]
